package ext4

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// tree is a small file system whose directories are in their inodes, made for one test.
type tree struct {
	f    *FS
	b    []byte
	next uint32
}

// newTree has a root without names. Inodes have 512 bytes and are in blocks 10 to 59.
func newTree(t *testing.T) *tree {
	t.Helper()
	f, b := blocksOf(200)
	f.superblock.inodeSize, f.superblock.descriptorSize, f.superblock.incompat = 512, 32, hasFileType|hasInline
	le.PutUint32(b[2048+8:], 10)
	f.superblock.firstBlock = 1
	tr := &tree{f: f, b: b, next: 11}
	tr.folder(rootInode, rootInode)
	return tr
}

func (t *tree) inode(number uint32) []byte { return t.b[10*1024+int(number-1)*512:][:512] }

// put writes an inode.
func (t *tree) put(number uint32, mode uint16, flags uint32, content []byte) {
	b := t.inode(number)
	clear(b)
	le.PutUint16(b, mode)
	le.PutUint32(b[32:], flags)
	le.PutUint32(b[4:], uint32(len(content)))
	copy(b[40:100], content)
	t.forget()
}

// forget clears the caches.
func (t *tree) forget() {
	t.f.pages, t.f.dirs = inodefs.NewPages(bytes.NewReader(t.b), int64(len(t.b)), 1024), newDirCache()
}

// folder writes a directory with names in its inode, of at most 60 bytes in all.
func (t *tree) folder(number, above uint32, entries ...[]byte) {
	b := le.AppendUint32(nil, above)
	for _, e := range entries {
		b = append(b, e...)
	}
	t.put(number, inodefs.ModeDir|0o755, flagInline, b)
}

// name makes an entry of a kind.
func name(number uint32, kind byte, text string) []byte {
	b := record(number, text, 0)
	b[7] = kind
	return b
}

