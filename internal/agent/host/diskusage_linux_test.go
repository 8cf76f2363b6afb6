package host_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/tools/xfstest"
)

func TestOnXFS(t *testing.T) { xfstest.Run(t, "TestClonesCountOnce") }

// TestClonesCountOnce: each of several clones has only the bytes written since then, and together
// they use the shared bytes once.
func TestClonesCountOnce(t *testing.T) {
	const mib = 1 << 20
	top := t.TempDir()
	dirs := []string{filepath.Join(top, "a"), filepath.Join(top, "b"), filepath.Join(top, "c")}
	var files []*os.File
	for i, dir := range dirs {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(filepath.Join(dir, "disk"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if files = append(files, f); i == 0 {
			_, err = f.Write(make([]byte, 8*mib))
		} else if err = unix.IoctlFileClone(int(f.Fd()), int(files[0].Fd())); err != nil {
			t.Skipf("files cannot be cloned here: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// Many extents, so that they do not fit in one response of the system.
	for at := int64(0); at < 8*mib; at += 8192 {
		if _, err := files[1].WriteAt([]byte("changed"), at); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range files {
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	near := func(what string, got, want int64) {
		t.Helper()
		if got < want-want/8 || got > want+mib {
			t.Errorf("%s: %d bytes, want about %d", what, got, want)
		}
	}
	own := func(dir string) int64 { return slices.Max(slices.Collect(maps.Values(host.ExclusiveBytes(dir)))) }
	near("all", host.DiskUsage(dirs...), 12*mib)
	near("one", host.DiskUsage(dirs[0]), 8*mib)
	near("what is named twice", host.DiskUsage(dirs[1], dirs[1]), 8*mib)
	near("what has no changes", own(dirs[2]), 0)
	near("what has changes", own(dirs[1]), 4*mib)
}
