package blob

import (
	"os"

	"golang.org/x/sys/unix"
)

// disablePageCache keeps further reads of the file out of the page cache.
func disablePageCache(f *os.File) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_NOCACHE, 1)
	return err
}
