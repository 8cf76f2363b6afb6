package xfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// memory is a small file system of version 4, made for one test. Inode N is in block N/2.
type memory struct {
	f *FS
	b []byte
}

const (
	rootNumber = 64
	isFile     = 1 // types in entries
	isDir      = 2
	isLink     = 7
)

// newMemory has a root without names.
func newMemory() *memory {
	m := &memory{f: &FS{superblock: small()}, b: make([]byte, 350<<10)}
	m.f.superblock.features = featureFileType
	m.directory(rootNumber, rootNumber)
	return m
}

// put writes an inode, and clears the caches.
func (m *memory) put(number int, mode uint16, form byte, size int, fork []byte) {
	copy(m.b[number*512:], rawInode(mode, form, size, fork))
	m.reset(bytes.NewReader(m.b))
}

func (m *memory) reset(r io.ReaderAt) {
	m.f.pages = inodefs.NewPages(r, int64(len(m.b)), 1024)
	m.f.dirs = inodefs.NewCache[uint64](dirCacheBytes, inodefs.DirBytes[*inode, place])
	m.f.owners = &inodefs.BlockOwners[uint64]{}
}

// directory writes a directory in its inode.
func (m *memory) directory(number, parent int, entries ...[]byte) {
	b := be.AppendUint32([]byte{byte(len(entries)), 0}, uint32(parent))
	b = append(b, slices.Concat(entries...)...)
	m.put(number, inodefs.ModeDir|0o755, formLocal, len(b), b)
}

func (m *memory) link(number int, target string) {
	m.put(number, inodefs.ModeLink|0o777, formLocal, len(target), []byte(target))
}

// file writes a file of one block.
func (m *memory) file(number, block int, content string) {
	copy(m.b[block<<10:], content)
	m.put(number, inodefs.ModeRegular|0o644, formExtents, len(content), extent(0, uint64(block), 1, false))
}

// localEntry makes an entry of a directory in an inode.
func localEntry(number int, kind byte, name string) []byte {
	b := append([]byte{byte(len(name)), 0, 0}, name...)
	return be.AppendUint32(append(b, kind), uint32(number))
}

// blockEntry makes an entry of a directory in a block.
func blockEntry(number int, kind byte, name string) []byte {
	b := append(be.AppendUint64(nil, uint64(number)), byte(len(name)))
	b = append(append(b, name...), kind)
	for len(b)%8 != 6 {
		b = append(b, 0)
	}
	return append(b, 0, 0) // where it begins
}

// unused makes an unused area.
func unused(size int) []byte {
	b := make([]byte, size)
	be.PutUint16(b, freeTag)
	be.PutUint16(b[2:], uint16(size))
	return b
}

