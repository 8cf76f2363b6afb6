package transfer

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// cloneAt makes a file of a folder one that shares all its bytes with another file until one of them is
// written. Whatever is there gives way. errors.ErrUnsupported: the file system cannot.
func cloneAt(from *os.File, dir *os.Root, name string) error {
	to, err := dir.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(cloned(unix.IoctlFileClone(int(to.Fd()), int(from.Fd()))), to.Close())
}

// cloned is errors.ErrUnsupported for what the system says when these two files cannot be clones of each other: the
// file system cannot, they lie on two, or one is kept in a way that the other is not (btrfs without checksums).
func cloned(err error) error {
	for _, no := range []error{unix.ENOTSUP, unix.EXDEV, unix.EINVAL, unix.ENOTTY, unix.ENOSYS, unix.EPERM} {
		if errors.Is(err, no) {
			return errors.ErrUnsupported
		}
	}
	return err
}

// punch makes a range of a file a hole. errors.ErrUnsupported: the file system cannot.
func punch(f *os.File, off, n int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSYS) {
		return errors.ErrUnsupported
	}
	return err
}
