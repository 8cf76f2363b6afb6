package hfsplus

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/hfsplus/hfsplustest"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// small is a volume with a few files of each kind, and several levels of nodes.
func small(t testing.TB) []byte {
	t.Helper()
	files := []hfsplustest.File{
		{Path: "hello", Data: []byte("hello\n")},
		{Path: "link", Target: "hello"},
		{Path: "hard", Data: []byte("hard\n")},
		{Path: "dir/hard", Same: "hard"},
		{Path: "dir/below/file", Data: []byte("below\n")},
		{Path: "linked", Mode: hfsplustest.Directory | 0o755},
		{Path: "linked/file", Data: []byte("in a linked directory")},
		{Path: "dir/linked", Same: "linked"},
		{Path: "packed", Data: text(3000), Compression: 3},
		{Path: "forked", Data: text(70_000), Compression: 8},
		{Path: "pieces", Data: text(12_000), Pieces: 20},
	}
	for i := range 60 {
		files = append(files, hfsplustest.File{Path: fmt.Sprintf("many/a-file-with-a-long-name-%d", i)})
	}
	return write(t, hfsplustest.Volume{Name: "Small", BlockSize: 512, NodeSize: 1024, Files: files})
}

// look opens an image and walks all of it.
func look(t testing.TB, image []byte) (*treetest.Tour, error) {
	t.Helper()
	f, err := Open(bytes.NewReader(image), int64(len(image)))
	if err != nil {
		return nil, err
	}
	w := treetest.Walk(f)
	if w.Entries > 1<<14 {
		t.Errorf("an image of %d bytes has %d entries", len(image), w.Entries)
	}
	return w, nil
}

// changer finds parts of an image, to change them.
type changer struct {
	t testing.TB
	b []byte
	f *FS
}

func newChanger(t testing.TB) *changer {
	t.Helper()
	b := small(t)
	return &changer{t, b, open(t, bytes.Clone(b))}
}

// node returns the bytes of a node of a tree.
func (c *changer) node(t *tree, number uint32) []byte {
	size := int64(t.nodeSize)
	data, err := t.readNode(number)
	if err != nil {
		c.t.Fatal(err)
	}
	at := bytes.Index(c.b, data.data) // a node occurs once
	if at < 0 {
		c.t.Fatalf("node %d is not in the image", number)
	}
	return c.b[at:][:size]
}

// record returns the bytes of a record from its key on.
func (c *changer) record(p position, err error) []byte {
	if err != nil || p.node == nil {
		c.t.Fatal(p, err)
	}
	b := c.node(p.node.tree, p.node.number)
	at := func(i int) int { return int(be.Uint16(b[len(b)-2*(i+1):])) }
	return b[at(p.index)+2 : at(p.index+1)]
}

// entry returns the record of a path, without its key.
func (c *changer) entry(path string) []byte {
	dir, name := uint32(rootDir), path
	if before, after, found := strings.Cut(path, "/"); found {
		st, err := c.f.Stat(before)
		if err != nil {
			c.t.Fatal(err)
		}
		dir, name = st.Sys().(*inode).number, after
	}
	p, ok, err := c.f.findRecord(catalogKey{dir, asciiName(name)})
	if !ok {
		c.t.Fatalf("no record of %s: %v", path, err)
	}
	return c.record(p, err)[catalogKeySize+2*len(name):]
}

// thread returns the record of a thread, without its key.
func (c *changer) thread(path string) []byte {
	st, err := c.f.Stat(path)
	if err != nil {
		c.t.Fatal(err)
	}
	p, _, err := c.f.findThread(st.Sys().(*inode).number)
	return c.record(p, err)[catalogKeySize:]
}

// attribute returns the record of an attribute, without its key.
func (c *changer) attribute(path, name string) []byte {
	st, err := c.f.Stat(path)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.record(c.f.findAttribute(st.Sys().(*inode).number, name))[attributeKeySize+2*len(name):]
}

// leaf returns the leaf with the thread of a directory.
func (c *changer) leaf(path string) []byte {
	st, err := c.f.Stat(path)
	if err != nil {
		c.t.Fatal(err)
	}
	p, _, err := c.f.findThread(st.Sys().(*inode).number)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.node(c.f.catalog, p.node.number)
}