// Paths resolve by the names and links in them, within the tree.
func TestPaths(t *testing.T) {
	tr := newTree(t)
	tr.folder(rootInode, rootInode, name(12, 2, "d"), name(13, 7, "l"), name(14, 7, "a"), name(18, 7, "z"))
	tr.folder(12, rootInode, name(15, 1, "x"), name(16, 7, "u"), name(17, 7, "o"), name(19, 2, "e"))
	tr.put(13, inodefs.ModeLink|0o777, 0, []byte("d/x"))
	tr.put(14, inodefs.ModeLink|0o777, 0, []byte("/d"))
	tr.put(15, inodefs.ModeRegular|0o644, flagInline, []byte("content"))
	tr.put(16, inodefs.ModeLink|0o777, 0, []byte("../../..//./d/x"))
	tr.put(17, inodefs.ModeLink|0o777, 0, []byte("o"))
	tr.put(18, inodefs.ModeLink|0o777, 0, nil)
	tr.folder(19, 0) // it does not name its parent
	for path, want := range map[string]uint64{
		".": 2, "d": 12, "d/x": 15, "l": 15, "a": 12, "a/x": 15, "d/u": 15, "a/u": 15,
	} {
		st, err := tr.f.Stat(path)
		if err != nil || st.Sys().(*inode).ID() != want || st.Name() != path[strings.LastIndexByte(path, '/')+1:] ||
			st.IsDir() != (want == 2 || want == 12) {
			t.Errorf("%s: %+v, %v", path, st, err)
		}
	}
	for path, want := range map[string]uint64{"l": 13, "a": 14, "a/u": 16, "d/o": 17} {
		if st, err := tr.f.Lstat(path); err != nil || st.Sys().(*inode).ID() != want {
			t.Errorf("%s itself: %+v, %v", path, st, err)
		}
	}
	for path, want := range map[string]error{
		"d/o": syscall.ELOOP, "d/o/x": syscall.ELOOP, "l/x": syscall.ENOTDIR, "d/x/y": syscall.ENOTDIR,
		"n": fs.ErrNotExist, "a/n": fs.ErrNotExist, "a/X": fs.ErrNotExist, "z": ErrDamaged, "z/x": ErrDamaged,
		"d/e/x": ErrDamaged,
	} {
		for op, try := range map[string]func() error{
			"stat":    func() error { _, err := tr.f.Stat(path); return err },
			"open":    func() error { _, err := tr.f.Open(path); return err },
			"readdir": func() error { _, err := tr.f.ReadDir(path); return err },
		} {
			var told *fs.PathError
			if err := try(); !errors.Is(err, want) || !errors.As(err, &told) || told.Path != path || told.Op != op {
				t.Errorf("%s of %s: %v, want %v", op, path, err, want)
			}
		}
	}
	for _, path := range []string{"n", "d/x/y"} {
		if _, err := tr.f.Lstat(path); err == nil {
			t.Errorf("%s is there", path)
		}
		if _, err := tr.f.ReadLink(path); err == nil {
			t.Errorf("%s is there", path)
		}
	}
	if _, err := tr.f.ReadDir("d/x"); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a file is read as a folder: %v", err)
	}
	if _, err := tr.f.ReadDir("d/e"); !errors.Is(err, ErrDamaged) {
		t.Errorf("a folder that lies nowhere: %v", err)
	}

	// A directory that ignores case finds both, the same spelling first.
	le.PutUint32(tr.inode(12)[32:], flagInline|flagCaseFold)
	tr.forget()
	for path, want := range map[string]bool{"d/X": true, "d/x": true, "D": false, "d/y": false} {
		if _, err := tr.f.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// As many links as Linux follows are followed, and no more.
func TestManyLinks(t *testing.T) {
	tr := newTree(t)
	tr.folder(rootInode, rootInode, name(50, 7, "l"), name(12, 2, "d"))
	tr.folder(12, rootInode)
	for links, want := range map[int]bool{inodefs.MaxSymlinks: true, inodefs.MaxSymlinks + 1: false} {
		// The link is to the root, so a path can repeat its name.
		tr.put(50, inodefs.ModeLink|0o777, 0, []byte("/"))
		_, err := tr.f.Stat(strings.Repeat("l/", links) + "d")
		if (err == nil) != want || err != nil && !errors.Is(err, syscall.ELOOP) {
			t.Errorf("%d links: %v", links, err)
		}
	}
}

// Targets of links are in the inode, in a block, or nowhere.
func TestTargets(t *testing.T) {
	tr := newTree(t)
	long := strings.Repeat("t", 1024)
	copy(tr.b[70*1024:], long)
	block := func(size int) func(b []byte) {
		return func(b []byte) {
			le.PutUint32(b[4:], uint32(size))
			clear(b[40:100])
			le.PutUint32(b[40:], 70)
		}
	}
	for name, c := range map[string]struct {
		content string
		flags   uint32
		change  func(b []byte)
		want    string
		bad     string
	}{
		"short":        {"target", 0, nil, "target", ""},
		"59 bytes":     {long[:59], 0, nil, long[:59], ""},
		"60 bytes":     {"", 0, block(60), long[:60], ""},
		"a block":      {"", 0, block(1024), long, ""},
		"more":         {"", 0, block(1025), "", "a symbolic link of 1025 bytes"},
		"nothing":      {"", 0, nil, "", "a symbolic link of 0 bytes"},
		"inline":       {"inlined", flagInline, nil, "inlined", ""},
		"with a zero":  {"tar\x00et", 0, nil, "", "zero in it"},
		"encrypted":    {"target", flagEncrypted, nil, "", "encrypted"},
		"lies nowhere": {"", 0, func(b []byte) { block(60)(b); le.PutUint32(b[40:], 500) }, "", "are at 500 of 200"},
		"rest nowhere": {"", flagInline, func(b []byte) {
			le.PutUint32(b[4:], 100)
			le.PutUint32(b[128:], attrMagic)
			b[132], b[133], b[134] = 4, attrSystemIndex, 255
			b[135] = 255
			copy(b[148:], attrData)
		}, "", "outside the inode"},
		"inline, wrong": {"target", flagInline, func(b []byte) { b[128] = 3 }, "", "size 3 of its extra fields"},
	} {
		tr.put(20, inodefs.ModeLink|0o777, c.flags, []byte(c.content))
		if c.change != nil {
			c.change(tr.inode(20))
		}
		tr.forget()
		n, err := tr.f.readInode(20)
		got := ""
		if err == nil {
			got, err = tr.f.readLinkTarget(n)
		}
		if got != c.want || (err == nil) != (c.bad == "") || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.bad)
		}
	}
	tr.put(20, inodefs.ModeRegular, 0, []byte("target"))
	n, err := tr.f.readInode(20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.f.readLinkTarget(n); err == nil {
		t.Error("a file has a target")
	}
}

