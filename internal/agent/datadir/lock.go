package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// Lock is the exclusive lock of a data directory. The kernel releases it when the process ends in
// any way.
type Lock struct{ file *os.File }

// Lock attempts: Locked has the lock for a moment, which must not keep an agent from its start.
const (
	lockAttempts = 20
	lockPause    = 20 * time.Millisecond
)

// Lock locks the data directory. A CodeConflict means that an agent runs in it.
func (h Dir) Lock() (l *Lock, err error) {
	if err := h.Create(); err != nil {
		return nil, err
	}
	for range lockAttempts {
		if l, err = h.tryLock(); farm.CodeOf(err) != farm.CodeConflict {
			return l, err
		}
		time.Sleep(lockPause)
	}
	return nil, err
}

// IsLocked reports whether an agent has the lock of the data directory.
func (h Dir) IsLocked() bool {
	l, err := h.tryLock()
	if err == nil {
		l.Release()
	}
	return farm.CodeOf(err) == farm.CodeConflict
}

func (h Dir) tryLock() (*Lock, error) {
	return LockFile(filepath.Join(h.path, "lock"),
		farm.Errorf(farm.CodeConflict, "Another agent already uses the data directory %s", h.path))
}

// LockFile takes an exclusive lock on a file, which is created if missing; busy is the error when
// another process has the lock.
func LockFile(name string, busy error) (*Lock, error) {
	for {
		l, err := tryLockFile(name, busy)
		if l == nil || l.isNamed() {
			return l, err
		}
		l.Release() // the previous holder removed its file: such a lock excludes no other process
	}
}

func tryLockFile(name string, busy error) (*Lock, error) {
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

// isNamed reports whether the name of the lock still refers to this file, so that others contend for it.
func (l *Lock) isNamed() bool {
	mine, err := l.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(l.file.Name())
	return err == nil && os.SameFile(mine, there)
}

// Release releases the lock.
func (l *Lock) Release() { _ = l.file.Close() } // nothing is written, so Close cannot lose data

// Discard releases the lock and removes its file.
func (l *Lock) Discard() {
	if l.isNamed() {
		_ = os.Remove(l.file.Name()) // a remaining lock file is harmless
	}
	l.Release()
}
