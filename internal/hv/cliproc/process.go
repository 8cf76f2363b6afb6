package cliproc

import (
	"errors"
	"fmt"
	"syscall"
)

// ErrEnded reports that a process no longer runs.
var ErrEnded = errors.New("the process has ended")

// Process identifies one process of this host until the next boot, even when its PID is used again. The zero value is
// none.
type Process struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"start_ticks"` // Linux: clock ticks since boot; macOS: seconds since 1970
}

// Find returns the process that has a PID now. A zombie has ended: ErrEnded.
func Find(pid int) (Process, error) {
	if pid <= 0 {
		return Process{}, ErrEnded
	}
	started, running, err := inspect(pid)
	if err != nil {
		return Process{}, err
	}
	if !running {
		return Process{}, ErrEnded
	}
	return Process{pid, started}, nil
}

// IsAlive reports whether exactly this process still runs.
func (p Process) IsAlive() bool {
	now, err := Find(p.PID)
	return err == nil && now == p
}

// Kill ends exactly this process immediately. It is not an error when it has ended before.
func (p Process) Kill() error { return p.Signal(syscall.SIGKILL) }

// Signal sends a signal to exactly this process. It is not an error when it has ended before.
func (p Process) Signal(s syscall.Signal) error {
	if p.PID <= 0 {
		return nil
	}
	if err := p.signal(s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", s, p.PID, err)
	}
	return nil
}
