package etcd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// dirLock locks a directory for this process. The kernel releases it however the process ends.
type dirLock struct{ file *os.File }

const lockFile = "lock"

// LockDirectory locks the directory of an embedded store, which is created if needed, until the caller
// closes the lock.
func LockDirectory(dir string) (io.Closer, error) {
	if err := os.MkdirAll(dir, storeDirMode); err != nil {
		return nil, fmt.Errorf("create store directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	return lock.file, nil
}

// lockDir takes the lock, or returns an error that names its holder.
func lockDir(dir string) (*dirLock, error) {
	path := filepath.Join(dir, lockFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file of the store: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("store directory %s is in use by process %s", dir, lockHolder(file))
	}
	if err == nil {
		if err = writePID(file); isDiskFull(err) { // the lock is valid without it
			err = nil
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &dirLock{file}, nil
}

func lockHolder(file *os.File) string {
	data, err := io.ReadAll(io.LimitReader(file, 32))
	if pid := strings.TrimSpace(string(data)); err == nil && pid != "" {
		return pid
	}
	return "(unknown)"
}

func writePID(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return fmt.Errorf("write process ID to the lock file: %w", err)
	}
	if _, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("write process ID to the lock file: %w", err)
	}
	return nil
}

// release releases the lock. The file stays: removing it would let two processes lock two different
// files of that name.
func (l *dirLock) release() error { return l.file.Close() }