// Paths resolve by the names and links in them, within the tree.
func TestPaths(t *testing.T) {
	m := newMemory()
	m.directory(rootNumber, rootNumber, localEntry(70, isDir, "d"), localEntry(71, isLink, "l"),
		localEntry(72, isLink, "a"), localEntry(73, isLink, "z"))
	m.directory(70, rootNumber, localEntry(74, isFile, "x"), localEntry(75, isLink, "u"), localEntry(76, isLink, "o"),
		localEntry(77, isDir, "e"), localEntry(78, isFile, "k"))
	m.link(71, "d/x")
	m.link(72, "/d")
	m.link(73, "")
	m.file(74, 60, "content")
	m.link(75, "../../..//./d/x")
	m.link(76, "o")
	m.directory(77, 0) // it does not name its parent
	m.link(78, "x")    // it is not what its entry says
	for path, want := range map[string]uint64{
		".": 64, "d": 70, "d/x": 74, "l": 74, "a": 70, "a/x": 74, "d/u": 74, "a/u": 74,
	} {
		st, err := m.f.Stat(path)
		if err != nil || st.Sys().(*inode).ID() != want || st.Name() != path[strings.LastIndexByte(path, '/')+1:] ||
			st.IsDir() != (want == 64 || want == 70) {
			t.Errorf("%s: %+v, %v", path, st, err)
		}
	}
	for path, want := range map[string]uint64{"l": 71, "a": 72, "a/u": 75, "d/o": 76} {
		if st, err := m.f.Lstat(path); err != nil || st.Sys().(*inode).ID() != want {
			t.Errorf("%s itself: %+v, %v", path, st, err)
		}
	}
	if got, err := m.f.ReadLink("d/u"); err != nil || got != "../../..//./d/x" {
		t.Errorf("target %q, %v", got, err)
	}
	if b, err := fs.ReadFile(m.f, "a/u"); err != nil || string(b) != "content" {
		t.Errorf("content %q, %v", b, err)
	}
	for path, want := range map[string]error{
		"d/o": syscall.ELOOP, "d/o/x": syscall.ELOOP, "l/x": syscall.ENOTDIR, "d/x/y": syscall.ENOTDIR,
		"n": fs.ErrNotExist, "a/n": fs.ErrNotExist, "a/X": fs.ErrNotExist, "z": ErrDamaged, "z/x": ErrDamaged,
		"d/e/x": ErrDamaged, "d/k": ErrDamaged, "../d": fs.ErrInvalid, "/d": fs.ErrInvalid, "d\x00": fs.ErrInvalid,
	} {
		for op, try := range map[string]func() error{
			"stat":    func() error { _, err := m.f.Stat(path); return err },
			"open":    func() error { _, err := m.f.Open(path); return err },
			"readdir": func() error { _, err := m.f.ReadDir(path); return err },
		} {
			var told *fs.PathError
			if err := try(); !errors.Is(err, want) || !errors.As(err, &told) || told.Path != path || told.Op != op {
				t.Errorf("%s of %s: %v, want %v", op, path, err, want)
			}
		}
	}
	for path, try := range map[string]func(string) error{
		"n":   func(p string) error { _, err := m.f.Lstat(p); return err },
		"m":   func(p string) error { _, err := m.f.ReadLink(p); return err },
		"d/x": func(p string) error { _, err := m.f.ReadLink(p); return err },
		"l":   func(string) error { _, err := m.f.ReadDir("l"); return err },
		"d/e": func(string) error { _, err := m.f.ReadDir("d/e"); return err },
	} {
		if try(path) == nil {
			t.Errorf("%s is read", path)
		}
	}
}

// As many links as Linux follows are followed, and no more.
func TestManyLinks(t *testing.T) {
	m := newMemory()
	m.directory(rootNumber, rootNumber, localEntry(70, isLink, "l"), localEntry(71, isDir, "d"))
	m.directory(71, rootNumber)
	m.link(70, "/") // a path can repeat its name
	for links, want := range map[int]bool{inodefs.MaxSymlinks: true, inodefs.MaxSymlinks + 1: false} {
		_, err := m.f.Stat(strings.Repeat("l/", links) + "d")
		if (err == nil) != want || err != nil && !errors.Is(err, syscall.ELOOP) {
			t.Errorf("%d links: %v", links, err)
		}
	}
}

