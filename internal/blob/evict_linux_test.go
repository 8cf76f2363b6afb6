package blob

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// dropCache removes a file from the page cache.
func dropCache(tb testing.TB, f *os.File) {
	tb.Helper()
	if err := f.Sync(); err != nil {
		tb.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		tb.Fatal(err)
	}
}
