package apfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/buildyard/buildyard/internal/scan/fs/apfs"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/apfstest"
)

// image is a container in memory.
type image struct{ b []byte }

func (m *image) WriteAt(p []byte, off int64) (int, error) {
	if need := int(off) + len(p); need > len(m.b) {
		m.b = append(m.b, make([]byte, need-len(m.b))...)
	}
	return copy(m.b[off:], p), nil
}

func (m *image) block(n uint64) []byte {
	return m.b[n*apfstest.BlockSize : (n+1)*apfstest.BlockSize]
}

func (m *image) open() (*apfs.Container, error) {
	return apfs.Open(bytes.NewReader(m.b), int64(len(m.b)))
}

// write creates a container that must be free of errors.
func write(t testing.TB, c apfstest.Container) (*image, apfstest.Layout) {
	t.Helper()
	m := &image{}
	l, err := apfstest.Write(m, c)
	if err != nil {
		t.Fatal(err)
	}
	return m, l
}

// files opens the only volume of a container.
func files(t testing.TB, v apfstest.Volume) *apfs.FS {
	t.Helper()
	m, _ := write(t, apfstest.Container{Volumes: []apfstest.Volume{v}})
	_, f := openVolume(t, bytes.NewReader(m.b), int64(len(m.b)))
	return f
}

func noise(seed uint64, size int) []byte {
	r := rand.New(rand.NewPCG(seed, 9))
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func text(size int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "this is line %d of a file, and there are more\n", i*i%977)
	}
	return b.Bytes()[:size]
}

// some is a tree with everything but compression.
func some() []apfstest.File {
	return []apfstest.File{
		{Path: "a/b/c.txt", Data: []byte("hello")},
		{Path: "a/empty"},
		{Path: "a/large", Data: noise(1, 100_000)},
		{Path: "a/scattered", Data: noise(2, 50_001), Scattered: true},
		{Path: "a/holes", Data: noise(3, 80_000), Holes: []int{0, 1, 5, 6, 7, 12}, Size: 300_000},
		{Path: "a/hole", Size: 1 << 33},
		{Path: "b/second", Same: "a/b/c.txt"},
		{Path: "b/link", Target: "../a/b/c.txt"},
		{Path: "b/to-folder", Target: "/a/b"},
		{Path: "bad/loop", Target: "loop"},
		{Path: "b/away", Target: "../../../../a/empty"},
		{Path: "bad/nowhere", Target: "/no/such/file"},
		{Path: "pipe", Mode: apfstest.FIFO | 0o600},
		{Path: "setuid", Mode: apfstest.Regular | 0o4755, Data: []byte("x")},
		{Path: "attributes", Data: []byte("x"), Xattrs: map[string][]byte{"short": []byte("value"), "long": noise(4,
			9000), "none": nil}},
		{Path: "cloud", Size: 1234, Flags: 0x40000000},
		{Path: strings.Repeat("n", 255), Data: []byte("long name")},
	}
}

// content returns the expected content of a file.
func content(f apfstest.File) []byte {
	b := make([]byte, max(f.Size, int64(len(f.Data))))
	copy(b, f.Data)
	for _, i := range f.Holes {
		from := i * apfstest.BlockSize
		clear(b[min(from, len(b)):min(from+apfstest.BlockSize, len(b))])
	}
	return b
}

// compare reads each written file, whole and in parts.
func compare(t *testing.T, fsys fs.FS, written []apfstest.File) {
	t.Helper()
	for _, f := range written {
		if f.Target != "" || f.Same != "" || f.Size > 1<<30 || f.Flags != 0 || f.Mode&0o170000 == apfstest.FIFO {
			continue
		}
		want := content(f)
		got, err := fs.ReadFile(fsys, f.Path)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, want %d: %v", f.Path, len(got), len(want), err)
			continue
		}
		if len(want) == 0 {
			continue
		}
		file, err := fsys.Open(f.Path)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(5, 6))
		for range 20 {
			off := r.IntN(len(want))
			n := min(1+r.IntN(70_000), len(want)-off)
			part := make([]byte, n)
			if m, err := file.(io.ReaderAt).ReadAt(part, int64(off)); m != n || err != nil ||
				!bytes.Equal(part, want[off:off+n]) {
				t.Errorf("%s: %d bytes at %d: %d, %v", f.Path, n, off, m, err)
			}
		}
		file.Close()
	}
}

// TestShapes reads the same tree from volumes of every shape: sorted by hash or by name, sealed,
// with nodes of few records, and with wrong hashes.
func TestShapes(t *testing.T) {
	shapes := map[string]apfstest.Volume{
		"insensitive": {},
		"case-only":   {CaseOnly: true},
		"sensitive":   {Sensitive: true},
		"deep":        {NodeRecords: 3},
		"sealed":      {Sealed: true},
		"sealed-deep": {Sealed: true, NodeRecords: 4},
	}
	for name, v := range shapes {
		t.Run(name, func(t *testing.T) {
			v.Name, v.Files = "Some Volume", some()
			fsys := files(t, v)
			compare(t, fsys, v.Files)
			part, err := fs.Sub(fsys, "b/to-folder")
			if err != nil {
				t.Fatal(err)
			}
			if err := fstest.TestFS(part, "c.txt"); err != nil {
				t.Error(err)
			}
			checkSome(t, fsys)
		})
	}
}