// Inodes and blocks beyond the last one are reported as damage.
func TestPlaces(t *testing.T) {
	tr := newTree(t)
	for number, want := range map[uint32]bool{0: false, 1: true, 100: true, 101: false} {
		if _, err := tr.f.readInode(number); (err == nil) != want || err != nil &&
			(!errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), fmt.Sprintf("inode %d of 100", number))) {
			t.Errorf("inode %d: %v", number, err)
		}
	}
	var into []byte
	for place, want := range map[uint64]bool{0: false, 1: true, 199: true, 200: false} {
		_, kept := tr.f.readBlock(place)
		_, past := tr.f.readBlockInto(place, &into)
		if (kept == nil) != want || (past == nil) != want {
			t.Errorf("block %d: %v, %v", place, kept, past)
		}
	}
	for block, want := range map[uint32]bool{0: false, 1: true, 199: true, 200: false} {
		le.PutUint32(tr.b[2048+8:], block)
		tr.forget()
		if _, err := tr.f.inodeTableOffset(0); (err == nil) != want {
			t.Errorf("inodes at block %d: %v", block, err)
		}
	}
	cut := tr.b[:1500]
	tr.f.pages = inodefs.NewPages(bytes.NewReader(cut), int64(len(cut)), 1024)
	if _, err := tr.f.inodeTableOffset(0); !errors.Is(err, ErrDamaged) ||
		!strings.Contains(err.Error(), "descriptor of block group 0") {
		t.Errorf("a descriptor behind the end: %v", err)
	}
}

// A damaged directory returns its readable part, and its error once.
func TestDamagedDirectory(t *testing.T) {
	tr := newTree(t)
	tr.folder(rootInode, rootInode, name(12, 2, "d"), name(13, 2, "e"))
	tr.folder(12, rootInode, name(15, 1, "x"), name(16, 1, "y"), record(17, "z", 14))
	tr.folder(13, rootInode, record(17, "z", 14))
	tr.put(15, inodefs.ModeRegular|0o644, flagInline, []byte("content"))
	list, err := tr.f.ReadDir("d")
	if len(list) != 2 || !errors.Is(err, ErrDamaged) {
		t.Errorf("%d entries, %v", len(list), err)
	}
	if _, err := tr.f.Stat("d/x"); err != nil {
		t.Errorf("what could be read is not found: %v", err)
	}
	if _, err := tr.f.Stat("d/none"); !errors.Is(err, ErrDamaged) {
		t.Errorf("what could not be read is said to be missing: %v", err)
	}
	open := func(name string) fs.ReadDirFile {
		f, err := tr.f.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		return f.(fs.ReadDirFile)
	}
	d := open("d")
	if list, err := d.ReadDir(-1); len(list) != 2 || !errors.Is(err, ErrDamaged) {
		t.Errorf("%d entries, %v", len(list), err)
	}
	if list, err := d.ReadDir(-1); len(list) != 0 || err != nil {
		t.Errorf("%d entries once more, %v", len(list), err)
	}
	if list, err := open("d").ReadDir(1); len(list) != 0 || !errors.Is(err, ErrDamaged) {
		t.Errorf("%d entries, %v", len(list), err)
	}
	if list, err := open("e").ReadDir(-1); len(list) != 0 || !errors.Is(err, ErrDamaged) {
		t.Errorf("%d entries of none, %v", len(list), err)
	}
	root := open(".")
	if list, err := root.ReadDir(1); len(list) != 1 || err != nil {
		t.Errorf("%d entries, %v", len(list), err)
	}
	if list, err := root.ReadDir(0); len(list) != 1 || err != nil {
		t.Errorf("%d entries that are left, %v", len(list), err)
	}
	if list, err := root.ReadDir(1); len(list) != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%d entries, %v", len(list), err)
	}
	if _, err := root.Read(make([]byte, 1)); err == nil {
		t.Error("a folder is read as a file")
	}
}

