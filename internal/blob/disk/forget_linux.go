package disk

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/blob"
)

// Forget makes the system drop what it keeps in memory of a range of a file, so that the next read comes from
// the disk. What cannot be dropped stays.
func Forget(f blob.File, off, n int64) {
	if file, ok := f.(*os.File); ok {
		_ = unix.Fadvise(int(file.Fd()), off, n, unix.FADV_DONTNEED)
	}
}
