package cliproc

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// inspect returns when a process was started, and whether it still runs. A zombie does not.
func inspect(pid int) (started uint64, running bool, err error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, false, ErrEnded
	}
	state, started, err := parseStat(stat)
	return started, state != 'Z' && state != 'X', err
}

// parseStat reads state and start time from /proc/PID/stat (proc(5), fields 3 and 22). The name in field 2 may contain
// any characters, so it is skipped by its last ')'.
func parseStat(b []byte) (state byte, started uint64, err error) {
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 || len(f[0]) != 1 || f[0][0] < 'A' { // the state is a letter
		return 0, 0, errors.New("malformed /proc stat file")
	}
	started, err = strconv.ParseUint(string(f[19]), 10, 64)
	return f[0][0], started, err
}

// signal pins the PID before it is checked, so that no other process can be hit.
func (p Process) signal(s syscall.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if !p.IsAlive() {
		return nil
	}
	return unix.PidfdSendSignal(fd, s, nil, 0)
}
