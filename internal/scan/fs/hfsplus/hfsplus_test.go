package hfsplus

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/buildyard/buildyard/internal/scan/fs/hfsplus/hfsplustest"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// memory is a disk in memory that grows.
type memory struct{ b []byte }

func (m *memory) WriteAt(p []byte, at int64) (int, error) {
	if end := int(at) + len(p); end > len(m.b) {
		m.b = append(m.b, make([]byte, end-len(m.b))...)
	}
	return copy(m.b[at:], p), nil
}

// write returns the bytes of a volume.
func write(t testing.TB, v hfsplustest.Volume) []byte {
	t.Helper()
	var m memory
	size, err := hfsplustest.Write(&m, v)
	if err != nil || size != int64(len(m.b)) {
		t.Fatalf("%d of %d bytes, %v", len(m.b), size, err)
	}
	return m.b
}

func open(t testing.TB, b []byte) *FS {
	t.Helper()
	f, err := Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// text returns content that compresses.
func text(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "line %d of a file that is compressed, ", i*i)
	}
	return b.Bytes()[:n]
}

// variety has what a volume may have, in each form.
func variety() []hfsplustest.File {
	files := []hfsplustest.File{
		{Path: "hello", Data: []byte("hello\n")},
		{Path: "empty"},
		{Path: "old", Data: []byte("old\n"), NoMode: true},
		{Path: "directory", Mode: hfsplustest.Directory | 0o700},
		{Path: "directory/below/deeper/x", Data: []byte("x\n")},
		{Path: "short", Target: "hello"},
		{Path: "up", Target: "directory/below/../../hello"},
		{Path: "cafe\u0301", Data: []byte("decomposed")},
		{Path: "\u65e5\u672c\U0001f980", Data: []byte("wide")},
		{Path: "a:b", Data: []byte("colon")},
		{Path: "fifo", Mode: hfsplustest.FIFO | 0o600},
		{Path: "setuid", Mode: hfsplustest.Regular | 0o4755, Data: []byte("#!")},
		{Path: "hard", Data: []byte("hard\n")},
		{Path: "directory/hard", Same: "hard"},
		{Path: "hard link", Target: "/hello"},
		{Path: "directory/hard link", Same: "hard link"},
		{Path: "pieces", Data: text(200_000), Pieces: 40},
		{Path: "eight", Data: text(32 << 10), Pieces: 8},
		{Path: "nine", Data: text(36 << 10), Pieces: 9},
	}
	for i := range 400 {
		files = append(files, hfsplustest.File{
			Path: fmt.Sprintf("many/file-with-a-long-name-%d", i), Data: []byte(fmt.Sprintln(i)),
		})
	}
	for kind := uint32(1); kind <= 14; kind++ {
		if kind == 2 || kind == 5 || kind == 6 {
			continue
		}
		size := 1000
		if kind%2 == 0 {
			size = 200_000
		}
		for _, stored := range []bool{false, true} {
			files = append(files, hfsplustest.File{
				Path: fmt.Sprintf("compressed/%d %v", kind, stored), Data: text(size), Compression: kind,
				Stored: stored, Pieces: int(kind),
			})
		}
	}
	return files
}

// compare reads all files of a volume, and compares them with their description.
func compare(t *testing.T, f *FS, files []hfsplustest.File) {
	t.Helper()
	described := map[string]hfsplustest.File{}
	for _, d := range files {
		described[d.Path] = d
	}
	for _, d := range files {
		name, want := d.Path, d
		if d.Same != "" {
			want = described[d.Same]
		}
		switch {
		case want.Target != "":
			if got, err := f.ReadLink(name); err != nil || got != want.Target {
				t.Errorf("%s leads to %q, %v", name, got, err)
			}
		case want.Mode&inodeKind == hfsplustest.Directory:
			if st, err := f.Stat(name); err != nil || !st.IsDir() || st.Mode().Perm() != fs.FileMode(want.Mode&0o777) {
				t.Errorf("%s is %v, %v", name, st, err)
			}
		case want.Mode&inodeKind == hfsplustest.FIFO:
			if st, err := f.Stat(name); err != nil || st.Mode() != fs.ModeNamedPipe|0o600 {
				t.Errorf("%s is %v, %v", name, st, err)
			}
		default:
			b, err := fs.ReadFile(f, name)
			if err != nil || !bytes.Equal(b, want.Data) {
				t.Errorf("%s holds %d bytes, %v, want %d", name, len(b), err, len(want.Data))
			}
			if st, err := f.Stat(name); err != nil || st.Size() != int64(len(want.Data)) ||
				st.ModTime().Unix() != 1_500_000_000 {
				t.Errorf("%s: %v, %v", name, st, err)
			}
		}
	}
}