// Targets of links are in the inode or in blocks, which have headers in version 5.
func TestTargets(t *testing.T) {
	long := strings.Repeat("t", 1500)
	header := func(m *memory, block, at, count int) {
		m.f.superblock.version = version5
		b := m.b[block<<10:][:1024]
		clear(b[:targetHeaderSize])
		copy(b, targetMagic)
		be.PutUint32(b[4:], uint32(at))
		be.PutUint32(b[8:], uint32(count))
		be.PutUint64(b[32:], 80)
		be.PutUint64(b[40:], uint64(block)*2)
		seal(b, 12)
	}
	two := slices.Concat(extent(0, 60, 1, false), extent(1, 62, 1, false))
	for name, c := range map[string]struct {
		size   int
		fork   []byte
		change func(m *memory)
		want   int // bytes
		bad    string
	}{
		"a block":     {900, extent(0, 60, 1, false), nil, 900, ""},
		"two blocks":  {1024, extent(0, 60, 2, false), nil, 1024, ""},
		"two pieces":  {1024, two, nil, 1024, ""},
		"more":        {1025, two, nil, 0, "a symbolic link of 1025 bytes"},
		"nothing":     {0, two, nil, 0, "a symbolic link of 0 bytes"},
		"a hole":      {900, extent(1, 60, 1, false), nil, 0, "in a hole"},
		"not written": {900, extent(0, 60, 1, true), nil, 0, "in a hole"},
		"large piece": {900, extent(0, 60, 4, false), nil, 0, "4 blocks in a hole or in one piece"},
		"nowhere":     {900, extent(0, 127, 1, false), nil, 0, "block 127 of group 0"},
		"a zero":      {900, extent(0, 60, 1, false), func(m *memory) { m.b[60<<10+899] = 0 }, 0, "zero in it"},
		"a zero after it": {
			900, extent(0, 60, 1, false), func(m *memory) { m.b[60<<10+900] = 0 }, 900, "",
		},
		"v5":       {968, extent(0, 60, 1, false), func(m *memory) { header(m, 60, 0, 968) }, 968, ""},
		"v5 magic": {9, extent(0, 60, 1, false), func(m *memory) { m.f.superblock.version = 5 }, 0, "checksum"},
		"v5 at":    {9, extent(0, 60, 1, false), func(m *memory) { header(m, 60, 1, 9) }, 0, "9 bytes from byte 1"},
		"v5 none":  {9, extent(0, 60, 1, false), func(m *memory) { header(m, 60, 0, 0) }, 0, "0 bytes from byte 0"},
		"v5 more":  {9, extent(0, 60, 1, false), func(m *memory) { header(m, 60, 0, 10) }, 0, "10 bytes from byte 0"},
		"v5 much":  {999, extent(0, 60, 1, false), func(m *memory) { header(m, 60, 0, 969) }, 0, "969 bytes from"},
		"v5 pieces": {1000, two, func(m *memory) {
			header(m, 60, 0, 968)
			header(m, 62, 968, 32)
		}, 1000, ""},
		"v5 other order": {1000, two, func(m *memory) {
			header(m, 60, 968, 32)
			header(m, 62, 0, 968)
		}, 0, "32 bytes from byte 968"},
	} {
		m := newMemory()
		for block := 60; block < 64; block++ {
			copy(m.b[block<<10:][:1024], long)
		}
		if c.change != nil {
			c.change(m)
		}
		m.reset(bytes.NewReader(m.b))
		got, err := m.f.readLinkTarget(&inode{
			number: 80, mode: inodefs.ModeLink, form: formExtents, size: int64(c.size), fork: c.fork,
		})
		checkError(t, name, err, c.bad)
		if got != long[:c.want] {
			t.Errorf("%s: %d bytes, want %d", name, len(got), c.want)
		}
	}
}