// An entry has the type of its file, where the file system stores it and knows the type.
func TestKindsOfNames(t *testing.T) {
	tr := newTree(t)
	tr.put(15, inodefs.ModeFIFO, 0, nil)
	l := dirReader{fs: tr.f, dir: &inode{number: 5}}
	for kind, want := range map[byte]fs.FileMode{
		0: fs.ModeNamedPipe, 1: 0, 2: fs.ModeDir, 3: fs.ModeDevice | fs.ModeCharDevice, 4: fs.ModeDevice,
		5: fs.ModeNamedPipe, 6: fs.ModeSocket,
		7: fs.ModeSymlink, 8: fs.ModeNamedPipe, 255: fs.ModeNamedPipe,
	} {
		if got := l.entryMode(kind, 15); got != want {
			t.Errorf("kind %d: %v, want %v", kind, got, want)
		}
	}
	if got := l.entryMode(0, 500); got != fs.ModeIrregular {
		t.Errorf("an inode that is not there: %v", got)
	}
	tr.f.superblock.incompat = 0
	if got := l.entryMode(1, 15); got != fs.ModeNamedPipe {
		t.Errorf("names without kinds: %v", got)
	}
	if _, err := (&dirEntry{EntryType: fs.ModeNamedPipe, At: place{fs: tr.f, inodeNumber: 15}}).Open(); err == nil {
		t.Error("a pipe is opened")
	}
	for _, number := range []uint32{15, 500} {
		e := &dirEntry{At: place{fs: tr.f, inodeNumber: number}}
		_, opened := e.Open()
		_, listed := e.ReadDir()
		_, told := e.Info()
		if opened == nil || listed == nil || told == nil {
			t.Errorf("inode %d as a file: %v, %v, %v", number, opened, listed, told)
		}
	}
}

// A directory of blocks is read block by block, none twice; a limit of damage or of entries ends
// the read.
func TestDirectoryOfBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		blocks []uint32
		names  int
		want   string
	}{
		"two":          {[]uint32{70, 71}, 2, ""},
		"a hole":       {[]uint32{70, 0, 71}, 2, ""},
		"one twice":    {[]uint32{70, 71, 70}, 2, "block 70 twice"},
		"behind":       {[]uint32{70, 500, 71}, 1, "are at 500 of 200"},
		"much damage":  {[]uint32{70, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90}, 1, "an entry of 5 bytes"},
		"not the last": {[]uint32{80, 70}, 1, "an entry of 5 bytes"},
	} {
		tr := newTree(t)
		tr.put(30, inodefs.ModeDir|0o755, 0, nil)
		b := tr.inode(30)
		le.PutUint32(b[4:], uint32(len(c.blocks)*1024))
		for k, place := range c.blocks {
			le.PutUint32(b[40+4*k:], place)
		}
		up := append(record(30, ".", 0), record(2, "..", 0)...)
		copy(tr.b[70*1024:], append(up, record(15, "first", 1000)...))
		copy(tr.b[71*1024:], record(16, "second", 1024))
		for k := 80; k < 100; k++ {
			le.PutUint16(tr.b[k*1024+4:], 5)
		}
		n, err := tr.f.readInode(30)
		if err != nil {
			t.Fatal(err)
		}
		list, err := tr.f.listDir(n, rootInode)
		if len(list) != c.names || (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d names, %v, want %q", name, len(list), err, c.want)
		}
	}
	tr := newTree(t)
	l := dirReader{fs: tr.f, dir: &inode{number: 30}}
	le.PutUint16(tr.b[80*1024+4:], 5)
	var into []byte
	for k := 1; k <= maxDamagedBlocks; k++ {
		if more := l.readBlock(80, &into); more != (k < maxDamagedBlocks) {
			t.Errorf("damage %d: continues: %v", k, more)
		}
	}
	copy(tr.b[71*1024:], record(16, "second", 1024))
	for have, want := range map[int]bool{maxDirEntries - 2: true, maxDirEntries - 1: false} {
		l = dirReader{fs: tr.f, dir: &inode{number: 31}, entries: make([]dirEntry, have, maxDirEntries+8)}
		if more := l.readBlock(71, &into); more != want || l.firstDamage != nil {
			t.Errorf("%d entries and one: continues: %v, %v", have, more, l.firstDamage)
		}
	}
}

