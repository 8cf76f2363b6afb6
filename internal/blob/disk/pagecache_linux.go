package disk

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/blob"
)

// DropPageCache drops a range of a file from the page cache, so that the next read comes from the disk. Pages that
// cannot be dropped stay.
func DropPageCache(f blob.File, off, n int64) {
	if file, ok := f.(*os.File); ok {
		_ = unix.Fadvise(int(file.Fd()), off, n, unix.FADV_DONTNEED)
	}
}
