package btrfs

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// carried reads one of the stored small file systems.
func carried(t testing.TB, name string) []byte {
	t.Helper()
	return treetest.Unpacked(t, "testdata/"+name+".img.zst")
}

// images are the stored file systems, with what is below the top level of each as the kernel shows it. mixed mounts
// it, and separate has it as rest, of which a subvolume with three names and two files is the root.
var images = map[string]struct {
	entries int
	bytes   int64 // of all files
}{"mixed": {182, 1_516_887}, "separate": {182 - 3, 1_516_887 - 13}}

// tour is a walk over a file system.
type tour struct {
	*treetest.Tour
	fsys *FS
}

// look opens an image and walks all of it.
func look(t testing.TB, image []byte) (*tour, error) {
	t.Helper()
	f, err := Open(bytes.NewReader(image), int64(len(image)))
	if err != nil {
		return nil, err
	}
	w := &tour{treetest.Walk(f), f}
	if rest, err := f.Rest(); err == nil && rest != nil {
		w = &tour{treetest.Walk(rest), rest}
	}
	if w.Entries > 1<<17 {
		t.Errorf("an image of %d bytes has %d entries", len(image), w.Entries)
	}
	return w, nil
}

// checkError checks that an error is there as wanted, and says what it should; "" = there is none.
func checkError(t testing.TB, name string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: error %v, want %q", name, err, want)
	}
}

// numbers is the SHA-256 of the numbers from 1 to 40000 in lines.
const numbers = "4dee400da20bb6b7cfd1721c3383c86bb26571402edfe6631109445b28632130"