const inodeKind = 0o170000

// In every form of a volume, the files are those that were written.
func TestForms(t *testing.T) {
	for name, v := range map[string]hfsplustest.Volume{
		"usual":            {},
		"HFSX":             {IsExact: true},
		"small blocks":     {BlockSize: 512, NodeSize: 4096},
		"1 KiB":            {BlockSize: 1024},
		"large blocks":     {BlockSize: 64 << 10},
		"nodes of 1 KiB":   {NodeSize: 1024},
		"nodes of 32 KiB":  {NodeSize: 32 << 10},
		"catalog in 3":     {CatalogPieces: 3},
		"catalog in 20":    {CatalogPieces: 20, NodeSize: 4096},
		"journal":          {Journal: hfsplustest.EmptyJournal},
		"PowerPC journal":  {Journal: hfsplustest.BigEndianJournal},
		"new journal":      {Journal: hfsplustest.NewJournal},
		"wrapper":          {InWrapper: true},
		"HFSX in 512 each": {IsExact: true, BlockSize: 512, CatalogPieces: 30},
	} {
		t.Run(name, func(t *testing.T) {
			v.Name, v.Files = "Volume", variety()
			f := open(t, write(t, v))
			if len(f.Notes()) > 0 || f.Label() != "Volume" {
				t.Errorf("label %q, notes %q", f.Label(), f.Notes())
			}
			compare(t, f, v.Files)
			w := treetest.Walk(f)
			// The directories that are not described: below, deeper, many, compressed.
			if len(w.Errs) > 0 || w.Entries != len(v.Files)+4 {
				t.Errorf("%d entries of %d, %q", w.Entries, len(v.Files)+4, w.Errs)
			}
		})
	}
}

func TestConformance(t *testing.T) {
	f := open(t, write(t, hfsplustest.Volume{Name: "Volume", Files: variety()}))
	for dir, file := range map[string]string{"directory": "below/deeper/x", "many": "file-with-a-long-name-7"} {
		part, err := fs.Sub(f, dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := fstest.TestFS(part, file); err != nil {
			t.Error(err)
		}
	}
	for name, want := range map[string]error{
		"nothing": fs.ErrNotExist, "HELLO": fs.ErrNotExist, "hello/x": syscall.ENOTDIR, "/hello": fs.ErrInvalid,
		"": fs.ErrInvalid, "../x": fs.ErrInvalid, "caf\u00e9": fs.ErrNotExist,
	} {
		if _, err := f.Open(name); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", name, err, want)
		}
	}
	if _, err := f.Open("fifo"); err == nil {
		t.Error("a FIFO was opened")
	}
}

// Names of one file have one number, and their count. The directories that have such files are not listed.
func TestHardLinks(t *testing.T) {
	f := open(t, write(t, hfsplustest.Volume{Name: "Volume", Files: variety()}))
	var id uint64
	for _, name := range []string{"hard", "directory/hard"} {
		st, err := f.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		n := st.Sys().(*inode)
		if n.Links() != 2 || id != 0 && n.ID() != id || st.Mode() != 0o644 || st.Name() != filepath.Base(name) {
			t.Errorf("%s: number %d of %d, %d names, %v", name, n.ID(), id, n.Links(), st.Mode())
		}
		id = n.ID()
	}
	list, err := f.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if strings.Contains(e.Name(), "Private") {
			t.Errorf("the root has %q", e.Name())
		}
	}
	if f.linkedFiles == 0 || f.linkedDirs != 0 {
		t.Errorf("linked files in %d, directories in %d", f.linkedFiles, f.linkedDirs)
	}
}

// A directory with several names is read by its first one. The others are not directories.
func TestLinkedDirectory(t *testing.T) {
	f := open(t, write(t, hfsplustest.Volume{Name: "Volume", Files: []hfsplustest.File{
		{Path: "first", Mode: hfsplustest.Directory | 0o755},
		{Path: "first/file", Data: []byte("file")},
		{Path: "first/again", Same: "first"}, // it would be in itself
		{Path: "other", Same: "first"},
		{Path: "plain/other", Same: "first"},
	}}))
	var got []string
	err := fs.WalkDir(f, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		got = append(got, fmt.Sprint(p, " ", d.Type()))
		return nil
	})
	want := []string{
		". d---------", "first d---------", "first/again ?---------", "first/file ----------", "other ?---------",
		"plain d---------", "plain/other ?---------",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	st, err := f.Stat("other")
	if err != nil || st.Mode().Type() != fs.ModeIrregular || st.Size() != 0 {
		t.Errorf("%v, %v", st, err)
	}
	if _, err := f.Open("other"); err == nil {
		t.Error("a further name of a directory was opened")
	}
}