// The checksum after the entries of a block counts where it exists, and only there.
func TestTails(t *testing.T) {
	f := &FS{superblock: &superblock{blockSize: 1024, roCompat: roMetaChecksums}}
	l := dirReader{fs: f, dir: &inode{number: 30}}
	tail := func(change func(tail []byte)) []byte {
		b := make([]byte, 1024)
		copy(b, record(15, "first", 1012))
		end := b[1012:]
		end[4], end[7] = tailSize, tailKind
		le.PutUint32(end[8:], checksum(f.checksumSeed(l.dir), b[:1012]))
		change(end)
		return b
	}
	for name, c := range map[string]struct {
		change func(tail []byte)
		left   int // bytes; 0 = it is damaged
	}{
		"right":       {func([]byte) {}, 1012},
		"wrong":       {func(b []byte) { b[8]++ }, 0},
		"an inode":    {func(b []byte) { b[0], b[8] = 1, 0 }, 1024},
		"length":      {func(b []byte) { b[4], b[8] = 16, 0 }, 1024},
		"with a name": {func(b []byte) { b[6], b[8] = 1, 0 }, 1024},
		"of a file":   {func(b []byte) { b[7], b[8] = 1, 0 }, 1024},
	} {
		got, err := l.verifyBlock(tail(c.change))
		if len(got) != c.left || (err != nil) != (c.left == 0) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	f.superblock.roCompat = 0
	if got, err := l.verifyBlock(tail(func(b []byte) { b[8]++ })); len(got) != 1024 || err != nil {
		t.Errorf("without checksums: %d bytes, %v", len(got), err)
	}
}

// A read error of the disk is returned, with what could be read before it.
func TestUnreadable(t *testing.T) {
	tr := newTree(t)
	tr.put(30, inodefs.ModeRegular, 0, nil)
	b := tr.inode(30)
	le.PutUint32(b[4:], 3*1024+10)
	for k, place := range []uint32{70, 0, 72, 73} {
		le.PutUint32(b[40+4*k:], place)
	}
	n, err := tr.f.readInode(30)
	if err != nil {
		t.Fatal(err)
	}
	r := &treetest.Reader{Bytes: tr.b}
	tr.f.r = r
	open := func() *file {
		f, err := tr.f.openInode(n, 2, "name")
		if err != nil {
			t.Fatal(err)
		}
		return f.(*file)
	}
	p := bytes.Repeat([]byte{1}, 5000)
	if got, err := open().ReadAt(p, 0); got != 3*1024+10 || !errors.Is(err, io.EOF) ||
		!bytes.Equal(p[:got], make([]byte, got)) {
		t.Errorf("%d bytes, %v", got, err)
	}
	if len(r.Offsets) != 2 {
		t.Errorf("%d runs were read", len(r.Offsets))
	}
	if got, err := open().ReadAt(p[:100], 3*1024+10); got != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %d bytes, %v", got, err)
	}
	r.FailFrom = 72*1024 + 1
	if got, err := open().ReadAt(p, 0); got != 2048 || !errors.Is(err, treetest.ErrRead) || errors.Is(err, ErrDamaged) {
		t.Errorf("a part cannot be read: %d bytes, %v", got, err)
	}
	small := open()
	if got, err := small.Read(p[:10]); got != 10 || err != nil {
		t.Errorf("a read before it: %d bytes, %v", got, err)
	}
	if got, err := io.ReadFull(small, p[:2038]); got != 2038 || err != nil {
		t.Errorf("a read up to it: %d bytes, %v", got, err)
	}
	if got, err := small.Read(p[:10]); got != 0 || !errors.Is(err, treetest.ErrRead) {
		t.Errorf("a read of it: %d bytes, %v", got, err)
	}
	r.FailFrom, r.Bytes = 0, tr.b[:72*1024+5]
	if got, err := open().ReadAt(p, 0); got != 2053 || !errors.Is(err, ErrDamaged) {
		t.Errorf("a disk that was cut: %d bytes, %v", got, err)
	}
	// large reads bypass the read-ahead buffer
	for _, size := range []int{readAheadBytes - 1, readAheadBytes, readAheadBytes + 1} {
		r.Bytes, r.Offsets = tr.b, nil
		f := open()
		if got, err := f.Read(make([]byte, size)); got != 3*1024+10 || err != nil {
			t.Errorf("a read of %d bytes: %d, %v", size, got, err)
		}
		if kept := cap(f.buf) > 0; kept != (size < readAheadBytes) {
			t.Errorf("a read of %d bytes is kept: %v", size, kept)
		}
		if got, err := f.Read(make([]byte, size)); got != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("behind the end: %d, %v", got, err)
		}
	}
	inlined := &inode{number: 3, flags: flagInline, size: 100}
	copy(inlined.blockMap[:], "text")
	c, err := tr.f.openContent(inlined)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.ReadAt(p[:200], 2); got != 98 || !errors.Is(err, io.EOF) || string(p[:3]) != "xt\x00" ||
		p[97] != 0 {
		t.Errorf("%d bytes, %v", got, err)
	}
	inlined.inlineAttrs = append(le.AppendUint32(nil, attrMagic),
		fmt.Append(nil, "\x04\x07\xff\x00", strings.Repeat("\x00", 12), attrData)...)
	if _, err := tr.f.openContent(inlined); !errors.Is(err, ErrDamaged) {
		t.Errorf("the rest lies nowhere: %v", err)
	}
}

