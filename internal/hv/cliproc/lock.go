package cliproc

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked reports that another process holds a lock.
var ErrLocked = errors.New("another process holds the lock")

// LockOwner returns the PID of the process that holds an fcntl lock on a file, or 0 if no process holds one. A lock
// of this process does not count, and looking drops it: the system releases all fcntl locks that a process has on a
// file when it closes any descriptor of that file. So the holder of a lock must neither call this nor read the file
// by another descriptor than the one that has the lock.
func LockOwner(path string) (pid int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()

	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return 0, fmt.Errorf("look at the lock of %s: %w", path, err)
	}
	if lock.Type == unix.F_UNLCK {
		return 0, nil
	}
	return int(lock.Pid), nil
}

// TakeLock takes the fcntl write lock on a whole file that exists, or returns ErrLocked. The lock ends with the
// process, or when it closes any descriptor of the file: see LockOwner.
func TakeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, ErrLocked
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}
