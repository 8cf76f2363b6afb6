package catalog_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// A directory whose names the kernel does not resolve is opened by another method, with no more
// open files than before: here the kernel refuses because a second one exceeds the limit.
func TestDirectoryWithoutOpenat2(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Open(dir) // has the lowest free number
	if err != nil {
		t.Fatal(err)
	}
	free := uint64(f.Fd())
	f.Close()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: free + 1, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	_, closer, err := catalog.OpenDir(dir)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	closer.Close()
}
