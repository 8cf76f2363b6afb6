package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/buildyard/buildyard/internal/farm"
)

// Lock is the right to be the agent of a home. The kernel gives it back when the
// process ends, however it ends.
type Lock struct{ file *os.File }

// Lock takes the home. A CodeConflict means that an agent runs on it.
func (h Dir) Lock() (*Lock, error) {
	if err := h.Make(); err != nil {
		return nil, err
	}
	return LockFile(filepath.Join(h.dir, "lock"),
		farm.Errorf(farm.CodeConflict, "An agent already runs on %s", h.dir))
}

// LockFile takes an exclusive lock on a file, which is made when it is missing;
// busy is the error when somebody holds it.
func LockFile(name string, busy error) (*Lock, error) {
	for {
		l, err := lockOnce(name, busy)
		if l == nil || l.named() {
			return l, err
		}
		l.Release() // its file was removed by who had it before: that excludes nobody
	}
}

func lockOnce(name string, busy error) (*Lock, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return &Lock{f}, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, busy
	}
	return nil, fmt.Errorf("lock %s: %w", name, err)
}

// named reports whether others who lock the same name meet this lock.
func (l *Lock) named() bool {
	mine, err := l.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(l.file.Name())
	return err == nil && os.SameFile(mine, there)
}

// Release returns the lock back.
func (l *Lock) Release() { _ = l.file.Close() } // there is nothing to write, so nothing to fail

// Discard returns the lock back and removes its file.
func (l *Lock) Discard() {
	if l.named() {
		_ = os.Remove(l.file.Name()) // one that stays only lies about
	}
	l.Release()
}
