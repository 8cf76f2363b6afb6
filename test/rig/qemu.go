package rig

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// QEMU is a QEMU process that one of our agents started.
type QEMU struct {
	PID  int
	UUID string // the machine UUID, which is the instance's id
}

// QEMUs finds the QEMU processes that have a file below dir open: those, and only
// those, were started by an agent of ours. They are sorted by their instances.
func QEMUs(dir string) ([]QEMU, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []QEMU
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if uuid := machineUUID(pid); uuid != "" && holds(pid, dir) {
			found = append(found, QEMU{pid, uuid})
		}
	}
	slices.SortFunc(found, func(a, b QEMU) int { return strings.Compare(a.UUID, b.UUID) })
	return found, nil
}

// machineUUID returns the value of -uuid of a QEMU process; "" for other processes.
func machineUUID(pid int) string {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return ""
	}
	args := strings.Split(string(raw), "\x00")
	if !strings.HasPrefix(filepath.Base(args[0]), "qemu-system-") {
		return ""
	}
	for i, arg := range args[:len(args)-1] {
		if arg == "-uuid" {
			return args[i+1]
		}
	}
	return ""
}

// holds reports whether a process has a file below dir open.
func holds(pid int, dir string) bool {
	fds := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(fds)
	if err != nil {
		return false // it has ended
	}
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(fds, e.Name())); err == nil && strings.HasPrefix(target, dir+"/") {
			return true
		}
	}
	return false
}

// Kill kills the process after a last check that it is still the same one; it reports whether there
// was one to kill.
func (q QEMU) Kill(dir string) (bool, error) {
	if machineUUID(q.PID) != q.UUID || !holds(q.PID, dir) {
		return false, nil
	}
	err := syscall.Kill(q.PID, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return false, nil
	}
	return err == nil, err
}
