package catalog_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// TestOtherBytes: names that are not UTF-8 are read, and none makes a scan partial.
func TestOtherBytes(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "caf\xe9", "x")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Skip("the file system has names in UTF-8 alone")
	}
	for _, name := range []string{filepath.Join(inner, "list"), filepath.Join(dir, "\xff.txt")} {
		if err := os.WriteFile(name, []byte("gem a 1"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tree, closer, err := catalog.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer closer.Close()
	r, err := catalog.Scan(t.Context(), tree, catalog.Options{Extractors: list("list")})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Packages) != 1 || r.Packages[0].Locations[0] != "/caf\xe9/x/list" || r.Unreadable != 0 || r.Files != 2 {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"../x", "/etc/passwd", "a/../../x", "a//b", "\xff\x00"} {
		if _, err := tree.Open(name); err == nil {
			t.Errorf("%q was opened", name)
		}
	}
}

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
