package recordfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// RemoveUnfinished removes the files that match a pattern, except those that a Write has locked.
func RemoveUnfinished(pattern string) (errs error) {
	left, err := filepath.Glob(pattern)
	if err != nil {
		return fmt.Errorf("find unfinished files: %w", err)
	}
	for _, path := range left {
		if err := removeUnlocked(path); err != nil {
			errs = errors.Join(errs, fmt.Errorf("remove an unfinished file: %w", err))
		}
	}
	return errs
}

// removeUnlocked removes a file unless it is locked.
func removeUnlocked(path string) (err error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()

	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(path)
}