// Damage is reported, and what it does not concern is read.
func TestDamage(t *testing.T) {
	whole, err := look(t, small(t))
	if err != nil || len(whole.Errs) > 0 {
		t.Fatal(whole, err)
	}
	for name, c := range map[string]struct {
		change func(c *changer)
		want   string // in one of the errors
		lost   int    // at most so many entries
	}{
		"thread of another": {func(c *changer) { c.thread("many")[7]++ }, "not where it says to be", 60},
		"thread's kind":     {func(c *changer) { c.thread("many")[1] = 7 }, "the thread of file", 60},
		"thread's name":     {func(c *changer) { c.thread("many")[9] = 255 }, "has a name of 255 characters", 60},
		"no thread":         {func(c *changer) { c.entry("many")[8] = 9 }, "has no thread", 60},
		"in itself": {func(c *changer) {
			copy(c.entry("dir/below")[8:12], c.entry("dir")[8:12])
		}, "not where it says to be", 1},
		"the root again": {func(c *changer) {
			be.PutUint32(c.entry("many")[8:], rootDir)
		}, "not where it says to be", 60},
		"kind of record": {func(c *changer) { c.entry("hello")[1] = 9 }, "is not of a file or directory", 1},
		"file as directory": {func(c *changer) {
			be.PutUint16(c.entry("hello")[42:], 0o40755)
		}, "has the mode of a directory", 1},
		"no such linked file": {func(c *changer) { c.entry("hard")[46]++ }, "which does not exist", 0},
		"linked to a directory": {func(c *changer) {
			p, err := c.f.findLinked(c.f.linkedFiles, fileLinkPrefix, be.Uint32(c.entry("hard")[44:]))
			value := c.record(p, err)
			copy(value[len(value)-fileRecordSize:], []byte{0, 1})
		}, "is not of the kind that its name says", 0},
		"no first name": {func(c *changer) {
			copy(c.attribute("linked", firstLinkAttr)[attributeHeaderSize:], "x")
		}, "the first name of linked directory", 1},
		"first name elsewhere": {func(c *changer) {
			copy(c.attribute("linked", firstLinkAttr)[attributeHeaderSize:], "0")
		}, "the first name of linked directory", 1},
		"attribute not in its record": {func(c *changer) {
			c.attribute("linked", firstLinkAttr)[3] = 0x20
		}, "is not in its record", 1},
		"attribute too long": {func(c *changer) {
			c.attribute("packed", "com.apple.decmpfs")[14] = 9
		}, "com.apple.decmpfs of file", 0},
		"size of a file": {func(c *changer) { c.entry("hello")[88+2] = 1 }, "bytes on a volume of", 0},
		"below zero":     {func(c *changer) { c.entry("hello")[88] = 0x80 }, "has 9223372036854775814 bytes", 0},
		"blocks past the end": {func(c *changer) {
			be.PutUint32(c.entry("hello")[88+16:], 1<<31)
		}, "are past the end of the volume", 0},
		"more blocks than fit": {func(c *changer) {
			be.PutUint32(c.entry("hello")[88+20:], 1<<32-1)
		}, "are past the end of the volume", 0},
		"no blocks":   {func(c *changer) { be.PutUint32(c.entry("hello")[88+20:], 0) }, "is nowhere", 0},
		"long target": {func(c *changer) { c.entry("link")[88+6] = 0x20 }, "a symbolic link of 8197 bytes", 0},
		"zero in a target": {func(c *changer) {
			at := int(be.Uint32(c.entry("link")[88+16:])) * 512
			c.b[at+2] = 0
		}, "a symbolic link with a zero in it", 0},
		"further extents": {func(c *changer) {
			b := c.node(c.f.extents, c.f.extents.root)
			be.PutUint32(b[descriptorSize+4:], 999) // the file
		}, "is nowhere", 0},
		"no further extents": {func(c *changer) {
			for _, at := range []int{headerOffset, len(c.b) - headerOffset} {
				clear(c.b[at+extentsForkAt+16:][:extentsBytes])
			}
		}, "there are no further ones", 0},
		"further extents cut": {func(c *changer) {
			for _, at := range []int{headerOffset, len(c.b) - headerOffset} {
				be.PutUint32(c.b[at+extentsForkAt+20:], 8) // one node
			}
		}, "refers to node 1 of 1", 0},
		"a leaf to itself": {func(c *changer) {
			b := c.leaf("many")
			be.PutUint32(b, be.Uint32(c.node(c.f.catalog, be.Uint32(b))[4:]))
		}, "is not the one after node", 60},
		"leaves in a circle": {func(c *changer) {
			first := c.leaf("many")
			second := c.node(c.f.catalog, be.Uint32(first))
			be.PutUint32(second, be.Uint32(second[4:]))
			be.PutUint32(first[4:], be.Uint32(first))
		}, "is not the one after node", 60},
		"a leaf too far": {func(c *changer) { be.PutUint32(c.leaf("many"), 1<<31) }, "refers to node 2147483648", 60},
		"record in the header": {func(c *changer) {
			b := c.node(c.f.catalog, be.Uint32(c.leaf("many")))
			be.PutUint16(b[len(b)-2:], 2)
		}, "is from byte 2 to", 60},
		"height": {func(c *changer) { c.leaf("many")[9]++ }, "and height 2", 200},
		"count":  {func(c *changer) { be.PutUint16(c.leaf("many")[10:], 600) }, "has 600 records", 200},
		"none":   {func(c *changer) { be.PutUint16(c.leaf("many")[10:], 0) }, "has 0 records", 200},
		"offsets": {func(c *changer) {
			b := c.leaf("many")
			be.PutUint16(b[len(b)-4:], 1022)
		}, "from byte", 200},
		"the same name": {func(c *changer) {
			at := cap(c.b) - cap(c.entry("many/a-file-with-a-long-name-2"))
			c.b[at-1] = '1' // the last character of the name
		}, "twice", 60},
	} {
		t.Run(name, func(t *testing.T) {
			ch := newChanger(t)
			c.change(ch)
			w, err := look(t, ch.b)
			if err != nil {
				if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v", err)
				}
				return
			}
			if !slices.ContainsFunc(w.Errs, func(s string) bool { return strings.Contains(s, c.want) }) {
				t.Errorf("%q, want %q", w.Errs, c.want)
			}
			if w.Entries < whole.Entries-c.lost || w.Entries > whole.Entries {
				t.Errorf("%d entries of %d", w.Entries, whole.Entries)
			}
		})
	}
}