// A directory in its inode is read up to the first entry that does not fit.
func TestLocalDirectory(t *testing.T) {
	list := func(counts string, parts ...[]byte) []byte { return append([]byte(counts), slices.Concat(parts...)...) }
	up, good := []byte{0, 0, 0, 90}, localEntry(72, 1, "a")
	wide := func(kind byte, name string) []byte {
		b := append([]byte{byte(len(name)), 0, 0}, name...)
		return append(append(b, kind), 0xff, 0, 0, 0, 1, 0, 0, 5) // the upper 8 bits are not of the number
	}
	untyped := append(slices.Clone(localEntry(71, 0, "a")[:4]), 0, 0, 0, 71)
	for name, c := range map[string]struct {
		b       []byte
		names   string
		untyped bool
		want    string
	}{
		"empty":         {list("\x00\x00", up), "", false, ""},
		"names":         {list("\x02\x00", up, localEntry(71, 1, "b"), localEntry(72, 1, "a")), "b=71,a=72", false, ""},
		"fewer":         {list("\x01\x00", up, localEntry(71, 1, "b"), localEntry(72, 1, "a")), "b=71", false, ""},
		"more":          {list("\x02\x00", up, localEntry(71, 1, "b")), "b=71", false, "an entry of 8 bytes in 0"},
		"cut":           {list("\x01\x00", up, localEntry(71, 1, "b")[:8]), "", false, "an entry of 9 bytes in 8"},
		"longer name":   {list("\x01\x00", up, []byte("\xffaaname")), "", false, "an entry of 263 bytes"},
		"wide":          {list("\x01\x01", up, up, wide(1, "c")), "c=16777221", false, ""},
		"wide, cut":     {list("\x01\x01", up, up, wide(1, "c")[:12]), "", false, "an entry of 13 bytes in 12"},
		"no parent":     {list("\x00\x00", up[:3]), "", false, "it has 5 bytes"},
		"wide parent":   {list("\x00\x01", up, up[:3]), "", false, "it has 9 bytes"},
		"nothing":       {nil, "", false, "it has 0 bytes"},
		"without types": {list("\x01\x00", up, untyped), "a=71", true, ""},
		"root":          {list("\x02\x00", up, localEntry(64, 2, "r"), good), "a=72", false, "the root"},
		"slash":         {list("\x02\x00", up, localEntry(71, 1, "a/"), good), "a=72", false, "slash"},
		"zero":          {list("\x02\x00", up, localEntry(71, 1, "a\x00"), good), "a=72", false, "zero"},
		"no name":       {list("\x02\x00", up, localEntry(71, 1, ""), good), "a=72", false, "is empty"},
	} {
		m := newMemory()
		if c.untyped {
			m.f.superblock.features = 0
		}
		l := dirReader{fs: m.f, dir: &inode{number: 70, mode: inodefs.ModeDir}}
		err := l.readLocal(c.b)
		if err == nil {
			err = l.firstDamage
		}
		checkError(t, name, err, c.want)
		checkNames(t, name, &l, c.names)
	}
}

// checkNames compares the entries that were read, in their order.
func checkNames(t *testing.T, name string, l *dirReader, want string) {
	t.Helper()
	l.setNames()
	var got []string
	for _, e := range l.entries {
		got = append(got, fmt.Sprintf("%s=%d", e.EntryName, e.At.inodeNumber))
	}
	if strings.Join(got, ",") != want {
		t.Errorf("%s: %q, want %q", name, got, want)
	}
}

// The entries of a block are read up to the first one that does not fit.
func TestBlockEntries(t *testing.T) {
	a := blockEntry(71, 1, "a")
	for name, c := range map[string]struct {
		parts  [][]byte
		names  string
		parent uint64
		want   string
	}{
		"none":        {nil, "", 0, ""},
		"the way up":  {[][]byte{blockEntry(70, 2, "."), blockEntry(9, 2, ".."), a}, "a=71", 9, ""},
		"two ways up": {[][]byte{blockEntry(9, 2, ".."), blockEntry(8, 2, "..")}, "", 9, ""},
		"unused":      {[][]byte{unused(16), blockEntry(71, 1, "long-name"), unused(8)}, "long-name=71", 0, ""},
		"odd unused":  {[][]byte{a, unused(12)}, "a=71", 0, "an unused area of 12 bytes"},
		"no area":     {[][]byte{a, {0xff, 0xff, 0, 0, 0, 0, 0, 0}}, "a=71", 0, "area of 0 bytes in 8"},
		"large area":  {[][]byte{{0xff, 0xff, 0, 16, 0, 0, 0, 0}}, "", 0, "an unused area of 16 bytes in 8"},
		"cut":         {[][]byte{a, blockEntry(72, 1, "abcd")[:8]}, "a=71", 0, "an entry of 16 bytes in 8"},
		"longer name": {[][]byte{{0, 0, 0, 0, 0, 0, 0, 9, 200, 'a', 1, 0, 0, 0, 0, 0}}, "", 0, "an entry of 216 bytes"},
		"few bytes":   {[][]byte{a, {1, 2, 3}}, "a=71", 0, "an entry of 3 bytes"},
	} {
		l := dirReader{fs: newMemory().f, dir: &inode{number: 70, mode: inodefs.ModeDir}}
		checkError(t, name, l.readEntries(slices.Concat(c.parts...)), c.want)
		checkNames(t, name, &l, c.names)
		if l.parentInode != c.parent {
			t.Errorf("%s: parent %d, want %d", name, l.parentInode, c.parent)
		}
	}
	l := dirReader{fs: newMemory().f, dir: &inode{number: 70}, entries: make([]dirEntry, maxDirEntries-1)}
	l.addEntry([]byte("a"), 71, isFile)
	if l.addEntry([]byte("b"), 72, isFile); !l.isFull || len(l.entries) != maxDirEntries || l.firstDamage == nil {
		t.Errorf("%d entries, %v", len(l.entries), l.firstDamage)
	}
}

