package reflink

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// CloneAt creates a file in a directory that shares all its bytes with another file until one of them is
// written. It replaces an existing file. It returns errors.ErrUnsupported if the file system cannot clone.
func CloneAt(from *os.File, dir *os.Root, name string) error {
	to, err := dir.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(cloneError(unix.IoctlFileClone(int(to.Fd()), int(from.Fd()))), to.Close())
}

// cloneError maps errors for two files that cannot be clones of each other to errors.ErrUnsupported. They are on
// different file systems, or only one of them has checksums (btrfs). ENOTSUP and ENOSYS match
// errors.ErrUnsupported as they are.
func cloneError(err error) error {
	for _, no := range []error{unix.EXDEV, unix.EINVAL, unix.ENOTTY, unix.EPERM} {
		if errors.Is(err, no) {
			return errors.ErrUnsupported
		}
	}
	return err
}

// punchHole makes a range of a file a hole. errors.ErrUnsupported: the file system cannot.
func punchHole(f *os.File, off, n int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
}
