package ext4

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/iotest"

	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// Directories are cached up to a limit of memory, the most recently used; a large one is not.
func TestDirectories(t *testing.T) {
	c := newDirCache()
	large := func(number uint32, names int) *cachedDir {
		return &cachedDir{inodeNumber: number, entries: []dirEntry{{EntryName: strings.Repeat("n", names)}}}
	}
	const part = dirCacheBytes/3 - 2*entryOverheadBytes
	for number := range uint32(3) {
		c.put(large(number, part))
	}
	if c.get(0) == nil {
		t.Error("what fits is not kept")
	}
	c.put(&cachedDir{}) // it stays unchanged
	if d := c.get(0); d == nil || len(d.entries) != 1 {
		t.Error("a folder that is kept was replaced")
	}
	c.put(large(3, part))
	for number, want := range []bool{true, false, true, true} {
		if got := c.get(uint32(number)) != nil; got != want {
			t.Errorf("folder %d is kept: %v", number, got)
		}
	}
	if c.sizeBytes != 3*(part+2*entryOverheadBytes) || c.recency.Len() != 3 || len(c.byInode) != 3 {
		t.Errorf("%d bytes, %d directories", c.sizeBytes, c.recency.Len())
	}
	c = newDirCache()
	c.put(large(1, dirCacheBytes/2-2*entryOverheadBytes))
	c.put(large(2, dirCacheBytes/2-2*entryOverheadBytes+1))
	if half, more := c.get(1) != nil, c.get(2) != nil; !half || more {
		t.Errorf("half of the memory: %v, more: %v", half, more)
	}
	recorded := large(1, 5)
	recorded.reads = &ReadSet{ranges: []Range{{0, 1}}}
	c.put(recorded)
	c.put(large(1, 7))
	if d := c.get(1); d != recorded || c.sizeBytes != recorded.sizeBytes || c.recency.Len() != 1 {
		t.Errorf("%+v and %d bytes in %d directories instead of the one with a read set", d, c.sizeBytes,
			c.recency.Len())
	}
}

// record makes an entry of a directory; length 0 is as long as it needs.
func record(number uint32, name string, length int) []byte {
	if length == 0 {
		length = (8 + len(name) + 3) &^ 3
	}
	b := make([]byte, max(length, 8+len(name)))
	le.PutUint32(b, number)
	le.PutUint16(b[4:], uint16(length))
	b[6], b[7] = byte(len(name)), 1
	copy(b[8:], name)
	return b
}

// Entries of a directory are read up to the first invalid one, which is named.
func TestEntries(t *testing.T) {
	f := &FS{superblock: &superblock{blockSize: 1024, incompat: hasFileType}}
	list := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
	for name, c := range map[string]struct {
		b     []byte
		names string
		above uint32
		want  string
	}{
		"nothing": {nil, "", 0, ""},
		"names": {list(record(12, "a", 0), record(13, "long name", 40),
			record(14, "b", 0)), "a,long name,b", 0, ""},
		"the way up":      {list(record(5, ".", 0), record(6, "..", 0), record(7, "c", 0)), "c", 6, ""},
		"unused":          {list(record(0, "gone", 0), record(7, "", 16), record(8, "here", 0)), "here", 0, ""},
		"no room":         {list(record(7, "a", 0), make([]byte, 7)), "a", 0, "an entry of 7 bytes"},
		"least":           {list(record(0, "", 8), record(7, "a", 0)), "a", 0, ""},
		"too short":       {list(record(7, "a", 0), record(7, "", 4)), "a", 0, "an entry of 4 bytes"},
		"not of words":    {list(record(7, "a", 0), record(8, "b", 14)), "a", 0, "an entry of 14 bytes"},
		"over the end":    {list(record(7, "a", 0), record(8, "b", 0)[:10]), "a", 0, "an entry of 12 bytes"},
		"longer name":     {list(record(7, "abcd", 0), record(8, "abcde", 12)), "abcd", 0, "a name of 5"},
		"name to the end": {list(record(8, "abcd", 12)), "abcd", 0, ""},
		"the root":        {list(record(2, "root", 0), record(7, "a", 0)), "a", 0, "leads to the root"},
		"a slash":         {list(record(7, "a/b", 0), record(8, "c", 0)), "c", 0, "slash or a zero"},
		"a zero":          {list(record(7, "a\x00b", 0), record(8, "c", 0)), "c", 0, "slash or a zero"},
		"two things wrong": {list(record(2, "root", 0), record(7, "a", 0),
			record(8, "x", 14)), "a", 0, "an entry of 14"},
	} {
		l := dirReader{fs: f, dir: &inode{number: 50}}
		err := l.readEntries(c.b)
		var names []string
		for _, e := range l.entries {
			names = append(names, e.EntryName)
			if e.At.parentInode != 50 || e.EntryType != 0 {
				t.Errorf("%s: %+v", name, e)
			}
		}
		if strings.Join(names, ",") != c.names || l.parentInode != c.above || (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, above %d, %v, want %q", name, names, l.parentInode, err, c.want)
		}
	}
	l := dirReader{fs: f, dir: &inode{number: 50}, nameBytes: maxDirNameBytes - 4}
	if err := l.readEntries(list(record(7, "abcd", 0), record(8, "e", 0), record(9, "f", 0))); err == nil ||
		len(l.entries) != 1 || l.damagedBlocks != maxDamagedBlocks {
		t.Errorf("names that are too long: %d, %v", len(l.entries), err)
	}
	l = dirReader{fs: f, dir: &inode{number: 50}, entries: make([]dirEntry, maxDirEntries-1, maxDirEntries+8)}
	if err := l.readEntries(list(record(7, "abcd", 0), record(8, "e", 0))); err == nil ||
		len(l.entries) != maxDirEntries ||
		l.damagedBlocks != maxDamagedBlocks {
		t.Errorf("many entries: %d, %v", len(l.entries), err)
	}
}

