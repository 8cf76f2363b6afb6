package xfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// errFaulty is the error of a disk that cannot be read at some offset.
var errFaulty = errors.New("faulty")

// faulty is a disk that counts reads, and fails at an offset; 0 = nowhere.
type faulty struct {
	b     []byte
	fail  int64
	reads int
}

func (f *faulty) ReadAt(p []byte, off int64) (int, error) {
	f.reads++
	if f.fail > 0 && off <= f.fail && f.fail < off+int64(len(p)) {
		return copy(p, f.b[off:f.fail]), errFaulty
	}
	return bytes.NewReader(f.b).ReadAt(p, off)
}

// A file is read run by run. A read error of the disk is returned, with what could be read before it.
func TestContent(t *testing.T) {
	m := newMemory()
	want := make([]byte, 7*1024+10)
	list := slices.Concat(extent(0, 60, 2, false), extent(3, 70, 1, false), extent(4, 80, 2, true),
		extent(6, 62, 2, false))
	for k := range want {
		want[k] = byte(1 + k%251)
	}
	copy(m.b[60<<10:], want[:2048])
	copy(m.b[70<<10:], want[3072:4096])
	copy(m.b[62<<10:], want[6144:])
	clear(want[2048:3072])
	clear(want[4096:6144])
	copy(m.b[80<<10:], "not written")
	m.put(81, inodefs.ModeRegular|0o644, formExtents, len(want), list)
	disk := &faulty{b: m.b}
	m.reset(disk)
	n, err := m.f.readInode(81)
	if err != nil {
		t.Fatal(err)
	}
	type file interface {
		fs.File
		io.ReaderAt
	}
	open := func() file {
		f, err := m.f.openInode(n, rootNumber, "a/name")
		if err != nil {
			t.Fatal(err)
		}
		return f.(file)
	}
	disk.reads = 0
	f := open()
	got, err := io.ReadAll(f)
	st, _ := f.Stat()
	if err != nil || !bytes.Equal(got, want) || st.Name() != "name" || st.Size() != int64(len(want)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	p := make([]byte, 2*len(want))
	disk.reads = 0
	if n, err := f.ReadAt(p, 0); n != len(want) || !errors.Is(err, io.EOF) || !bytes.Equal(p[:n], want) ||
		disk.reads != 3 {
		t.Errorf("%d bytes, %v, %d reads of the disk", n, err, disk.reads)
	}
	for _, off := range []int{1, 1023, 2047, 2048, 3071, 3500, 6143, 7 * 1024} {
		n, err := f.ReadAt(p[:100], int64(off))
		end := min(off+100, len(want))
		if n != end-off || !bytes.Equal(p[:n], want[off:end]) || (err != nil) != (n < 100) {
			t.Errorf("at %d: %d bytes, %v", off, n, err)
		}
	}
	disk.fail = 70<<10 + 5
	if n, err := f.ReadAt(p, 0); n != 3077 || !errors.Is(err, errFaulty) || errors.Is(err, ErrDamaged) {
		t.Errorf("a part cannot be read: %d bytes, %v", n, err)
	}
	disk.fail, disk.b = 0, m.b[:63<<10] // the rest is cut off
	if n, err := f.ReadAt(p, 6144); n != 1024 || !errors.Is(err, ErrDamaged) ||
		!strings.Contains(err.Error(), "inode 81: the file system is damaged: its block 6 is past the end") {
		t.Errorf("a disk that was cut: %d bytes, %v", n, err)
	}
}

// A hole of any size reads as zeros, and content on another device is refused.
func TestOddFiles(t *testing.T) {
	m := newMemory()
	huge := &inode{number: 81, mode: inodefs.ModeRegular, form: formExtents, size: 1<<63 - 1}
	f, err := m.f.openInode(huge, rootNumber, "huge")
	if err != nil {
		t.Fatal(err)
	}
	p := []byte("0123456789")
	if n, err := f.(io.ReaderAt).ReadAt(p, 1<<63-6); n != 5 || !errors.Is(err, io.EOF) ||
		string(p) != "\x00\x00\x00\x00\x0056789" {
		t.Errorf("%d bytes, %q, %v", n, p, err)
	}
	if n, err := f.Read(p); n != 10 || err != nil || !bytes.Equal(p, make([]byte, 10)) {
		t.Errorf("%d bytes, %q, %v", n, p, err)
	}
	huge.realtime = true
	if _, err := m.f.openInode(huge, rootNumber, "huge"); !errors.Is(err, ErrRealtime) {
		t.Errorf("a file on a realtime device: %v", err)
	}
	huge.size = 0
	if _, err := m.f.openInode(huge, rootNumber, "empty"); err != nil {
		t.Errorf("an empty file for a realtime device: %v", err)
	}
	m.put(82, inodefs.ModeFIFO, 0, 0, nil)
	m.directory(rootNumber, rootNumber, localEntry(82, 5, "pipe"), localEntry(83, isLink, "link"))
	m.link(83, "pipe")
	list, err := m.f.ReadDir(".")
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, e := range list {
		alone := e.(*dirEntry).Alone()
		if _, err := alone.(*dirEntry).Open(); err == nil {
			t.Errorf("%s is opened", alone.Name())
		}
		if _, err := alone.(*dirEntry).ReadDir(); err == nil {
			t.Errorf("%s is listed", alone.Name())
		}
		if info, err := alone.Info(); err != nil || info.Mode().Type() != e.Type() {
			t.Errorf("%s: %v", alone.Name(), err)
		}
	}
	clear(m.b[82*512:][:512])
	m.reset(bytes.NewReader(m.b))
	_, listed := list[1].(*dirEntry).ReadDir()
	_, opened := list[1].(*dirEntry).Open()
	if _, err := list[1].Info(); err == nil || listed == nil || opened == nil {
		t.Errorf("an inode that was cleared is read: %v, %v, %v", err, listed, opened)
	}
}

// The log of a file system that was unmounted ends with the record of that.
func TestLog(t *testing.T) {
	const start, sectors = 300, 20 // block, and sectors of the log
	record := func(b []byte, at, cycle, data, operations int) {
		r := b[(at%sectors)*512:][:512]
		be.PutUint32(r, recordMagic)
		be.PutUint32(r[4:], uint32(cycle))
		be.PutUint32(r[8:], 2)
		be.PutUint32(r[12:], uint32(data))
		be.PutUint32(r[40:], uint32(operations))
		be.PutUint32(r[320:], recordHeaderBytes)
		be.PutUint32(b[(at+1)%sectors*512:], uint32(cycle))
		b[(at+1)%sectors*512+operationFlagsByte] = operationUnmount
	}
	fill := func(b []byte, from, to, cycle int) {
		for k := from; k < to; k++ {
			clear(b[k*512:][:512])
			be.PutUint32(b[k*512:], uint32(cycle))
		}
	}
	for name, c := range map[string]struct {
		write func(b []byte)
		want  bool
	}{
		"new":      {func(b []byte) { record(b, 0, 1, 512, 1) }, true},
		"unused":   {func([]byte) {}, false},
		"in use":   {func(b []byte) { record(b, 0, 1, 512, 1); b[512+operationFlagsByte] = 0 }, false},
		"two":      {func(b []byte) { record(b, 0, 1, 512, 2) }, false},
		"longer":   {func(b []byte) { record(b, 0, 1, 1024, 1) }, false},
		"more":     {func(b []byte) { record(b, 0, 1, 512, 1); fill(b, 2, 3, 1) }, false},
		"second":   {func(b []byte) { fill(b, 0, 20, 4); fill(b, 0, 9, 5); record(b, 7, 5, 512, 1) }, true},
		"the last": {func(b []byte) { fill(b, 0, 20, 5); record(b, 18, 5, 512, 1) }, true},
		"around":   {func(b []byte) { fill(b, 0, 20, 4); record(b, 19, 4, 512, 1); b[3] = 5 }, true},
		"no end":   {func(b []byte) { fill(b, 0, 20, 4); fill(b, 0, 9, 5) }, false},
		"larger headers": {func(b []byte) {
			record(b, 0, 1, 512, 1)
			be.PutUint32(b[320:], recordHeaderBytes+1)
			fill(b, 1, 3, 1)
			b[2*512+operationFlagsByte] = operationUnmount
		}, true},
	} {
		m := newMemory()
		m.f.superblock.logStart, m.f.superblock.logBlocks = 3*128, sectors/2
		c.write(m.b[start<<10:])
		m.reset(bytes.NewReader(m.b))
		if got := m.f.isLogClean(); got != c.want {
			t.Errorf("%s: clean: %v", name, got)
		}
		m.reset(&faulty{b: m.b, fail: start<<10 + 1})
		if m.f.isLogClean() {
			t.Errorf("%s: what cannot be read is clean", name)
		}
	}
	m := newMemory()
	for _, blocks := range []uint32{0, 1000} {
		m.f.superblock.logStart, m.f.superblock.logBlocks = 5, blocks
		if m.f.isLogClean() {
			t.Errorf("a log of %d blocks is clean", blocks)
		}
	}
}

// Open describes what may be wrong.
func TestNotes(t *testing.T) {
	m := newMemory()
	for name, c := range map[string]struct {
		change func(s *superblock)
		size   int64
		want   string
	}{
		"log elsewhere": {func(*superblock) {}, 350 << 10, "its log is on another device"},
		"log in use":    {func(s *superblock) { s.logStart = 5 }, 350 << 10, "it was not unmounted"},
		"repair":        {func(s *superblock) { s.incompat = incompatNeedsRepair }, 350 << 10, "xfs_repair began"},
		"short disk":    {func(*superblock) {}, 349 << 10, "350 blocks of 1024 bytes and its disk only 357376 bytes"},
	} {
		f := &FS{superblock: small(), pages: m.f.pages}
		c.change(f.superblock)
		f.addNotes(c.size)
		if !strings.Contains(strings.Join(f.Notes(), "\n"), c.want) {
			t.Errorf("%s: %q", name, f.Notes())
		}
	}
}
