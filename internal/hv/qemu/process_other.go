//go:build !linux

package qemu

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// psRow is one line of ps: PID, start time, command line. The command line is not split into its
// arguments, which does not matter for a UUID.
type psRow struct {
	pid   int
	start time.Time
	args  string
}

func ps() ([]psRow, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ps", "-axww", "-o", "pid=,state=,lstart=,args=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	var rows []psRow
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 8 || strings.HasPrefix(f[1], "Z") {
			continue
		}
		pid, err1 := strconv.Atoi(f[0])
		start, err2 := time.ParseInLocation("Mon Jan 2 15:04:05 2006", strings.Join(f[2:7], " "), time.Local)
		if err1 == nil && err2 == nil {
			rows = append(rows, psRow{pid, start, strings.Join(f[7:], " ")})
		}
	}
	return rows, nil
}

func (r psRow) isQEMUOf(uuid string) bool {
	return uuid != "" && strings.Contains(r.args+" ", " -uuid "+uuid+" ")
}

// startTicks returns when a live process was started, in seconds since 1970.
func startTicks(pid int) (uint64, error) {
	rows, err := ps()
	if err != nil {
		return 0, err
	}
	for _, r := range rows {
		if r.pid == pid {
			return uint64(r.start.Unix()), nil
		}
	}
	return 0, errProcessGone
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

// kill ends the process immediately if it is still the one that was meant.
func (p process) kill() error {
	if !p.isAlive() {
		return nil
	}
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("kill %d: %w", p.PID, err)
	}
	return nil
}
