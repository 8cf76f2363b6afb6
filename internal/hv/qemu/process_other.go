//go:build !linux

package qemu

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// psRow is one line of ps: PID and command line. The command line is not split into its
// arguments, which does not matter for a UUID.
type psRow struct {
	pid  int
	args string
}

func ps() ([]psRow, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ps", "-axww", "-o", "pid=,state=,args=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	var rows []psRow
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 3 || strings.HasPrefix(f[1], "Z") {
			continue
		}
		if pid, err := strconv.Atoi(f[0]); err == nil {
			rows = append(rows, psRow{pid, strings.Join(f[2:], " ")})
		}
	}
	return rows, nil
}

func (r psRow) isQEMUOf(uuid string) bool {
	return uuid != "" && strings.Contains(r.args+" ", " -uuid "+uuid+" ")
}

func pidsOf(uuid string) ([]int, error) {
	rows, err := ps()
	if err != nil {
		return nil, err
	}
	var out []int
	for _, r := range rows {
		if r.isQEMUOf(uuid) {
			out = append(out, r.pid)
		}
	}
	return out, nil
}