// Headers that contradict themselves are refused, unless the copy at the end is right.
func TestDamagedHeaders(t *testing.T) {
	for name, c := range map[string]struct {
		change func(c *changer, h []byte)
		want   string
	}{
		"signature":     {func(_ *changer, h []byte) { h[0]++ }, "not an HFS+ file system"},
		"blocks of 0":   {func(_ *changer, h []byte) { be.PutUint32(h[40:], 0) }, "blocks of 0 bytes"},
		"large blocks":  {func(_ *changer, h []byte) { be.PutUint32(h[40:], 1<<27) }, "blocks of 134217728 bytes"},
		"odd blocks":    {func(_ *changer, h []byte) { be.PutUint32(h[40:], 513) }, "blocks of 513 bytes"},
		"no catalog":    {func(_ *changer, h []byte) { clear(h[catalogForkAt:][:16]) }, "the catalog has 0 bytes"},
		"large catalog": {func(_ *changer, h []byte) { h[catalogForkAt] = 1 }, "on a volume of"},
		"catalog elsewhere": {func(_ *changer, h []byte) {
			be.PutUint32(h[catalogForkAt+16:], 1)
		}, "the tree of the catalog"},
		"extents elsewhere": {func(_ *changer, h []byte) {
			be.PutUint32(h[extentsForkAt+16:], 1)
		}, "the tree of further extents"},
		"node size": {func(c *changer, _ []byte) { c.catalogHeader()[19] = 1 }, "nodes of 1025 bytes"},
		"large nodes": {func(c *changer, _ []byte) {
			be.PutUint16(c.catalogHeader()[18:], 1<<15+2)
		}, "nodes of 32770 bytes"},
		"small nodes": {func(c *changer, _ []byte) {
			be.PutUint16(c.catalogHeader()[18:], 256)
		}, "nodes of 256 bytes"},
		"root past the end": {func(c *changer, _ []byte) {
			be.PutUint32(c.catalogHeader()[2:], 1<<30)
		}, "refers to node"},
		"no root":  {func(c *changer, _ []byte) { be.PutUint32(c.catalogHeader()[2:], 0) }, "has no thread"},
		"no nodes": {func(c *changer, _ []byte) { be.PutUint32(c.catalogHeader()[22:], 1) }, "of 1"},
		"root's number": {func(c *changer, _ []byte) {
			p, err := c.f.findRoot(catalogKey{dir: rootParent})
			b := c.record(p, err)
			b[len(b)-dirRecordSize+11] = 3
		}, "root"},
	} {
		ch := newChanger(t)
		c.change(ch, ch.b[headerOffset:])
		copy(ch.b[len(ch.b)-headerOffset:], ch.b[headerOffset:][:headerSize])
		if _, err := look(t, ch.b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	b := small(t)
	for _, n := range []int{0, 1, 1024, 1535, 1536, 4096} {
		if _, err := look(t, b[:n]); err == nil {
			t.Errorf("%d bytes were opened", n)
		}
	}
}

// catalogHeader returns the header of the tree of the catalog.
func (c *changer) catalogHeader() []byte {
	b := make([]byte, treeHeaderSize)
	if _, err := c.f.catalog.pages.ReadAt(b, 0); err != nil {
		c.t.Fatal(err)
	}
	return c.b[bytes.Index(c.b, b)+descriptorSize:]
}

// A disk that cannot be read from some byte on is not damaged.
func TestUnreadable(t *testing.T) {
	b := small(t)
	for from := int64(512); from < int64(len(b)); from += 4096 {
		f, err := Open(&treetest.Reader{Bytes: b, FailFrom: from}, int64(len(b)))
		if err != nil {
			if !errors.Is(err, treetest.ErrRead) {
				t.Errorf("from %d: %v", from, err)
			}
			continue
		}
		for _, e := range treetest.Walk(f).Errs {
			if !strings.Contains(e, treetest.ErrRead.Error()) {
				t.Errorf("from %d: %v", from, e)
			}
		}
	}
}

// A file system is safe for concurrent use.
func TestConcurrentUse(t *testing.T) {
	b := small(t)
	f := open(t, b)
	want := treetest.Walk(f)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if w := treetest.Walk(f); w.Entries != want.Entries || w.Bytes != want.Bytes || len(w.Errs) > 0 {
				t.Errorf("%+v", w)
			}
			if b, err := fs.ReadFile(f, "dir/below/file"); err != nil || string(b) != "below\n" {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
	all.Wait()
}

// Names are those of the disk in UTF-8.
func TestNames(t *testing.T) {
	for units, want := range map[string]string{
		"\x00a": "a", "\x00/": ":", "\x00:": ":", "\x00\x00": "\u2400", "\x00e\x03\x01": "e\u0301",
		"\xd8\x3e\xdd\x80": "\U0001f980", "\xd8\x3e": "\ufffd", "\xdd\x80\x00a": "\ufffda", "\xd8\x3e\x00a": "\ufffda",
		"\xff\xff": "\uffff", "": "",
	} {
		if got := string(appendName(nil, []byte(units))); got != want {
			t.Errorf("%x: %q, want %q", units, got, want)
		}
	}
	for _, c := range []struct {
		a, b    string
		isExact bool
		want    int
	}{
		{"a", "a", false, 0},
		{"A", "a", false, 0},
		{"A", "a", true, -1},
		{"a", "B", false, -1},
		{"Z", "[", false, 1},
		{"a", "ab", false, -1},
		{"ab", "a", true, 1},
		{"\x00", "z", false, 1},
		{"\x00", "z", true, -1},
		{"", "", true, 0},
	} {
		if got := compareNames([]byte(asciiName(c.a)), asciiName(c.b), c.isExact); got != c.want {
			t.Errorf("%q, %q, %v: %d", c.a, c.b, c.isExact, got)
		}
	}
}

// FuzzVolume changes some bytes of a volume, and reads all of it. A patch is three bytes of offset and one of content.
func FuzzVolume(f *testing.F) {
	base := small(f)
	f.Add([]byte{})
	f.Add([]byte{0, 4, 40, 1})
	for at := 0; at < len(base); at += len(base) / 50 {
		f.Add([]byte{byte(at >> 16), byte(at >> 8), byte(at), 255})
	}
	f.Fuzz(func(t *testing.T, patches []byte) {
		b := bytes.Clone(base)
		for ; len(patches) >= 4; patches = patches[4:] {
			b[(int(patches[0])<<16|int(patches[1])<<8|int(patches[2]))%len(b)] = patches[3]
		}
		_, _ = look(t, b)
	})
}