// A directory of blocks is read block by block, none twice; much damage ends the read.
func TestDirectoryOfBlocks(t *testing.T) {
	pieces := func(blocks ...int) (out []byte) {
		for k, block := range blocks {
			if block > 0 {
				out = append(out, extent(uint64(k), uint64(block), 1, false)...)
			}
		}
		return out
	}
	damage := []int{60}
	for k := range maxDamagedBlocks {
		damage = append(damage, 70+k)
	}
	less := append(slices.Clone(damage[:maxDamagedBlocks]), 61)
	for name, c := range map[string]struct {
		fork  []byte
		count int // blocks
		log   uint
		names string
		want  string
	}{
		"two":          {pieces(60, 61), 2, 0, "a b", ""},
		"a hole":       {pieces(60, 0, 0, 61), 4, 0, "a b", ""},
		"shorter":      {pieces(60, 61), 1, 0, "a", ""},
		"twice":        {pieces(60, 61, 60), 3, 0, "a b", "twice"},
		"nowhere":      {pieces(60, 127, 61), 3, 0, "a", "block 127 of group 0"},
		"no block":     {pieces(60, 66, 61), 3, 0, "a b", "not one with entries"},
		"with index":   {pieces(62), 1, 0, "a", ""},
		"bad index":    {pieces(63), 1, 0, "", "its index has 126 entries"},
		"of version 5": {pieces(60, 64, 61), 3, 0, "a b", "not one with entries"},
		"other owner":  {pieces(60, 67, 61), 3, 0, "a b", "that of another directory"},
		"much damage":  {pieces(append(damage, 61)...), len(damage) + 1, 0, "a", "not one with entries"},
		"less damage":  {pieces(less...), len(less), 0, "a b", "not one with entries"},
		"larger":       {pieces(60, 69), 2, 1, "a", ""},
		"larger, hole": {pieces(60, 0, 61, 69), 4, 1, "b", "block 0 of it has a hole"},
		"larger away":  {pieces(60, 69, 0, 0, 61, 68), 6, 1, "a b", ""},
	} {
		m := newMemory()
		m.f.superblock.dirBlockLog = c.log
		write := func(block int, magic string, entries ...[]byte) {
			b := m.b[block<<10:][:1024]
			copy(b, magic)
			entries = append(entries, unused(1024<<c.log-16-len(slices.Concat(entries...))))
			copy(b[16:], slices.Concat(entries...))
		}
		up := slices.Concat(blockEntry(80, isDir, "."), blockEntry(rootNumber, isDir, ".."))
		write(60, "XD2D", up, blockEntry(71, isFile, "a"))
		write(61, "XD2D", up, blockEntry(72, isFile, "b"))
		for block, indexed := range map[int]int{62: 119, 63: 126} { // 119 leave place for three entries
			write(block, "XD2B", up, blockEntry(71, isFile, "a"))
			be.PutUint32(m.b[(block+1)<<10-8:], uint32(indexed))
		}
		write(64, "XDD3", up)
		m.put(80, inodefs.ModeDir|0o755, formExtents, c.count<<10, c.fork)
		m.f.owners.Claim(67, 99)
		n, err := m.f.readInode(80)
		if err != nil {
			t.Fatal(err)
		}
		list, err := m.f.listDir(n, rootNumber)
		var names []string
		for _, e := range list {
			names = append(names, e.EntryName)
		}
		checkError(t, name, err, c.want)
		if strings.Join(names, " ") != c.names {
			t.Errorf("%s: %q, want %q", name, names, c.names)
		}
	}
}

