package reflink

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// CloneAt creates a file in a directory that shares all its bytes with another file until one of them is
// written. It replaces an existing file. It returns errors.ErrUnsupported if the file system cannot clone.
func CloneAt(from *os.File, dir *os.Root, name string) error {
	if err := dir.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	err = unix.Fclonefileat(int(from.Fd()), int(d.Fd()), name, 0)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EXDEV) {
		err = errors.ErrUnsupported
	}
	return errors.Join(err, d.Close())
}

// punchHole is not implemented here: holes of this system's files need whole blocks of the file system.
func punchHole(*os.File, int64, int64) error { return errors.ErrUnsupported }
