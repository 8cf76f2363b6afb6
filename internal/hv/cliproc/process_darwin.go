package cliproc

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

const zombie = 5 // SZOMB of sys/proc.h

// inspect returns when a process was started, and whether it still runs. A zombie does not.
func inspect(pid int) (started uint64, running bool, err error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if errors.Is(err, unix.EIO) || errors.Is(err, unix.ESRCH) { // EIO: the answer is empty
		return 0, false, ErrEnded
	}
	if err != nil {
		return 0, false, err
	}
	return uint64(info.Proc.P_starttime.Sec), info.Proc.P_stat != zombie, nil
}

// signal checks the process as late as possible: macOS cannot pin a PID.
func (p Process) signal(s syscall.Signal) error {
	if !p.IsAlive() {
		return nil
	}
	return syscall.Kill(p.PID, s)
}