// Notes tell what may be missing.
func TestNotes(t *testing.T) {
	for name, c := range map[string]struct {
		v      hfsplustest.Volume
		change func(b []byte) []byte
		want   string
	}{
		"mounted": {hfsplustest.Volume{Mounted: true}, nil, "what was not written yet"},
		"mounted journal": {
			hfsplustest.Volume{Mounted: true, Journal: hfsplustest.EmptyJournal}, nil, "in its journal",
		},
		"full journal": {hfsplustest.Volume{Journal: hfsplustest.FullJournal}, nil, "in its journal"},
		"no journal": {hfsplustest.Volume{Journal: hfsplustest.EmptyJournal}, func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte("xLNJ"), []byte("xxxx"))
		}, "in its journal"},
		"journal elsewhere": {hfsplustest.Volume{Journal: hfsplustest.EmptyJournal}, func(b []byte) []byte {
			be.PutUint32(b[be.Uint32(b[headerOffset+12:])*4096:], 2)
			return b
		}, "in its journal"},
		"unsound": {hfsplustest.Volume{}, func(b []byte) []byte { b[headerOffset+6] |= 8; return b }, "inconsistent"},
		"cut":     {hfsplustest.Volume{}, func(b []byte) []byte { return b[:len(b)-8192] }, "bytes and its disk only"},
		"header": {hfsplustest.Volume{}, func(b []byte) []byte {
			clear(b[headerOffset : headerOffset+512])
			return b
		}, "the copy of its header is used: not an HFS+ file system"},
		"size of blocks": {hfsplustest.Volume{}, func(b []byte) []byte {
			b[headerOffset+43]++
			return b
		}, "blocks of 4097"},
		"catalog": {hfsplustest.Volume{}, func(b []byte) []byte {
			clear(b[headerOffset+catalogForkAt:][:forkBytes])
			return b
		}, "the tree of the catalog has 0 bytes"},
		"attributes": {hfsplustest.Volume{}, func(b []byte) []byte {
			be.PutUint32(b[headerOffset+attributesFork+16:], 0) // another block
			return b
		}, "its compressed files cannot be read"},
	} {
		c.v.Name, c.v.Files = "Volume", []hfsplustest.File{
			{Path: "hello", Data: []byte("hello\n")}, {Path: "packed", Data: []byte("packed"), Compression: 3},
		}
		b := write(t, c.v)
		if c.change != nil {
			b = c.change(b)
		}
		f := open(t, b)
		if notes := f.Notes(); len(notes) != 1 || !strings.Contains(notes[0], c.want) {
			t.Errorf("%s: %q, want %q", name, notes, c.want)
		}
		if got, err := fs.ReadFile(f, "hello"); err != nil || string(got) != "hello\n" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// 7-Zip reads the same volumes: every file has the same bytes, also compressed ones.
func TestSevenZip(t *testing.T) {
	seven, err := exec.LookPath("7z")
	if err != nil {
		t.Skip("7z of p7zip-full is not here")
	}
	for name, v := range map[string]hfsplustest.Volume{
		"usual": {}, "HFSX": {IsExact: true, BlockSize: 512, CatalogPieces: 7}, "nodes of 1 KiB": {NodeSize: 1024},
	} {
		t.Run(name, func(t *testing.T) {
			v.Name, v.Files = "Volume", variety()
			dir := t.TempDir()
			b := write(t, v)
			if err := os.WriteFile(filepath.Join(dir, "image"), b, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), seven, "x", "-thfs", "-y", "image")
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) { // some files it does not write
				t.Fatal(err)
			}
			t.Logf("%s", out)
			sevenZipAgrees(t, open(t, b), filepath.Join(dir, "Volume"))
		})
	}
}

// notSevenZip are regular files that 7-Zip does not write, or not under this name. Of compressed ones it knows zlib,
// LZVN and what is stored in the attribute.
var notSevenZip = regexp.MustCompile(`^a:b$|^compressed/1[0-4]? |^(directory/)?hard$`)

// sevenZipAgrees compares the regular files of a file system with those that 7-Zip wrote to a directory.
func sevenZipAgrees(t *testing.T, f *FS, dir string) {
	t.Helper()
	same := 0
	err := fs.WalkDir(f, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || notSevenZip.MatchString(p) {
			return err
		}
		theirs, err := os.ReadFile(filepath.Join(dir, p))
		if err != nil {
			return err
		}
		ours, err := fs.ReadFile(f, p)
		if err != nil || !bytes.Equal(ours, theirs) {
			t.Errorf("%s has %d bytes (%v), 7-Zip writes %d", p, len(ours), err, len(theirs))
		}
		same++
		return nil
	})
	if err != nil || same < 420 {
		t.Errorf("%d files, %v", same, err)
	}
}
