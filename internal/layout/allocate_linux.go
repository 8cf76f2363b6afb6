package layout

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate gives a file so many bytes of the disk without writing them; false where the file system cannot.
func allocate(file *os.File, size int64) (bool, error) {
	for {
		switch err := unix.Fallocate(int(file.Fd()), 0, 0, size); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return false, nil
		default:
			return err == nil, err
		}
	}
}