// An unreadable superblock is an error, and so is a missing one: ErrNotExt.
func TestReadSuper(t *testing.T) {
	b := treetest.Unpacked(t, "testdata/checked.img.zst")
	_, err := Open(&treetest.Reader{Bytes: b, FailFrom: 1}, int64(len(b)))
	if !errors.Is(err, treetest.ErrRead) || errors.Is(err, ErrNotExt) {
		t.Errorf("%v", err)
	}
	seal := func(b []byte) { le.PutUint32(b[superChecksumOffset:], checksum(^uint32(0), b[:superChecksumOffset])) }
	for name, c := range map[string]struct {
		change func(b []byte)
		want   string
	}{
		"other checksum": {func(b []byte) { b[checksumTypeOffset] = 2; seal(b) }, "unsupported checksum type (2)"},
		"2^17":           {func(b []byte) { b[24] = 7; seal(b) }, "2^17 bytes"},
		"sealed":         {func(b []byte) { b[120] = 'x'; seal(b) }, ""},
		"not sealed":     {func(b []byte) { b[120] = 'x' }, "what its checksum says"},
	} {
		changed := bytes.Clone(b)
		c.change(changed[1024:2048])
		_, err := readSuperblock(bytes.NewReader(changed))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	group := bytes.Clone(b)
	group[2048+0x10]++
	if _, err := Open(bytes.NewReader(group), int64(len(b))); err == nil ||
		!strings.Contains(err.Error(), "the descriptor of group 0 is not what its checksum says") {
		t.Errorf("a descriptor that was changed: %v", err)
	}
	large := bytes.Clone(b)
	large[1024+24] = 6
	seal(large[1024:2048])
	if s, err := readSuperblock(bytes.NewReader(large)); err != nil || s.blockSize != maxBlockSize {
		t.Errorf("blocks of 64 KiB: %v", err)
	}
	for state, want := range map[uint16]int{stateClean: 0, stateErrors: 1} {
		le.PutUint16(b[1024+58:], state)
		b[1024+96] |= hasRecovery
		seal(b[1024:2048])
		f, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil || len(f.Notes()) != 1+want {
			t.Errorf("state %d: %v", state, err)
		}
	}
}
