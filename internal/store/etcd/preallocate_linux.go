package etcd

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// preallocate reserves disk space for a range of a file without changing its length.
// errors.ErrUnsupported: the file system cannot.
func preallocate(file *os.File, off, length int64) error {
	for {
		err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, off, length)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP):
			return errors.ErrUnsupported
		}
		return err
	}
}
