package xfs

import (
	"bytes"
	"errors"
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

// images are the stored file systems, with what is on them.
var images = map[string]struct {
	entries int
	bytes   int64 // of all files
}{"v4": {251, 60_119}, "v5": {253, 265_896}}

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
	if w.Entries > 1<<17 {
		t.Errorf("an image of %d bytes has %d entries", len(image), w.Entries)
	}
	return w, nil
}

func TestCarriedImages(t *testing.T) {
	for name, want := range images {
		w, err := look(t, carried(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Errs) > 0 || w.Entries != want.entries || w.Bytes != want.bytes || len(w.fsys.Notes()) > 0 {
			t.Errorf("%s: %d entries, %d bytes, %q, %q", name, w.Entries, w.Bytes, w.Errs, w.fsys.Notes())
		}
		if label := "carried" + name[1:]; w.fsys.Label() != label {
			t.Errorf("%s: label %q", name, w.fsys.Label())
		}
		contents := map[string]string{
			"hello": "hello\n", "short": "hello\n", "long": "hello\n", "folder/below/deeper/x": "x\n",
			"many/file-with-a-long-name-7": "7\n", "wide/another-file-with-a-long-name-200": "",
		}
		if name == "v5" {
			contents["folder/hard"] = "hello\n"
			contents["unwritten"] = strings.Repeat("\x00", 20000)
		}
		for path, want := range contents {
			if b, err := fs.ReadFile(w.fsys, path); err != nil || string(b) != want {
				t.Errorf("%s: %s holds %q, %v", name, path, b, err)
			}
		}
		t.Log(name, forms(t, w.fsys))
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

func (c *changer) node(path string) *inode {
	st, err := c.f.Lstat(path)
	if err != nil {
		c.t.Fatal(err)
	}
	return st.Sys().(*inode)
}

// inode returns the bytes of the inode of a path.
func (c *changer) inode(path string) []byte {
	off, err := c.f.superblock.inodeOffset(c.node(path).number)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.b[off:][:c.f.superblock.inodeSize]
}

// block returns the first block of the content of a path, of a directory its first directory block.
func (c *changer) block(path string) []byte {
	r, err := c.f.findRun(c.node(path), 0)
	if err != nil || r.offset == 0 {
		c.t.Fatal(r, err)
	}
	size := c.f.superblock.blockSize
	if c.node(path).isDir() {
		size = c.f.superblock.dirBlockSize()
	}
	return c.b[r.offset:][:size]
}

// treeBlock returns the first block below the root of the tree of extents of a path.
func (c *changer) treeBlock(path string) []byte {
	area := c.node(path).fork[treeRootHeaderSize:]
	node, err := newTreeNode(area, 1)
	if err != nil {
		c.t.Fatal(err)
	}
	off, err := c.f.superblock.blockOffset(node.child(0), 1)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.b[off:][:c.f.superblock.blockSize]
}

// name returns what begins with a name in a directory.
func (c *changer) name(dir, name string) []byte {
	b, before := c.inode(dir), 3
	if c.node(dir).form != formLocal {
		b, before = c.block(dir), 1
	}
	for at := 0; ; at++ {
		next := bytes.Index(b[at:], []byte(name))
		if next < 0 {
			c.t.Fatalf("there is no %q in %s", name, dir)
		}
		if at += next; int(b[at-before]) == len(name) {
			return b[at:]
		}
	}
}

// redirect sets the inode and type of a name of a directory in its inode.
func (c *changer) redirect(dir, name string, kind byte, number uint64) {
	b := c.name(dir, name)[len(name):]
	b[0] = kind
	be.PutUint32(b[1:], uint32(number))
}

// A contradiction is reported, and everything else is read.
func TestContradictions(t *testing.T) {
	for name, c := range map[string]struct {
		image string
		lie   func(c *changer)
		want  string // in an error of the walk; "" = there is none
		least int    // entries that are still read
	}{
		"folder in itself": {"v4", func(c *changer) {
			c.redirect("folder/below", "deeper", isDir, c.node("folder/below").number)
		}, "is in directory", 250},
		"folder above": {"v4", func(c *changer) {
			c.redirect("folder/below", "deeper", isDir, c.node("folder").number)
		}, "is in directory", 250},
		"root in itself": {"v4", func(c *changer) {
			c.redirect(".", "many", isDir, c.node(".").number)
		}, "leads to the root", 210},
		"folder twice": {"v4", func(c *changer) {
			c.redirect(".", "hello", isDir, c.node("folder").number)
		}, `it has "hello" twice`, 250},
		"no such inode": {
			"v4", func(c *changer) { c.redirect(".", "hello", isFile, 1<<32-1) }, "inode 4294967295", 251,
		},
		"other kind":   {"v4", func(c *changer) { c.name(".", "hello")[5] = isDir }, "not of the kind", 251},
		"free inode":   {"v4", func(c *changer) { clear(c.inode("hello")[2:4]) }, "it is free", 251},
		"no inode":     {"v4", func(c *changer) { c.inode("hello")[0] = 0 }, "there is not an inode", 251},
		"huge file":    {"v4", func(c *changer) { c.inode("large")[56] = 0x10 }, "", 251},
		"no extents":   {"v4", func(c *changer) { clear(c.inode("large")[76:80]) }, "", 251},
		"many extents": {"v4", func(c *changer) { c.inode("large")[76] = 0x7f }, "extents in", 251},
		"extent nowhere": {"v4", func(c *changer) {
			copy(c.inode("large")[inodeCoreSize:], extent(0, 1<<40, 59, false))
		}, "it refers to block", 251},
		"tree of nothing": {"v4", func(c *changer) { c.inode("large")[5] = formTree }, "has 0 levels", 251},
		"folder in tree":  {"v4", func(c *changer) { c.inode("wide")[5] = formTree }, "has 0 levels", 51},
		"target with a zero": {"v4", func(c *changer) {
			c.inode("short")[inodeCoreSize+2] = 0
		}, "zero in it", 251},
		"target without end": {"v4", func(c *changer) {
			be.PutUint64(c.inode("long")[56:], 1<<40)
		}, "a symbolic link of 1099511627776 bytes", 251},
		"block of nothing": {"v4", func(c *changer) { c.block("many")[0] = 0 }, "not one with entries", 211},
		"zero in name": {
			"v4", func(c *changer) { c.name("many", "file-with-a-long-name-7")[0] = 0 }, "a zero in it", 250,
		},
		"slash in name": {
			"v4", func(c *changer) { c.name("many", "file-with-a-long-name-7")[4] = '/' }, "slash", 250,
		},
		"index over all": {"v4", func(c *changer) {
			b := c.block("many")
			b[len(b)-8] = 0x7f
		}, "its index has", 211},
		"folders share a block": {"v4", func(c *changer) {
			many, wide := c.inode("many"), c.inode("wide")
			copy(wide[56:64], many[56:64])
			copy(wide[76:80], many[76:80])
			copy(wide[inodeCoreSize:], many[inodeCoreSize:])
		}, "that of another directory", 51},
		"folder without end": {"v4", func(c *changer) { c.inode("wide")[56] = 0x7f }, "", 251},
		"inode changed":      {"v5", func(c *changer) { c.inode("hello")[60]++ }, "what its checksum says", 253},
		"other inode": {"v5", func(c *changer) {
			copy(c.inode("hello"), c.inode("short"))
		}, "it says that it is inode", 253},
		"block changed": {"v5", func(c *changer) { c.block("many")[200]++ }, "what its checksum says", 213},
		"tree changed":  {"v5", func(c *changer) { c.treeBlock("large")[200]++ }, "what its checksum says", 253},
		"tree of another file": {"v5", func(c *changer) {
			b := c.treeBlock("large")
			b[treeHeader.owner+7]++
			seal(b, treeHeader.checksum)
		}, "is that of inode", 253},
		"block of another folder": {"v5", func(c *changer) {
			copy(c.block("wide"), c.block("many"))
		}, "says that it is at sector", 53},
		"owner of a block": {"v5", func(c *changer) {
			b := c.block("many")
			b[dirHeader.owner+7]++
			seal(b, dirHeader.checksum)
		}, "is that of inode", 213},
		"block of another file system": {"v5", func(c *changer) {
			b := c.block("many")
			b[dirHeader.uuid]++
			seal(b, dirHeader.checksum)
		}, "is of another file system", 213},
		"empty target": {"v5", func(c *changer) {
			b := c.block("long")
			clear(b[8:12])
			seal(b, targetHeader.checksum)
		}, "has 0 bytes from byte 0", 253},
		"target changed": {"v5", func(c *changer) { c.block("long")[100]++ }, "what its checksum says", 253},
	} {
		t.Run(name, func(t *testing.T) {
			b := newChanger(t, c.image)
			c.lie(b)
			w, err := look(t, b.b)
			if err != nil {
				t.Fatal(err)
			}
			if (len(w.Errs) > 0) != (c.want != "") || !strings.Contains(strings.Join(w.Errs, "\n"), c.want) ||
				w.Entries < c.least {
				t.Errorf("%d entries, %q, want %d and %q", w.Entries, w.Errs, c.least, c.want)
			}
		})
	}
}

// An invalid superblock is refused with a descriptive error.
func TestLyingSuperblocks(t *testing.T) {
	for name, c := range map[string]struct {
		image string
		lie   func(c *changer)
		want  string
	}{
		"magic": {"v4", func(c *changer) { c.b[0]++ }, "not an XFS file system"},
		"version": {
			"v4", func(c *changer) { c.b[101] = c.b[101]&^0xf | 2 }, "unsupported XFS feature: version 2",
		},
		"block size": {"v4", func(c *changer) { c.b[120]++ }, "its blocks have 1024 bytes, and 2^11"},
		"no root": {
			"v4", func(c *changer) { clear(c.b[56:64]) }, "root: the file system is damaged: a name leads to",
		},
		"root of a file": {
			"v4", func(c *changer) { be.PutUint64(c.b[56:], c.node("hello").number) }, "is not a directory",
		},
		"changed":       {"v5", func(c *changer) { c.b[108]++ }, "its superblock is not what its checksum says"},
		"sealed":        {"v5", func(c *changer) { c.b[108]++; seal(c.b[:512], superChecksumOffset) }, ""},
		"sectors":       {"v5", func(c *changer) { c.b[102], c.b[103] = 3, 0 }, "its sectors have 768 bytes"},
		"small sectors": {"v5", func(c *changer) { c.b[102], c.b[103] = 1, 0 }, "its sectors have 256 bytes"},
		"feature": {"v5", func(c *changer) {
			c.b[218] = 1
			seal(c.b[:512], superChecksumOffset)
		}, "metadir"},
		"uuid of metadata": {"v5", func(c *changer) {
			c.b[219] |= incompatMetaUUID
			copy(c.b[248:], c.b[32:48])
			c.b[32]++
			seal(c.b[:512], superChecksumOffset)
		}, ""},
	} {
		b := newChanger(t, c.image)
		c.lie(b)
		w, err := look(t, b.b)
		checkError(t, name, err, c.want)
		if err == nil && len(w.Errs) > 0 {
			t.Errorf("%s: %q", name, w.Errs)
		}
	}
	b := carried(t, "v5")
	if _, err := Open(&faulty{b: b, fail: 1}, int64(len(b))); !errors.Is(err, errFaulty) || errors.Is(err, ErrNotXFS) {
		t.Errorf("a superblock that cannot be read: %v", err)
	}
	for _, n := range []int{0, 3, 511} {
		if _, err := look(t, b[:n]); !errors.Is(err, ErrNotXFS) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	w, err := look(t, carried(t, "v4")[:1<<20])
	if err != nil || len(w.fsys.Notes()) == 0 || !strings.Contains(strings.Join(w.Errs, "\n"), "of 1048576") {
		t.Errorf("a file system that was cut: %+v, %v", w, err)
	}
}

// chunk is the size of the parts of an image that FuzzWalk changes.
const chunk = 64

// usedChunks returns the offsets of parts that are not zero, and none of the file of zeros and one letter.
func usedChunks(b []byte) (out []int) {
	letters := bytes.Repeat([]byte("l"), chunk)
	for at := 0; at+chunk <= len(b); at += chunk {
		if part := b[at:][:chunk]; !bytes.Equal(part, make([]byte, chunk)) && !bytes.Equal(part, letters) {
			out = append(out, at)
		}
	}
	return out
}

// reseal sets the checksums of what may be at an offset: the superblock, an inode, or a block of version 5.
func reseal(b []byte, at int) {
	const block, inodeSize = 4096, 512
	switch {
	case at < 512:
		seal(b[:512], superChecksumOffset)
	case string(b[at&^(inodeSize-1):][:2]) == inodeMagic:
		seal(b[at&^(inodeSize-1):][:inodeSize], inodeChecksumOffset)
	default:
		part := b[at&^(block-1):][:block]
		if h, ok := map[string]blockHeader{
			"XDB3": dirHeader, "XDD3": dirHeader, treeCheckedMagic: treeHeader, targetMagic: targetHeader,
		}[string(part[:4])]; ok {
			seal(part, h.checksum)
		}
	}
}

// FuzzWalk changes some bytes of a file system and walks it. A change is two bytes of a part that is used, one of
// the offset in it, and two of content. Checksums are set again, as the author of an image would.
func FuzzWalk(f *testing.F) {
	type target struct {
		b      []byte
		chunks []int
	}
	var all []target
	for _, name := range []string{"v4", "v5"} {
		b := carried(f, name)
		all = append(all, target{b, usedChunks(b)})
	}
	for k := range all {
		f.Add(byte(k), []byte{})
		f.Add(byte(k), []byte{0, 0, 4, 0, 1, 0, 1, 56, 6, 0})
		f.Add(byte(k), []byte{0, 40, 40, 255, 255, 0, 60, 2, 1, 1})
	}
	f.Fuzz(func(t *testing.T, which byte, changes []byte) {
		k := int(which) % len(all)
		b := all[k].b
		before := map[int][]byte{}
		for ; len(changes) >= 5; changes = changes[5:] {
			part := all[k].chunks[(int(changes[0])<<8|int(changes[1]))%len(all[k].chunks)]
			at := part + int(changes[2])%(chunk-1)
			page := at &^ 4095
			if before[page] == nil {
				before[page] = bytes.Clone(b[page : page+4096])
			}
			copy(b[at:], changes[3:5])
			if k == 1 {
				reseal(b, at)
			}
		}
		defer func() {
			for page, was := range before {
				copy(b[page:], was)
			}
		}()
		w, err := look(t, b)
		if err == nil && w.Bytes > 512*treetest.MostOfAFile {
			t.Fatalf("%d bytes", w.Bytes)
		}
	})
}

// Many goroutines may use a file system at a time.
func TestManyReaders(t *testing.T) {
	for name, want := range images {
		b := carried(t, name)
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
				if w.Entries != want.entries || len(w.Errs) > 0 {
					t.Errorf("%d entries, %q", w.Entries, w.Errs)
				}
			})
		}
		all.Wait()
	}
}