func TestRecordLength(t *testing.T) {
	for _, c := range []struct {
		v     uint16
		block int64
		want  int
	}{
		{12, 4096, 12},
		{0, 4096, 0},
		{0xffff, 32 << 10, 0xffff},
		{12, maxBlockSize, 12},
		{0, maxBlockSize, maxBlockSize},
		{0xffff, maxBlockSize, maxBlockSize},
		{0x1001, maxBlockSize, 0x11000},
		{0xfffc, maxBlockSize, 0xfffc},
	} {
		if got := recordLength(c.v, c.block); got != c.want {
			t.Errorf("%#x in blocks of %d: %d, want %d", c.v, c.block, got, c.want)
		}
	}
}

// A name counts once, and so does a directory, whatever its names.
func TestTwins(t *testing.T) {
	l := dirReader{dir: &inode{number: 5}, entries: []dirEntry{
		{EntryName: "a", At: place{inodeNumber: 1}},
		{EntryName: "a", At: place{inodeNumber: 2}},
		{EntryName: "b", EntryType: fs.ModeDir, At: place{inodeNumber: 3}},
		{EntryName: "c", EntryType: fs.ModeDir, At: place{inodeNumber: 3}},
		{EntryName: "d", At: place{inodeNumber: 1}},
		{EntryName: "e", EntryType: fs.ModeDir, At: place{inodeNumber: 4}},
	}}
	l.dropDuplicates()
	var names []string
	for _, e := range l.entries {
		names = append(names, e.EntryName)
	}
	if strings.Join(names, "") != "abde" || l.damagedBlocks != 2 ||
		!strings.Contains(l.firstDamage.Error(), `directory 5`) ||
		!strings.Contains(l.firstDamage.Error(), `has "a" twice`) {
		t.Errorf("%q, %d, %v", names, l.damagedBlocks, l.firstDamage)
	}
}

// A directory in its inode has the number of its parent, and two lists.
func TestInlineDirectory(t *testing.T) {
	f := &FS{superblock: &superblock{blockSize: 1024, incompat: hasFileType}}
	b := le.AppendUint32(nil, 77)
	b = append(b, record(8, "first", 56)...)
	b = append(b, record(9, "second", 0)...)
	l := dirReader{fs: f, dir: &inode{number: 5}}
	if err := l.readInline(b); err != nil || l.parentInode != 77 || len(l.entries) != 2 || l.firstDamage != nil {
		t.Errorf("%+v, %v", l, err)
	}
	l = dirReader{fs: f, dir: &inode{number: 5}}
	if err := l.readInline(append(b[:4:4], record(8, "x", 14)...)); err != nil || l.firstDamage == nil {
		t.Errorf("%v, %v", l.firstDamage, err)
	}
	l = dirReader{fs: f, dir: &inode{number: 5}}
	if err := l.readInline(b[:4]); err != nil || l.parentInode != 77 || l.firstDamage != nil {
		t.Errorf("an empty one: %v, %v", l.firstDamage, err)
	}
	if err := l.readInline(b[:3]); !errors.Is(err, ErrDamaged) {
		t.Errorf("%v", err)
	}
}

