package inodefs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"slices"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

func TestModes(t *testing.T) {
	for mode, want := range map[uint16]fs.FileMode{
		ModeRegular | 0o4755: fs.ModeSetuid | 0o755, ModeDir | 0o1777: fs.ModeDir | fs.ModeSticky | 0o777,
		ModeLink | 0o777:  fs.ModeSymlink | 0o777,
		ModeFIFO | 0o2600: fs.ModeNamedPipe | fs.ModeSetgid | 0o600, ModeSocket: fs.ModeSocket,
		ModeBlock: fs.ModeDevice,
		ModeChar:  fs.ModeDevice | fs.ModeCharDevice, 0: fs.ModeIrregular, ModeKind: fs.ModeIrregular,
	} {
		if got := FileMode(mode); got != want {
			t.Errorf("%#o: %v, want %v", mode, got, want)
		}
	}
}

// A block belongs to the directory that had it first.
func TestOwners(t *testing.T) {
	t.Run("32 bits", testOwners[uint32])
	t.Run("64 bits", testOwners[uint64])
}

func testOwners[D uint32 | uint64](t *testing.T) {
	o := &BlockOwners[D]{}
	for _, c := range []struct {
		block uint64
		dir   D
		want  bool
	}{
		{70, 2, true},
		{70, 2, true},
		{70, 3, false},
		{71, 3, true},
		{71, 2, false},
		{70 + ownerChunkBlocks, 3, true},
		{6, 5, true},
	} {
		if got := o.Claim(c.block, c.dir); got != c.want {
			t.Errorf("block %d for directory %d: %v", c.block, c.dir, got)
		}
	}
	most := maxOwnerBytes / ownerChunkBlocks / binary.Size(D(0))
	for k := uint64(len(o.byBlock)); k < uint64(most); k++ {
		o.byBlock[1000+k] = nil
	}
	if !o.Claim(1<<40, 2) || !o.Claim(1<<40, 3) || o.Claim(70, 3) || len(o.byBlock) != most {
		t.Error("a block that is not known has an owner, or one that is known has none")
	}
}

// Pages are read once while the cache has space for them, and nothing after the end is read.
func TestPages(t *testing.T) {
	r := &treetest.Reader{Bytes: make([]byte, 5*minPageBytes+100)}
	for k := range r.Bytes {
		r.Bytes[k] = byte(k / minPageBytes)
	}
	p := NewPages(r, int64(len(r.Bytes)), 1024)
	p.maxPages = 2
	for _, number := range []int64{0, 0, 1, 0, 2, 0, 1, 1, 0} {
		b, err := p.Get(number*minPageBytes+1024, 1024)
		if err != nil || len(b) != 1024 || cap(b) != 1024 || b[0] != byte(number) {
			t.Fatalf("page %d: %d bytes, %v", number, len(b), err)
		}
	}
	if want := []int64{0, minPageBytes, 2 * minPageBytes, minPageBytes}; !slices.Equal(r.Offsets, want) {
		t.Errorf("read at %v, want %v", r.Offsets, want)
	}
	end := int64(len(r.Bytes))
	if b, err := p.Get(end-100, 100); err != nil || len(b) != 100 {
		t.Errorf("the end: %d bytes, %v", len(b), err)
	}
	for _, c := range [][2]int64{{-1, 10}, {end - 99, 100}, {end, 1}, {1 << 62, 100}, {minPageBytes - 10, 20}} {
		if _, err := p.Get(c[0], c[1]); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes at %d: %v", c[1], c[0], err)
		}
	}
	for _, off := range []int64{-1, end - 99} {
		if err := p.Read(make([]byte, 100), off); !errors.Is(err, ErrDamaged) {
			t.Errorf("read at %d: %v", off, err)
		}
	}
	r.FailFrom = 1
	if _, err := p.Get(4*minPageBytes, 10); !errors.Is(err, treetest.ErrRead) {
		t.Errorf("a disk that cannot be read: %v", err)
	}
	cut := NewPages(bytes.NewReader(nil), minPageBytes, 1024)
	if _, err := cut.Get(0, 10); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a disk that was cut: %v", err)
	}
	if p := NewPages(r, end, 64<<10); p.pageSize != 64<<10 || p.maxPages != pageCacheBytes/(64<<10) {
		t.Errorf("pages of %d bytes, at most %d", p.pageSize, p.maxPages)
	}
}

// Values that were used last are kept, up to a limit.
func TestCache(t *testing.T) {
	c := NewCache[int](8, func(v string) int { return len(v) })
	for k := range 4 {
		c.Put(k, "v")
	}
	c.Put(9, "large") // more than a generation
	if _, ok := c.Get(9); ok || c.youngBytes != 4 {
		t.Errorf("a large value is kept, or %d bytes", c.youngBytes)
	}
	c.Put(4, "v")
	c.Get(1) // it moves to the younger generation
	c.Put(1, "other")
	for k := 5; k < 8; k++ {
		c.Put(k, "v")
	}
	for k, want := range []bool{false, true, false, false, true, true, true, true} {
		if v, ok := c.Get(k); ok != want || ok && v != "v" {
			t.Errorf("value %d is kept: %v %q", k, ok, v)
		}
	}
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"plain\x00rest": "plain", "all": "all", "a\x1b[2Jb\x7f\n": "a[2Jb",
		"\xff ä": " ä", "\x00x": "", "a\ufffdb": "ab",
	} {
		if got := CString([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