func TestCarriedImages(t *testing.T) {
	for name, want := range images {
		w, err := look(t, carried(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Errs) > 0 || w.Entries != want.entries || w.Bytes != want.bytes || len(w.fsys.Notes()) > 0 {
			t.Errorf("%s: %d entries, %d bytes, %q, %q", name, w.Entries, w.Bytes, w.Errs, w.fsys.Notes())
		}
		if w.fsys.Label() != "carried-"+name {
			t.Errorf("%s: label %q", name, w.fsys.Label())
		}
		for path, want := range map[string]string{
			"hello": "hello\n", "short": "hello\n", "long": "hello\n", "folder/below/deeper/x": "x\n",
			"folder/hard": "hello\n", "many/file-with-a-long-name-7": "7\n", "unwritten": strings.Repeat("\x00", 20000),
			"letters": strings.Repeat("l", 20000), "snapshot/file": "sub\n", "lzo/small": strings.Repeat("text ", 200),
			"hole": strings.Repeat("\x00", 80000) + "end" + strings.Repeat("\x00", 19997),
		} {
			if b, err := fs.ReadFile(w.fsys, path); err != nil || string(b) != want {
				t.Errorf("%s: %s holds %.50q, %v", name, path, b, err)
			}
		}
		for _, dir := range []string{"zlib", "lzo", "zstd"} {
			b, err := fs.ReadFile(w.fsys, dir+"/numbers")
			if got := fmt.Sprintf("%x", sha256.Sum256(b)); err != nil || got != numbers {
				t.Errorf("%s: %s/numbers: %s, %v", name, dir, got, err)
			}
			c, err := fs.ReadFile(w.fsys, dir+"/clone")
			copy(b[100_001:], "changed")
			if err != nil || !bytes.Equal(b, c) {
				t.Errorf("%s: %s/clone has other bytes, %v", name, dir, err)
			}
		}
	}
}

// changer finds parts of an image, to change them.
type changer struct {
	t testing.TB
	b []byte
	f *FS
}

func newChanger(t testing.TB, image string) *changer {
	t.Helper()
	b := carried(t, image)
	f, err := Open(bytes.NewReader(bytes.Clone(b)), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return &changer{t, b, f}
}

// super changes the superblock.
func (c *changer) super(change func(b []byte)) {
	part := c.b[superOffsets[0]:][:superSize]
	change(part)
	c.f.seal(part)
}

// seal sets the checksum of a node or superblock.
func (f *FS) seal(b []byte) {
	sum := f.device.superblock.sum.of(b[maxSumSize:])
	copy(b, sum[:])
}

// nodeAt returns the bytes of a copy of a node.
func (c *changer) nodeAt(address uint64, number int) []byte {
	offsets, _, err := c.f.device.chunks.find(address, 1)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.b[offsets[number]:][:c.f.device.superblock.nodeSize]
}

// leaf changes the leaf with the last item at a key or before it, in all copies. It gets the leaf, and the offsets of
// the entry and the data of the item in it.
func (c *changer) leaf(tree treeRoot, k key, change func(b []byte, entry, data int)) {
	cur, err := c.f.device.seekLast(tree, k)
	if err != nil || !cur.is(k.object, k.kind) {
		c.t.Fatalf("no item %v: %v", k, err)
	}
	s := cur.path[len(cur.path)-1]
	entry := nodeHeaderSize + s.index*leafItemSize
	data := nodeHeaderSize + int(le.Uint32(s.node.b[entry+keySize:]))
	_, copies, err := c.f.device.chunks.find(s.node.address, 1)
	if err != nil {
		c.t.Fatal(err)
	}
	for k := range copies {
		b := c.nodeAt(s.node.address, k)
		change(b, entry, data)
		c.f.seal(b)
	}
}

// item changes the data of an item in the tree of the root, of the inode of a path.
func (c *changer) item(path string, kind byte, change func(data []byte)) {
	st, err := c.f.Lstat(path)
	if err != nil {
		c.t.Fatal(err)
	}
	n := st.Sys().(*inode)
	last := uint64(1<<64 - 1)
	if kind == kindExtent {
		last = 0
	}
	c.leaf(n.in.tree, key{n.number, kind, last}, func(b []byte, _, data int) { change(b[data:]) })
}

// What is damaged is named, and the rest is read.
func TestLies(t *testing.T) {
	type lie struct {
		image string
		lie   func(c *changer)
		open  string // error of opening
		walk  string // error of a walk; "" and no error of opening: there is none
	}
	put := func(at int, value uint64, size int) func(b []byte) {
		return func(b []byte) {
			for k := range size {
				b[at+k] = byte(value >> (8 * k))
			}
		}
	}
	super := func(at int, value uint64, size int) func(c *changer) {
		return func(c *changer) { c.super(put(at, value, size)) }
	}
	item := func(path string, kind byte, at int, value uint64, size int) func(c *changer) {
		return func(c *changer) { c.item(path, kind, put(at, value, size)) }
	}
	roots := func(id uint64, kind byte, at int, value uint64, size int) func(c *changer) {
		return func(c *changer) {
			c.leaf(c.f.device.superblock.roots, key{id, kind, 1<<64 - 1}, func(b []byte, _, data int) {
				put(at, value, size)(b[data:])
			})
		}
	}
	entry := func(at int, value uint64, size int) func(c *changer) {
		return func(c *changer) {
			st, err := c.f.Stat("folder/below")
			if err != nil {
				t.Fatal(err)
			}
			n := st.Sys().(*inode)
			c.leaf(n.in.tree, key{n.number, kindDirIndex, 1<<64 - 1}, func(b []byte, _, data int) {
				put(at, value, size)(b[data:])
			})
		}
	}
	chunks := func(at int, value uint64, size int) func(c *changer) {
		return func(c *changer) {
			c.leaf(c.f.device.superblock.chunks, key{chunkObjects, kindChunk, 1<<64 - 1}, func(b []byte, _, data int) {
				put(at, value, size)(b[data:])
			})
		}
	}
	for name, c := range map[string]lie{
		"magic": {"mixed", super(64, 0, 1), "not a Btrfs file system", ""},
		"checksum": {
			"mixed", func(c *changer) { c.b[64<<10+300]++ },
			"superblock at byte 65536 is not what its", "",
		},
		"copy":            {"separate", func(c *changer) { c.b[64<<10+300]++ }, "", ""},
		"moved":           {"mixed", super(48, 4096, 8), "says that it is at byte 4096", ""},
		"kind of sums":    {"mixed", super(196, 4, 2), "checksums of kind 4", ""},
		"zoned":           {"mixed", super(189, 0x10, 1), "unsupported Btrfs feature: zoned", ""},
		"unknown feature": {"mixed", super(192, 1, 1), "unknown features (0x100000000)", ""},
		"a dump":          {"mixed", super(56, 1<<33, 8), "dump of metadata", ""},
		"devices":         {"mixed", super(136, 2, 8), "on 2 devices", ""},
		"sectors":         {"mixed", super(144, 4097, 4), "sectors have 4097 bytes", ""},
		"small nodes":     {"mixed", super(148, 2048, 4), "nodes have 2048 bytes", ""},
		"large nodes":     {"mixed", super(148, 128<<10, 4), "nodes have 131072 bytes", ""},
		"many chunks":     {"mixed", super(160, 2049, 4), "2049 bytes of chunks", ""},
		"cut chunks":      {"mixed", super(160, 100, 4), "a chunk of 3 bytes", ""},
		"no chunks":       {"mixed", super(160, 0, 4), "chunk tree: ", ""},
		"levels":          {"mixed", super(198, 8, 1), "has 8 levels", ""},
		"another level":   {"mixed", super(198, 0, 1), "level 1 where it is 0", ""},
		"old root":        {"mixed", super(72, 5, 8), "instead of 5", ""},
		"far root":        {"mixed", super(80, 1<<60, 8), "in no chunk", ""},
		"odd root":        {"mixed", super(80, 1, 1), "not at a sector", ""},
		"other device":    {"mixed", super(201, 2, 8), "is on device 1, and this is device 2", ""},
		"log":             {"mixed", super(96, 1<<20, 8), "", ""},
		"RAID0":           {"mixed", chunks(24, 0xd, 8), "RAID0, and only", ""},
		"RAID1":           {"separate", chunks(24, 0x14, 8), "RAID1, and only", ""},
		"RAID1C3":         {"separate", chunks(24, 0x204, 8), "RAID1C3, and only", ""},
		"more copies":     {"mixed", chunks(44, 2, 2), "2 copies instead of 1", ""},
		"long chunk":      {"mixed", chunks(0, 1<<63, 8), "has the length 9223372036854775808", ""},
		"chunk at a byte": {"mixed", chunks(48+8, 1, 1), "of the device", ""},
		"overlap":         {"mixed", func(c *changer) { overlap(c) }, "overlap", ""},
		"no root":         {"mixed", roots(5, kindRoot, 216, 0, 4), "root: subvolume 5: file does not exist", ""},
		"root of another": {
			"mixed", swapRoots, "", "its root is that of tree 256",
		},
		"odd sums":          {"mixed", oddSums, "", "which is not at a sector"},
		"no sums":           {"mixed", roots(7, kindRoot, 216, 0, 4), "", ""},
		"moved subvolume":   {"mixed", roots(256, kindRootBackref, 0, 257, 8), "", ""},
		"long name of it":   {"mixed", roots(256, kindRootBackref, 16, 4, 2), "", "its name has 21 bytes"},
		"no name":           {"mixed", entry(27, 0, 2), "", "a name that is empty"},
		"slash":             {"mixed", entry(30, '/', 1), "", "with a slash"},
		"dots":              {"mixed", entry(30, '.', 6), "", "with a slash or a zero"},
		"long name":         {"mixed", entry(27, 60000, 2), "", "an entry of 60030 bytes"},
		"another directory": {"mixed", entry(30, 'D', 1), "", `says that it is not "Deeper" of`},
		"the root again":    {"mixed", entry(0, 256, 8), "", "leads to an item of type 1 of object 256"},
		"not an inode":      {"mixed", entry(8, 12, 1), "", "leads to an item of type 12"},
		"no inode":          {"mixed", entry(0, 1<<20, 8), "", "inode 1048576 of subvolume 5, which does not exist"},
		"large inode":       {"mixed", entry(0, 1<<60, 8), "", "which is too large"},
		"another kind":      {"mixed", entry(29, 1, 1), "", "not of the kind"},
		"unknown kind":      {"mixed", entry(29, 200, 1), "", "not of the kind"},
		"size":              {"mixed", item("hello", kindInode, 16, 1<<63, 8), "", "bytes of content"},
		"long link":         {"mixed", item("short", kindInode, 16, 7, 8), "", "a symbolic link of 7 bytes"},
		"empty link":        {"mixed", item("short", kindInode, 16, 0, 8), "", "a symbolic link of 0 bytes"},
		"link with zero":    {"mixed", item("short", kindExtent, 22, 0, 1), "", "with a zero in it"},
		"encrypted":         {"mixed", item("letters", kindExtent, 17, 1, 1), "", "is encrypted"},
		"compression":       {"mixed", item("letters", kindExtent, 16, 4, 1), "", "has compression 4"},
		"form":              {"mixed", item("letters", kindExtent, 20, 3, 1), "", "has the form 3"},
		"inline":            {"mixed", item("letters", kindExtent, 20, 0, 1), "", "bytes of content in 32"},
		"large inline":      {"mixed", item("hello", kindExtent, 8, 1<<20, 8), "", "1048576 bytes in its item"},
		"inline on disk":    {"mixed", item("hello", kindExtent, 20, 1, 1), "", "has the form 1 and 27 bytes"},
		"nothing":           {"mixed", item("letters", kindExtent, 45, 0, 8), "", "has 0 bytes"},
		"beyond": {
			"mixed", item("letters", kindExtent, 45, 24576, 8), "",
			"is 24576 bytes from 0 on, of 20480",
		},
		"offset": {"mixed", item("letters", kindExtent, 37, 1<<40, 8), "", "from 1099511627776 on"},
		"larger": {"mixed", item("letters", kindExtent, 8, 1<<40, 8), "", ""},
		"odd":    {"mixed", item("letters", kindExtent, 45, 20000, 8), "", "has 20000 bytes"},
		"nowhere": {
			"mixed", item("letters", kindExtent, 21, 1<<40, 8), "",
			"1099511627776, which is in no chunk",
		},
		"moved content": {
			"mixed", func(c *changer) { c.b[c.content("letters")]++ }, "",
			"its content at the logical",
		},
		"damaged zlib": {"mixed", item("zlib/numbers", kindExtent, 16, packZstd, 1), "", "invalid zstd"},
		"damaged lzo":  {"mixed", item("zlib/numbers", kindExtent, 16, packLZO, 1), "", "of LZO in"},
		"damaged zstd": {"mixed", item("zstd/numbers", kindExtent, 16, packZlib, 1), "", "invalid zlib"},
		"large packed": {"mixed", item("zstd/numbers", kindExtent, 8, 132<<10, 8), "", "its compressed extent"},
	} {
		x := newChanger(t, c.image)
		c.lie(x)
		w, err := look(t, x.b)
		checkError(t, name, err, c.open)
		if err == nil {
			var all error
			if len(w.Errs) > 0 {
				all = errors.New(strings.Join(w.Errs, "\n"))
			}
			checkError(t, name, all, c.walk)
			if w.Entries < 100 {
				t.Errorf("%s: only %d entries are read", name, w.Entries)
			}
		}
	}
}

// content returns the offset of the content of a file in the image.
func (c *changer) content(path string) int64 {
	st, err := c.f.Stat(path)
	if err != nil {
		c.t.Fatal(err)
	}
	e, err := c.f.findExtent(st.Sys().(*inode), 0)
	if err != nil {
		c.t.Fatal(err)
	}
	offsets, _, err := c.f.device.chunks.find(e.disk.address, 1)
	if err != nil {
		c.t.Fatal(err)
	}
	return offsets[0]
}

// overlap makes the chunk before the last one longer.
func overlap(c *changer) {
	chunks := c.f.device.chunks
	before := chunks[len(chunks)-2]
	c.leaf(c.f.device.superblock.chunks, key{chunkObjects, kindChunk, before.start}, func(b []byte, _, data int) {
		le.PutUint64(b[data:], before.length+1<<20)
	})
}

// oddSums moves the key of the first checksums of a file by a byte.
func oddSums(c *changer) {
	st, err := c.f.Stat("letters")
	if err != nil {
		c.t.Fatal(err)
	}
	e, err := c.f.findExtent(st.Sys().(*inode), 0)
	if err != nil {
		c.t.Fatal(err)
	}
	c.leaf(c.f.checksums, key{checksumObjects, kindChecksum, e.disk.address}, func(b []byte, entry, _ int) {
		b[entry+9]++
	})
}

// swapRoots sets the root of a subvolume to that of another one, whose files are then there twice.
func swapRoots(c *changer) {
	tree, err := c.f.device.readRoot(256)
	if err != nil {
		c.t.Fatal(err)
	}
	c.leaf(c.f.device.superblock.roots, key{258, kindRoot, 1<<64 - 1}, func(b []byte, _, data int) {
		le.PutUint64(b[data+176:], tree.address)
		le.PutUint64(b[data+160:], tree.generation)
	})
}

// If one copy of metadata is damaged, the other is read.
func TestCopies(t *testing.T) {
	c := newChanger(t, "separate")
	rest, err := c.f.Rest()
	if err != nil {
		t.Fatal(err)
	}
	address := rest.root.in.tree.address
	c.nodeAt(address, 0)[200]++
	want := images["separate"]
	if w, err := look(t, c.b); err != nil || w.Entries != want.entries || len(w.Errs) > 0 {
		t.Errorf("with a copy: %+v, %v", w, err)
	}
	c.nodeAt(address, 1)[200]++
	f, err := Open(bytes.NewReader(c.b), int64(len(c.b)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Rest()
	checkError(t, "both copies damaged", err, "is not what its checksum says")
}

// Notes name what may be missing.
func TestNotes(t *testing.T) {
	for want, change := range map[string]func(c *changer){
		"copy 1 of it is read": func(c *changer) { c.b[64<<10+300]++ },
		"only in its log tree": func(c *changer) { c.super(func(b []byte) { b[97] = 1 }) },
		"its disk only 131072000": func(c *changer) {
			c.b = c.b[:125<<20]
		},
	} {
		c := newChanger(t, "separate")
		change(c)
		f, err := Open(bytes.NewReader(c.b), int64(len(c.b)))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Notes(); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("notes %q, want %q", got, want)
		}
	}
}

// A disk that cannot be read is named as such.
func TestFaultyDisk(t *testing.T) {
	b := carried(t, "mixed")
	for _, from := range []int64{1, 70 << 10, 2 << 20} {
		_, err := Open(&treetest.Reader{Bytes: b, FailFrom: from}, int64(len(b)))
		if !errors.Is(err, treetest.ErrRead) || errors.Is(err, ErrNotBtrfs) || errors.Is(err, ErrDamaged) {
			t.Errorf("fails from %d on: %v", from, err)
		}
	}
	for _, n := range []int{0, 3, 64 << 10, 68<<10 - 1} {
		if _, err := look(t, b[:n]); !errors.Is(err, ErrNotBtrfs) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// Many goroutines may use a file system at a time.
func TestManyReaders(t *testing.T) {
	b := carried(t, "mixed")
	f, err := Open(bytes.NewReader(b), int64(len(b)))
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
			if w.Entries != images["mixed"].entries || len(w.Errs) > 0 {
				t.Errorf("%d entries, %q", w.Entries, w.Errs)
			}
		})
	}
	all.Wait()
}