// Content that does not fit into an inode is in its attribute system.data.
func TestAttribute(t *testing.T) {
	attr := func(change func(b []byte)) []byte {
		b := make([]byte, 4+16+4+20+12+40)
		le.PutUint32(b, attrMagic)
		e := b[4:]
		e[0], e[1] = 3, 1 // another one first
		copy(e[16:], "abc")
		e = e[20:]
		e[0], e[1] = 4, attrSystemIndex
		le.PutUint16(e[2:], 60)
		le.PutUint32(e[8:], 8)
		copy(e[16:], attrData)
		copy(b[4+60:], "the rest")
		change(b)
		return b
	}
	second := func(b []byte) []byte { return b[4+20:] }
	for name, c := range map[string]struct {
		tail []byte
		want string
		bad  bool
	}{
		"there":         {attr(func([]byte) {}), "the rest", false},
		"no attributes": {nil, "", false},
		"other magic":   {attr(func(b []byte) { b[0]++ }), "", false},
		"three bytes":   {attr(func([]byte) {})[:3], "", false},
		"magic alone":   {attr(func([]byte) {})[:4], "", false},
		"other name":    {attr(func(b []byte) { second(b)[16] = 'x' }), "", false},
		"other kind":    {attr(func(b []byte) { second(b)[1] = 1 }), "", false},
		"name cut":      {attr(func(b []byte) { second(b)[0] = 200 }), "", false},
		"entry cut":     {attr(func([]byte) {})[:4+20+15], "", false},
		"behind":        {attr(func(b []byte) { le.PutUint16(second(b)[2:], 200) }), "", true},
		"over the end":  {attr(func(b []byte) { le.PutUint32(second(b)[8:], 33) }), "", true},
		"to the end": {attr(func(b []byte) { le.PutUint32(second(b)[8:], 32) }), "the rest" +
			strings.Repeat("\x00", 24), false},
		"nothing": {
			attr(func(b []byte) { le.PutUint16(second(b)[2:], 92); le.PutUint32(second(b)[8:], 0) }),
			"", false,
		},
		"another inode": {attr(func(b []byte) { second(b)[4] = 1 }), "", true},
	} {
		n := &inode{inlineAttrs: c.tail, size: 1000}
		got, err := n.dataAttribute()
		if string(got) != c.want || (err != nil) != c.bad || err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if all, err := n.inlineData(); (err != nil) != c.bad || err == nil && len(all) != 60+len(c.want) {
			t.Errorf("%s: %d bytes inline, %v", name, len(all), err)
		}
		n.size = 60
		if all, err := n.inlineData(); err != nil || len(all) != 60 {
			t.Errorf("%s: %d bytes inline, %v", name, len(all), err)
		}
	}
}

// A stored image, read through this package, satisfies the interfaces of io and io/fs.
func TestInterfaces(t *testing.T) {
	for _, name := range []string{"extents", "mapped", "checked"} {
		b := treetest.Unpacked(t, "testdata/"+name+".img.zst")
		f, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{"folder", "many"} {
			part, err := fs.Sub(f, dir)
			if err != nil {
				t.Fatal(err)
			}
			list, err := f.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := fstest.TestFS(part, list[0].Name()); err != nil {
				t.Errorf("%s/%s: %v", name, dir, err)
			}
		}
		file, err := f.Open("folder/large")
		if err != nil {
			t.Fatal(err)
		}
		whole, err := fs.ReadFile(f, "folder/large")
		if err != nil {
			t.Fatal(err)
		}
		if err := iotest.TestReader(file, whole); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n, err := file.Read(nil); n != 0 || err != nil {
			t.Errorf("a read of nothing: %d, %v", n, err)
		}
		if n, err := file.(io.ReaderAt).ReadAt(make([]byte, 1), -1); n != 0 || err == nil || errors.Is(err, io.EOF) {
			t.Errorf("a read before the file: %d, %v", n, err)
		}
		if at, err := file.(io.Seeker).Seek(0, io.SeekStart); at != 0 || err != nil {
			t.Errorf("to the begin: %d, %v", at, err)
		}
		for _, whence := range []int{-1, 3} {
			if _, err := file.(io.Seeker).Seek(0, whence); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("whence %d: %v", whence, err)
			}
		}
		if _, err := f.ReadLink("hello"); err == nil {
			t.Error("a file is read as a link")
		}
		if _, err := f.Stat("hello/x"); err == nil {
			t.Error("a file has a file in it")
		}
		for _, bad := range []string{"", "/large", "large/", "a//b", "./large", "folder/../large", "la\x00rge"} {
			if _, err := f.Stat(bad); !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("%q: %v", bad, err)
			}
		}
		for _, missing := range []string{"none", "folder/none"} {
			if _, err := f.Stat(missing); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%q: %v", missing, err)
			}
		}
	}
}
