package cache_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/tools/xfstest"
)

// TestOnXFS runs the tests that depend on clones on a file system with clones.
func TestOnXFS(t *testing.T) {
	xfstest.Run(t, "TestClonedVersions", "TestClonedPartIsNoProgress",
		"TestChainOfARegistry", "TestAdoptedChain", "TestChangesNeedLittleSpace", "TestVersionsShareFiles")
}

// clone creates a file that shares the bytes of another one, and skips the test where that is not
// supported.
func clone(t *testing.T, from, to string) {
	t.Helper()
	a, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := unix.IoctlFileClone(int(b.Fd()), int(a.Fd())); err != nil {
		t.Skipf("files cannot be cloned here: %v", err)
	}
}

// took runs do and returns the bytes that it used according to the file system and the cache.
func (s *shelf) took(do func()) (disk, used int64) {
	s.t.Helper()
	before, _, err := host.DiskSpace(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	used = s.cache.UsedBytes()
	do()
	after, _, err := host.DiskSpace(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	return before - after, s.cache.UsedBytes() - used
}

// TestClonedVersions: where files can be cloned, a next version is a flat disk that uses space for
// its changes alone, and is unchanged when the version it was cloned from is evicted, when a save
// based on it is adopted, and when the registry squashes its layers.
func TestClonedVersions(t *testing.T) {
	s := newShelf(t, 0)
	base := noise(t, "disk.img", 1, 8)
	clone(t, base, filepath.Join(t.TempDir(), "probe"))
	disk, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	at := diskfile.Disk{Path: base, Format: "raw"}
	flat := func(ref cache.Ref) {
		t.Helper()
		if d, got := diskOf(t, s.cache, ref); !bytes.Equal(got, disk) || d.Path != s.file(ref, "disk.img") ||
			len(d.Overlays) > 0 {
			t.Errorf("%s is read from %+v, and right: %v", ref.Tag, d, bytes.Equal(got, disk))
		}
	}
	push := func(tag, parent string, writes int) (cache.Ref, string) {
		t.Helper()
		at.Overlays = append(at.Overlays, overlay(t, disk, uint64(writes), writes))
		return s.pushDisk(tag, at, parent)
	}
	first, tip := s.pushDisk("v1", at, "")
	s.fetch(first)
	second, tip := push("v2", tip, 40)
	if onDisk, used := s.took(func() { s.fetch(second) }); onDisk > 4*mib || used > mib || used < 64<<10 {
		t.Errorf("the clone took %d bytes of the disk, and %d of the cache", onDisk, used)
	}
	flat(second)
	if err := s.cache.Remove(first.ContentID); err != nil {
		t.Fatal(err)
	}
	flat(second)
	if used := s.cache.UsedBytes(); used < 7*mib || used > 9*mib {
		t.Errorf("%d bytes are used by a clone of what is gone", used)
	}

	third, tip := push("v3", tip, 41)
	err = s.cache.AddLocal(t.Context(), cache.LocalVersion{
		Ref: third, Config: []byte("{}"), Paths: map[string]string{"disk.img": at.Overlays[1]},
		Files: map[string]cache.File{
			"disk.img": {
				ChainID: tip, Format: "raw", Base: &cache.BaseFile{ContentID: second.ContentID, FileName: "disk.img"},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if d, got := diskOf(t, s.cache, third); !bytes.Equal(got, disk) || d.Path != s.file(second, "disk.img") ||
		len(d.Overlays) != 1 {
		t.Errorf("the adopted version is read from %+v", d)
	}

	fourth, tip := push("v4", tip, 16000) // nearly all of the disk
	if n, err := s.core.SquashChains(t.Context()); n != 1 || err != nil {
		t.Fatalf("%d chains were put together, %v", n, err)
	}
	s.fetch(fourth)
	flat(fourth)
	fifth, _ := push("v5", tip, 42)
	if _, used := s.took(func() { s.fetch(fifth) }); used > mib {
		t.Errorf("a clone of what was put together took %d bytes", used)
	}
	flat(fifth)
}

// TestClonedPartIsNoProgress: what an interrupted pull has cloned uses no space, so it does not
// count as pulled.
func TestClonedPartIsNoProgress(t *testing.T) {
	s := newShelf(t, 14*mib) // of which one is reserved
	base := noise(t, "disk.img", 1, 8)
	disk, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	first, tip := s.pushDisk("v1", diskfile.Disk{Path: base, Format: "raw"}, "")
	deltas := []string{overlay(t, disk, 1, 600)}
	second, _ := s.pushDisk("v2", diskfile.Disk{Path: base, Format: "raw", Overlays: deltas}, tip)
	s.id = ""
	other := s.push("other", map[string]string{}, noise(t, "other.img", 3, 4))
	s.fetch(first)
	s.fetch(other)
	part := filepath.Join(s.dir, second.ContentID+".partial")
	if err := os.Mkdir(part, 0o700); err != nil {
		t.Fatal(err)
	}
	clone(t, s.file(first, "disk.img"), filepath.Join(part, "disk.img.partial"))
	s.fetch(second)
	if s.cache.Has(other.ContentID) {
		t.Error("no room was made for the changes")
	}
	if _, got := diskOf(t, s.cache, second); !bytes.Equal(got, disk) {
		t.Error("the version is another disk")
	}
}