// A directory that does not name the one it is in, or has a name twice, is damaged.
func TestDirectoryGraph(t *testing.T) {
	m := newMemory()
	m.directory(rootNumber, 5, localEntry(70, isDir, "d"), localEntry(70, isDir, "e"), localEntry(71, isFile, "f"),
		localEntry(72, isFile, "f"), localEntry(73, isDir, "g"))
	m.directory(70, rootNumber, localEntry(70, isDir, "self"), localEntry(73, isDir, "g"))
	m.directory(73, 70)
	list, err := m.f.ReadDir(".")
	if len(list) != 3 || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), `has "e" twice`) {
		t.Errorf("%d entries, %v", len(list), err)
	}
	for path, want := range map[string]string{
		"d": "", "d/g": "", "g": "is in directory 64 and says that it is in 70",
		"d/self": "is in directory 70 and says that it is in 64",
	} {
		m.reset(bytes.NewReader(m.b))
		m.directory(rootNumber, rootNumber, localEntry(70, isDir, "d"), localEntry(73, isDir, "g"))
		_, err := m.f.ReadDir(path)
		checkError(t, path, err, want)
	}
	if err := fstest.TestFS(goodMemory().f, "d/x"); err != nil {
		t.Error(err)
	}
}

func goodMemory() *memory {
	m := newMemory()
	m.directory(rootNumber, rootNumber, localEntry(70, isDir, "d"), localEntry(71, isFile, "f"))
	m.directory(70, rootNumber, localEntry(72, isFile, "x"))
	m.file(71, 60, "f")
	m.file(72, 61, "content")
	return m
}

// A damaged directory returns its readable part, and its error once.
func TestDamagedDirectory(t *testing.T) {
	m := newMemory()
	m.directory(rootNumber, rootNumber, localEntry(70, isDir, "d"))
	m.directory(70, rootNumber, localEntry(71, isFile, "x"), localEntry(72, isFile, "y"), localEntry(73, isFile, "a/b"))
	m.file(71, 60, "content")
	list, err := m.f.ReadDir("d")
	if len(list) != 2 || !errors.Is(err, ErrDamaged) {
		t.Errorf("%d entries, %v", len(list), err)
	}
	if _, err := m.f.Stat("d/x"); err != nil {
		t.Errorf("what could be read is not found: %v", err)
	}
	if _, err := m.f.Stat("d/none"); !errors.Is(err, ErrDamaged) {
		t.Errorf("what could not be read is missing: %v", err)
	}
	open := func(name string) fs.ReadDirFile {
		f, err := m.f.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		return f.(fs.ReadDirFile)
	}
	d := open("d")
	if list, err := d.ReadDir(1); len(list) != 0 || !errors.Is(err, ErrDamaged) {
		t.Errorf("%d entries, %v", len(list), err)
	}
	if list, err := d.ReadDir(-1); len(list) != 2 || !errors.Is(err, ErrDamaged) {
		t.Errorf("%d entries, %v", len(list), err)
	}
	if list, err := d.ReadDir(-1); len(list) != 0 || err != nil {
		t.Errorf("%d entries once more, %v", len(list), err)
	}
	if _, err := d.Read(make([]byte, 1)); err == nil {
		t.Error("a directory is read as a file")
	}
}
