package ext4_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/ext4"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// carried reads one of the stored small file systems.
func carried(t testing.TB, name string) []byte {
	t.Helper()
	return treetest.Unpacked(t, "testdata/"+name+".img.zst")
}

var images = []string{"extents", "mapped", "checked"}

// tour is a walk over a file system.
type tour struct {
	*treetest.Tour
	fsys *ext4.FS
}

// look opens an image and walks all of it.
func look(t testing.TB, image []byte) (*tour, error) {
	t.Helper()
	f, err := ext4.Open(bytes.NewReader(image), int64(len(image)))
	if err != nil {
		return nil, err
	}
	w := &tour{treetest.Walk(f), f}
	if w.Entries > 1<<17 {
		t.Errorf("an image of %d bytes has %d entries", len(image), w.Entries)
	}
	return w, nil
}

func TestCarriedImages(t *testing.T) {
	// mke2fs cuts holes from the end of the first
	sizes := map[string]int64{"extents": 180_623, "mapped": 230_095, "checked": 230_095}
	for _, name := range images {
		w, err := look(t, carried(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Errs) > 0 || w.Entries != 42 || w.Bytes != sizes[name] {
			t.Errorf("%s: %d entries, %d bytes, %q", name, w.Entries, w.Bytes, w.Errs)
		}
		for path, want := range map[string]string{
			"hello": "hello\n", "short": "hello\n", "folder/hard": "hello\n", "many/file-with-a-long-name-7": "7\n",
		} {
			if b, err := fs.ReadFile(w.fsys, path); err != nil || string(b) != want {
				t.Errorf("%s: %s holds %q, %v", name, path, b, err)
			}
		}
	}
}

// record finds the entry of a name in a directory.
func record(t testing.TB, image []byte, name string) []byte {
	t.Helper()
	length := byte(len(strings.TrimRight(name, "\x00")))
	for at := 0; ; at++ {
		next := bytes.Index(image[at:], []byte(name))
		if next < 0 {
			t.Fatalf("there is no %q", name)
		}
		if at += next; at >= 8 && image[at-2] == length {
			return image[at-8:]
		}
	}
}

// inodeAt returns the bytes of an inode of an image with blocks of 1 KiB and one group.
func inodeAt(image []byte, number uint32) []byte {
	le := binary.LittleEndian
	size := uint32(le.Uint16(image[1024+88:]))
	table := le.Uint32(image[2048+8:]) * 1024
	return image[table+(number-1)*size:]
}

// number returns the inode of a name.
func number(t testing.TB, image []byte, name string) uint32 {
	t.Helper()
	return binary.LittleEndian.Uint32(record(t, image, name))
}

// A contradiction is reported, and everything else is read.
func TestContradictions(t *testing.T) {
	le := binary.LittleEndian
	for name, c := range map[string]struct {
		image string
		lie   func(t *testing.T, b []byte)
		want  string // in an error of the walk
		least int    // entries that are still read
	}{
		"folder in itself": {"mapped", func(t *testing.T, b []byte) {
			le.PutUint32(record(t, b, "deeper"), number(t, b, "below"))
		}, "is in directory", 40},
		"folder above": {"mapped", func(t *testing.T, b []byte) {
			le.PutUint32(record(t, b, "deeper"), number(t, b, "folder"))
		}, "is in directory", 40},
		"root in itself": {"mapped", func(t *testing.T, b []byte) {
			le.PutUint32(record(t, b, "many"), 2)
		}, "leads to the root", 10},
		"folder twice": {"mapped", func(t *testing.T, b []byte) {
			r := record(t, b, "hello")
			le.PutUint32(r, number(t, b, "folder"))
			r[7] = 2
		}, "twice", 40},
		"no such inode": {"mapped", func(t *testing.T, b []byte) {
			le.PutUint32(record(t, b, "hello"), 1<<31)
		}, "inode 2147483648 of 64", 42},
		"other kind": {"mapped", func(t *testing.T, b []byte) {
			record(t, b, "hello")[7] = 2
		}, "not of the kind", 42},
		"short record": {"mapped", func(t *testing.T, b []byte) {
			le.PutUint16(record(t, b, "file-with-a-long-name-1\x00")[4:], 4)
		}, "an entry of 4 bytes", 12},
		"long record": {"mapped", func(t *testing.T, b []byte) {
			le.PutUint16(record(t, b, "file-with-a-long-name-1\x00")[4:], 60000)
		}, "an entry of 60000 bytes", 12},
		"slash in name": {"mapped", func(t *testing.T, b []byte) {
			record(t, b, "hello")[9] = '/'
		}, "slash", 41},
		"huge file": {"mapped", func(t *testing.T, b []byte) {
			le.PutUint32(inodeAt(b, number(t, b, "large"))[108:], 1<<28)
		}, "says to have", 0},
		"places behind the end": {"mapped", func(t *testing.T, b []byte) {
			le.PutUint32(inodeAt(b, number(t, b, "large"))[40:], 1<<31)
		}, "are at 2147483648 of 192", 42},
		"map behind the end": {"mapped", func(t *testing.T, b []byte) {
			le.PutUint32(inodeAt(b, number(t, b, "large"))[40+48:], 1<<31)
		}, "block 2147483648 of 192", 42},
		"extent behind the end": {"extents", func(t *testing.T, b []byte) {
			le.PutUint16(inodeAt(b, number(t, b, "large"))[40+12+6:], 1<<15)
		}, "of 192", 42},
		"extents without sense": {"extents", func(t *testing.T, b []byte) {
			le.PutUint16(inodeAt(b, number(t, b, "large"))[42:], 5)
		}, "without sense", 42},
		"extents too deep": {"extents", func(t *testing.T, b []byte) {
			le.PutUint16(inodeAt(b, number(t, b, "large"))[46:], 9)
		}, "is 9 deep", 42},
		"extents in a circle": {"extents", func(t *testing.T, b []byte) {
			n := inodeAt(b, number(t, b, "large"))
			le.PutUint16(n[46:], 3) // a depth of three, and the node below has the same
			block := le.Uint32(n[40+12+8:])
			le.PutUint32(n[40+12+4:], block)
			le.PutUint32(n[40+12+8:], 0)
			copy(b[block*1024:], n[40:100])
		}, "3 deep where it is 2", 42},
		"extents 65535 deep": {"extents", func(t *testing.T, b []byte) {
			le.PutUint16(inodeAt(b, number(t, b, "large"))[46:], 65535)
		}, "is 65535 deep", 42},
		"extents over all": {"extents", func(t *testing.T, b []byte) {
			le.PutUint16(inodeAt(b, number(t, b, "large"))[42:], 65535)
		}, "without sense", 42},
		"record of nothing": {"mapped", func(t *testing.T, b []byte) {
			le.PutUint16(record(t, b, "file-with-a-long-name-1\x00")[4:], 0)
		}, "an entry of 0 bytes", 12},
		"target without end": {"mapped", func(t *testing.T, b []byte) {
			le.PutUint32(inodeAt(b, number(t, b, "short"))[4:], 1<<31)
		}, "2147483648", 42},
		"folder without end": {"extents", func(t *testing.T, b []byte) {
			b[1024+96+1] |= 0x40 // directories may be large
			le.PutUint32(inodeAt(b, number(t, b, "many"))[108:], 1<<9)
		}, "", 42},
		"folder of holes": {"mapped", func(t *testing.T, b []byte) {
			b[1024+96+1] |= 0x40
			n := inodeAt(b, number(t, b, "many"))
			le.PutUint32(n[108:], 1<<9)
			clear(n[44:100])
		}, "more than a file without extents", 12},
		"folders share a block": {"mapped", func(t *testing.T, b []byte) {
			many, below := inodeAt(b, number(t, b, "many")), inodeAt(b, number(t, b, "folder"))
			copy(below[44:48], many[40:44])
			le.PutUint32(below[4:], 2048)
		}, "that of another directory", 12},
		"inode changed": {"checked", func(t *testing.T, b []byte) {
			inodeAt(b, number(t, b, "large"))[4]++
		}, "checksum", 42},
		"folder changed": {"checked", func(t *testing.T, b []byte) {
			record(t, b, "file-with-a-long-name-1\x00")[9]++
		}, "checksum", 12},
		"target with a zero": {"mapped", func(t *testing.T, b []byte) {
			inodeAt(b, number(t, b, "short"))[42] = 0
		}, "zero in it", 42},
		"encrypted file": {"mapped", func(t *testing.T, b []byte) {
			inodeAt(b, number(t, b, "large"))[33] |= 8
		}, "encrypted", 42},
		"encrypted folder": {"mapped", func(t *testing.T, b []byte) {
			inodeAt(b, number(t, b, "many"))[33] |= 8
		}, "encrypted", 12},
	} {
		t.Run(name, func(t *testing.T) {
			b := carried(t, c.image)
			c.lie(t, b)
			w, err := look(t, b)
			if err != nil {
				t.Fatal(err)
			}
			if c.least > 0 && (!strings.Contains(strings.Join(w.Errs, "\n"), c.want) || w.Entries < c.least) {
				t.Errorf("%d entries, %q", w.Entries, w.Errs)
			}
		})
	}
}

// An invalid superblock is refused with a descriptive error.
func TestLyingSuperblocks(t *testing.T) {
	le := binary.LittleEndian
	for name, c := range map[string]struct {
		lie  func(b []byte)
		want string
	}{
		"magic":        {func(b []byte) { b[56]++ }, "not an ext2"},
		"block size":   {func(b []byte) { le.PutUint32(b[24:], 60) }, "2^70 bytes"},
		"inodes":       {func(b []byte) { le.PutUint32(b, 1<<32-1) }, "inodes in 1 groups"},
		"no inodes":    {func(b []byte) { le.PutUint32(b[40:], 0) }, "groups of 0"},
		"no blocks":    {func(b []byte) { le.PutUint32(b[4:], 0) }, "has 0 blocks"},
		"inode size":   {func(b []byte) { le.PutUint16(b[88:], 100) }, "inodes have 100 bytes"},
		"2^31 bytes":   {func(b []byte) { le.PutUint32(b[24:], 21) }, "2^31 bytes"},
		"empty inodes": {func(b []byte) { le.PutUint16(b[88:], 0) }, "inodes have 0 bytes"},
		"no group":     {func(b []byte) { le.PutUint32(b[32:], 0) }, "blocks in groups of 0"},
		"empty group":  {func(b []byte) { b[96] |= 0x80; le.PutUint16(b[254:], 0) }, "descriptors of groups have 0"},
		"inodes away": {func(b []byte) {
			le.PutUint32(b[1024+8:], 1<<31)
		}, "inodes of group 0 are at block 2147483648"},
		"huge inodes":  {func(b []byte) { le.PutUint16(b[88:], 2048) }, "inodes have 2048 bytes"},
		"journal":      {func(b []byte) { b[96] |= 8 }, "journal of another"},
		"new features": {func(b []byte) { b[99] |= 0x80 }, "unsupported ext4 features (0x80000000)"},
		"descriptors": {func(b []byte) {
			b[96] |= 0x80
			le.PutUint16(b[254:], 4096)
		}, "descriptors of groups have 4096"},
		"many blocks": {func(b []byte) {
			b[96] |= 0x80
			le.PutUint16(b[254:], 64)
			le.PutUint32(b[336:], 1<<31)
		}, "inodes in 1125899906842625 groups"},
	} {
		b := carried(t, "mapped")
		c.lie(b[1024:])
		if _, err := look(t, b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := carried(t, "checked")
	b[1024+120]++
	if _, err := look(t, b); !errors.Is(err, ext4.ErrDamaged) {
		t.Errorf("%v", err)
	}
	for _, n := range []int{0, 1000, 1100, 2047} {
		if _, err := look(t, b[:n]); !errors.Is(err, ext4.ErrNotExt) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if w, err := look(t, carried(t, "mapped")[:64<<10]); err != nil || len(w.fsys.Notes()) != 1 || len(w.Errs) == 0 {
		t.Errorf("a file system that was cut: %+v, %v", w, err)
	}
}

// FuzzWalk changes some bytes of a file system and walks it. A patch is three bytes of offset and
// two of content.
func FuzzWalk(f *testing.F) {
	var all [][]byte
	for _, name := range images {
		all = append(all, carried(f, name))
	}
	for k := range images {
		f.Add(byte(k), []byte{})
		f.Add(byte(k), []byte{0, 4, 56, 0, 0, 0, 4, 24, 6, 0})
		f.Add(byte(k), []byte{0, 0x48, 40, 255, 255, 0, 0x4c, 0, 1, 1})
	}
	f.Fuzz(func(t *testing.T, which byte, patches []byte) {
		b := bytes.Clone(all[int(which)%len(all)])
		for ; len(patches) >= 5; patches = patches[5:] {
			at := (int(patches[0])<<16 | int(patches[1])<<8 | int(patches[2])) % (len(b) - 1)
			copy(b[at:], patches[3:5])
		}
		w, err := look(t, b)
		if err == nil && w.Bytes > 64*treetest.MostOfAFile {
			t.Fatalf("%d bytes", w.Bytes)
		}
	})
}

// Many goroutines may use a file system at a time.
func TestManyReaders(t *testing.T) {
	for _, name := range images {
		b := carried(t, name)
		f, err := ext4.Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				w := treetest.Walk(f)
				if _, err := fs.ReadFile(f, "folder/below/deeper/x"); err != nil {
					t.Error(err)
				}
				if w.Entries != 42 || len(w.Errs) > 0 {
					t.Errorf("%d entries, %q", w.Entries, w.Errs)
				}
			})
		}
		all.Wait()
	}
}
