package layout

import (
	"errors"
	"os"
	"syscall"
)

// preallocate reserves size bytes of the disk for a file without writing them; false: the file system cannot.
func preallocate(file *os.File, size int64) (bool, error) {
	for {
		switch err := syscall.Fallocate(int(file.Fd()), 0, 0, size); {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
			return false, nil
		default:
			return err == nil, err
		}
	}
}