// checkSome checks the special files in the tree of some.
func checkSome(t *testing.T, fsys *apfs.FS) {
	list, err := fsys.ReadDir(".")
	if err != nil || len(list) != 8 {
		t.Errorf("%d entries, %v", len(list), err)
	}
	for name, want := range map[string]string{"b/link": "../a/b/c.txt", "bad/loop": "loop"} {
		if got, err := fsys.ReadLink(name); got != want || err != nil {
			t.Errorf("%s leads to %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"b/link", "b/to-folder/c.txt", "b/second"} {
		if got, err := fs.ReadFile(fsys, name); string(got) != "hello" || err != nil {
			t.Errorf("%s has %q, %v", name, got, err)
		}
	}
	first, err1 := fsys.Stat("a/b/c.txt")
	second, err2 := fsys.Stat("b/second")
	if err1 != nil || err2 != nil || first.Sys().(*apfs.Stat).ID() != second.Sys().(*apfs.Stat).ID() ||
		first.Sys().(*apfs.Stat).Links != 2 {
		t.Errorf("hard links are not the same: %v, %v", err1, err2)
	}
	for _, name := range []string{"bad/nowhere", "nothing", "a/b/c.txt/d", "a/Z", "b/link/x", "ä"} {
		if _, err := fsys.Stat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := fsys.Stat("bad/loop"); err == nil || !strings.Contains(err.Error(), "more than 40 symbolic links") {
		t.Errorf("a loop of links: %v", err)
	}
	if st, err := fsys.Stat("b/away"); err != nil || st.Size() != 0 {
		t.Errorf("a link above the root: %v", err)
	}
	if st, err := fsys.Lstat("b/link"); err != nil || st.Mode().Type() != fs.ModeSymlink {
		t.Errorf("a link: %v, %v", st, err)
	}
	if st, err := fsys.Stat("setuid"); err != nil || st.Mode() != fs.ModeSetuid|0o755 {
		t.Errorf("%v, %v", st, err)
	}
	if st, err := fsys.Stat("cloud"); err != nil || !st.Sys().(*apfs.Stat).Dataless() || st.Size() != 1234 {
		t.Errorf("a file with a cloud service: %v, %v", st, err)
	}
	for _, name := range []string{"cloud", "pipe"} {
		if _, err := fsys.Open(name); err == nil {
			t.Errorf("%s can be opened", name)
		}
	}
	keys, err := fsys.Xattrs("attributes")
	if err != nil || !slices.Equal(keys, []string{"long", "none", "short"}) {
		t.Errorf("%q, %v", keys, err)
	}
	for key, want := range map[string][]byte{"short": []byte("value"), "long": noise(4, 9000), "none": {}} {
		if got, err := fsys.Xattr("attributes", key); !bytes.Equal(got, want) || err != nil {
			t.Errorf("%s: %d bytes, %v", key, len(got), err)
		}
	}
	if _, err := fsys.Xattr("attributes", "shor"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	checkFolder(t, fsys)
	hole, err := fsys.Open("a/hole")
	if err != nil {
		t.Fatal(err)
	}
	b := []byte{1, 2, 3, 4}
	if n, err := hole.(io.ReaderAt).ReadAt(b, 1<<33-3); n != 3 || !errors.Is(err, io.EOF) || b[0]|b[1]|b[2] != 0 {
		t.Errorf("the end of a hole: %d, %v, %v", n, err, b)
	}
}

// checkFolder uses entries and opened directories as a walk does.
func checkFolder(t *testing.T, fsys *apfs.FS) {
	list, err := fsys.ReadDir("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		st, err := e.Info()
		if err != nil || st.Name() != e.Name() || st.Mode().Type() != e.Type() {
			t.Errorf("%s: %v, %v", e.Name(), st, err)
		}
		if e.IsDir() {
			within, err := e.(interface{ ReadDir() ([]fs.DirEntry, error) }).ReadDir()
			if err != nil || len(within) != 1 {
				t.Errorf("%s: %v, %v", e.Name(), within, err)
			}
			continue
		}
		f, err := e.(interface{ Open() (fs.File, error) }).Open()
		if err != nil {
			t.Fatal(err)
		}
		if st2, err := f.Stat(); err != nil || st2.Size() != st.Size() {
			t.Errorf("%s: %v, %v", e.Name(), st2, err)
		}
		f.Close()
	}
}

// TestNames finds names in another spelling, on volumes that allow for it.
func TestNames(t *testing.T) {
	names := []string{"Ångström", "straße", "İstanbul", "ΑΒΓς", "日本語", "e\u0301te\u0301", "K\u212a", "Plain.TXT"}
	other := []string{"ångström", "STRASSE", "i\u0307stanbul", "αβγσ", "日本語", "ÉTÉ", "kk", "pLAIN.txt"}
	decomposed := []string{"A\u030angstro\u0308m", "straße", "I\u0307stanbul", "ΑΒΓς", "日本語", "été", "KK", "Plain.TXT"}
	var list []apfstest.File
	for _, n := range names {
		list = append(list, apfstest.File{Path: n, Data: []byte(n)})
	}
	for _, v := range []apfstest.Volume{{}, {WrongHashes: true}, {CaseOnly: true}, {Sensitive: true}, {Sealed: true}} {
		v.Files = list
		fsys := files(t, v)
		for i, n := range names {
			found := func(as string) bool {
				b, err := fs.ReadFile(fsys, as)
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
				return string(b) == n
			}
			ascii := strings.IndexFunc(other[i], func(r rune) bool { return r > 127 }) < 0
			if v.WrongHashes && ascii {
				continue // the hash of ASCII is certain
			}
			insensitive := !v.Sensitive && !v.CaseOnly
			if !found(n) || found(other[i]) != (insensitive || n == other[i]) ||
				found(decomposed[i]) != (!v.Sensitive || n == decomposed[i]) {
				t.Errorf("%s: %q: %v, %q: %v, %q: %v", v.Name, n, found(n), other[i], found(other[i]), decomposed[i],
					found(decomposed[i]))
			}
		}
	}
}

// TestCompression reads every kind of compression, of several sizes, compressed and not.
func TestCompression(t *testing.T) {
	var list []apfstest.File
	for kind := uint32(1); kind <= 14; kind++ {
		if kind == 2 || kind == 5 || kind == 6 {
			continue
		}
		for _, size := range []int{0, 1, 500, 3000, 65536, 65537, 200_000} {
			if kind%2 == 1 && size > 70_000 {
				continue
			}
			for stored, data := range map[bool][]byte{false: text(size), true: noise(uint64(size), size)} {
				list = append(list, apfstest.File{Path: fmt.Sprintf("kind%d/%d-%v", kind, size,
					stored), Data: data, Compression: kind, Stored: stored})
			}
		}
	}
	for _, v := range []apfstest.Volume{{Files: list}, {Files: list, Sealed: true}} {
		fsys := files(t, v)
		compare(t, fsys, list)
		for _, f := range list {
			if st, err := fsys.Stat(f.Path); err != nil || st.Size() != int64(len(f.Data)) ||
				!st.Sys().(*apfs.Stat).Compressed() {
				t.Errorf("%s: %v, %v", f.Path, st, err)
			}
		}
	}
	odd := []apfstest.File{{Path: "dedup", Compression: 5}, {Path: "unknown", Compression: 77}}
	fsys := files(t, apfstest.Volume{Files: odd})
	for _, f := range odd {
		if _, err := fsys.Open(f.Path); !errors.Is(err, apfs.ErrUnsupported) {
			t.Errorf("%s: %v", f.Path, err)
		}
	}
}

// TestTogether reads a volume from several goroutines.
func TestTogether(t *testing.T) {
	list := some()[:5]
	list = append(list, apfstest.File{Path: "packed", Data: text(200_000), Compression: 12})
	fsys := files(t, apfstest.Volume{Files: list, NodeRecords: 4})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { compare(t, fsys, list) })
	}
	wg.Wait()
}

// TestManyExtents reads a file with more extents than are in memory at a time, from its beginning
// and from later offsets.
func TestManyExtents(t *testing.T) {
	want := noise(5, 300*apfstest.BlockSize+17) // in blocks that are not contiguous
	f := files(t, apfstest.Volume{Files: []apfstest.File{{Path: "name", Data: want, Scattered: true}}})
	if got, err := fs.ReadFile(f, "name"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes are not those that were written: %v", len(got), err)
	}
	for _, first := range []int{0, 100, 127, 128, 129, 255, 256, 257, 299} {
		file, err := f.Open("name")
		if err != nil {
			t.Fatal(err)
		}
		at, got := first*apfstest.BlockSize, make([]byte, 17)
		if _, err := file.(io.ReaderAt).ReadAt(got, int64(at)); err != nil || !bytes.Equal(got, want[at:at+17]) {
			t.Errorf("block %d: %x, want %x: %v", first, got, want[at:at+17], err)
		}
		rest := make([]byte, len(want)-at)
		if _, err := file.(io.ReaderAt).ReadAt(rest, int64(at)); err != nil || !bytes.Equal(rest, want[at:]) {
			t.Errorf("from block %d to the end: %v", first, err)
		}
	}
}
