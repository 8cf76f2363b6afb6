package hfsplus

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// carried are the stored volumes that a Linux kernel filled, with their labels and what their tree has.
var carried = map[string]struct {
	label   string
	entries int
	sums    int // lines in the file with sums
}{"plus": {"Linux", 345, 339}, "exact": {"LinuxX", 347, 341}}

// TestLinux reads every file of volumes that a Linux kernel filled. They have the sums in a file, as it read them.
func TestLinux(t *testing.T) {
	for name, c := range carried {
		f := open(t, treetest.Unpacked(t, "testdata/"+name+".img.zst"))
		if f.Label() != c.label || len(f.Notes()) > 0 {
			t.Errorf("%s: label %q, notes %q", name, f.Label(), f.Notes())
		}
		if w := treetest.Walk(f); len(w.Errs) > 0 || w.Entries != c.entries {
			t.Errorf("%s: %d entries, %q", name, w.Entries, w.Errs)
		}
		list, err := fs.ReadFile(f, "sums")
		if err != nil {
			t.Fatal(err)
		}
		sums := 0
		for line := range strings.Lines(string(list)) {
			want, path, _ := strings.Cut(strings.TrimSpace(line), "  ./")
			b, err := fs.ReadFile(f, path)
			if got := fmt.Sprintf("%x", sha256.Sum256(b)); err != nil || got != want {
				t.Errorf("%s: %s: %s, %v, want %s", name, path, got, err, want)
			}
			sums++
		}
		if sums != c.sums {
			t.Errorf("%s: %d sums", name, sums)
		}
		checkLinux(t, f)
	}
}

// checkLinux checks what a volume has in addition to the content of files.
func checkLinux(t *testing.T, f *FS) {
	t.Helper()
	for name, mode := range map[string]fs.FileMode{
		"fifo": fs.ModeNamedPipe | 0o600, "hello": 0o640, "directory": fs.ModeDir | 0o750,
		"setuid": fs.ModeSetuid | 0o755, "cafe\u0301/a:b": 0o644,
	} {
		if st, err := f.Stat(name); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v, want %v", name, st, err, mode)
		} else if !st.IsDir() && st.ModTime().Unix() != 1234567890 {
			t.Errorf("%s: of %v", name, st.ModTime())
		}
	}
	if target, err := f.ReadLink("directory/link"); err != nil || target != "../hello" {
		t.Errorf("%q, %v", target, err)
	}
	var first *inode
	for _, name := range []string{"hard", "directory/hard", "directory/hard2"} {
		st, err := f.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		n := st.Sys().(*inode)
		if first == nil {
			first = n
		}
		if n.Links() != 3 || n.ID() != first.ID() {
			t.Errorf("%s is file %d with %d names", name, n.ID(), n.Links())
		}
	}
	st, err := f.Stat("pieces")
	if err != nil {
		t.Fatal(err)
	}
	if n := st.Sys().(*inode); n.data.firstBlocks()<<f.header.blockLog >= n.size {
		t.Errorf("the file of %d bytes has no further extents than %v", n.size, n.data.extents)
	}
}

// FuzzLinux changes some bytes of a volume that Linux filled, and reads all of it.
func FuzzLinux(f *testing.F) {
	base := treetest.Unpacked(f, "testdata/exact.img.zst")
	f.Add([]byte{})
	f.Add([]byte{0, 4, 40, 1})
	f.Fuzz(func(t *testing.T, patches []byte) {
		b := bytes.Clone(base)
		for ; len(patches) >= 4; patches = patches[4:] {
			b[(int(patches[0])<<16|int(patches[1])<<8|int(patches[2]))%len(b)] = patches[3]
		}
		_, _ = look(t, b)
	})
}
