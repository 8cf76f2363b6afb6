package qemu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// startTicks returns when a live process was started, in clock ticks since the boot of the host. A
// zombie has ended.
func startTicks(pid int) (uint64, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, errProcessGone
	}
	state, ticks, err := parseStat(stat)
	if err == nil && (state == 'Z' || state == 'X') {
		return 0, errProcessGone
	}
	return ticks, err
}

// parseStat reads state and start time from /proc/PID/stat (proc(5), fields 3 and 22). The name in
// field 2 may contain any characters, so it is skipped by its last ')'.
func parseStat(b []byte) (state byte, ticks uint64, err error) {
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return 0, 0, errors.New("malformed /proc stat file")
	}
	ticks, err = strconv.ParseUint(string(f[19]), 10, 64)
	return f[0][0], ticks, err
}

// machineUUID returns the value of -uuid in a NUL-separated command line.
func machineUUID(cmdline []byte) string {
	args := bytes.Split(cmdline, []byte{0})
	for i := range len(args) - 1 {
		if string(args[i]) == "-uuid" {
			return string(args[i+1])
		}
	}
	return ""
}

func pidsOf(uuid string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if args, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); err == nil &&
			machineUUID(args) == uuid {
			out = append(out, pid)
		}
	}
	return out, nil
}

// kill ends the process immediately. The PID is pinned before it is checked, so that no other
// process can be hit.
func (p process) kill() error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pidfd of %d: %w", p.PID, err)
	}
	defer func() { _ = unix.Close(fd) }()
	if !p.isAlive() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill %d: %w", p.PID, err)
	}
	return nil
}
