package hfsplustest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
)

var (
	be = binary.BigEndian
	le = binary.LittleEndian
)

// Volume describes a volume.
type Volume struct {
	Name      string
	BlockSize int   // 0 = 4096
	NodeSize  int   // of the catalog; 0 = 8192
	Size      int64 // at least, in bytes; 0 = what the files take
	IsExact   bool  // HFSX that distinguishes upper and lower case
	Files     []File
	Journal   Journal
	Mounted   bool // as if it had not been unmounted
	InWrapper bool // within a volume of HFS
	// CatalogPieces is the number of separate extents of the catalog; 0 = 1.
	CatalogPieces int
}

// Journal is the state of a journal.
type Journal int

// States of a journal. It has no content but what is to be replayed or not.
const (
	NoJournal Journal = iota
	EmptyJournal
	BigEndianJournal // an empty one that a PowerPC wrote
	FullJournal
	NewJournal // nothing was written yet
)

const (
	headerAt     = 1024
	headerSize   = 512
	reserved     = headerAt + headerSize // bytes at the beginning
	journalBytes = 64 << 10
	wrapperStart = 16 << 10
	timeOffset   = 2082844800 // between 1904 and 1970
	defaultTime  = 1_500_000_000

	forkBytes = 80
)

// extent is contiguous blocks.
type extent struct{ start, count uint32 }

// fork is a fork of a file that was written.
type fork struct {
	size    int64
	extents []extent
}

// bytes returns the fork as records have it.
func (f fork) bytes() []byte {
	b := make([]byte, forkBytes)
	be.PutUint64(b, uint64(f.size))
	blocks := uint32(0)
	for i, e := range f.extents {
		if i < 8 {
			be.PutUint32(b[16+8*i:], e.start)
			be.PutUint32(b[20+8*i:], e.count)
		}
		blocks += e.count
	}
	be.PutUint32(b[12:], blocks)
	return b
}

// writer writes a volume.
type writer struct {
	Volume
	out  io.WriterAt
	next uint32   // block that is free, as all behind it
	free []uint32 // blocks before it that are free
	over []record // further extents
	err  error    // the first
}

// Write writes a volume and returns its size in bytes.
func Write(out io.WriterAt, v Volume) (int64, error) {
	v.BlockSize, v.NodeSize = cmp.Or(v.BlockSize, 4096), cmp.Or(v.NodeSize, 8192)
	w := &writer{Volume: v, out: out}
	if v.InWrapper {
		w.out = shifted{out, wrapperStart}
	}
	size := w.write()
	if v.InWrapper {
		size = w.wrap(out, size)
	}
	return size, w.err
}

// shifted writes further into a disk.
type shifted struct {
	io.WriterAt
	by int64
}

func (s shifted) WriteAt(b []byte, at int64) (int, error) { return s.WriterAt.WriteAt(b, at+s.by) }

func (w *writer) put(b []byte, at int64) {
	if _, err := w.out.WriteAt(b, at); err != nil && w.err == nil {
		w.err = err
	}
}

func (w *writer) blocks(bytes int64) uint32 {
	return uint32((bytes + int64(w.BlockSize) - 1) / int64(w.BlockSize))
}

// alloc allocates contiguous blocks.
func (w *writer) alloc(n uint32) uint32 {
	at := w.next
	w.next += n
	return at
}

// store writes a fork in a number of pieces, between which a block stays free. A file with more than eight has further
// extents in a tree.
func (w *writer) store(file uint32, kind byte, data []byte, pieces int) fork {
	f := fork{size: int64(len(data))}
	total := w.blocks(f.size)
	first := uint32(0)
	for i := range pieces {
		n := total/uint32(pieces) + boolean(uint32(i) < total%uint32(pieces))
		if n == 0 {
			break
		}
		e := extent{w.alloc(n), n}
		if pieces > 1 {
			w.free = append(w.free, w.alloc(1))
		}
		f.extents = append(f.extents, e)
		from := int64(first) * int64(w.BlockSize)
		w.put(data[from:min(f.size, from+int64(n)*int64(w.BlockSize))], int64(e.start)*int64(w.BlockSize))
		first += n
	}
	w.further(file, kind, f)
	return f
}

func boolean(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// further adds the extents of a fork after the first eight.
func (w *writer) further(file uint32, kind byte, f fork) {
	at := uint32(0)
	for i := 0; i < len(f.extents); i += 8 {
		value := make([]byte, 64)
		start := at
		for k, e := range f.extents[i:min(i+8, len(f.extents))] {
			be.PutUint32(value[8*k:], e.start)
			be.PutUint32(value[8*k+4:], e.count)
			at += e.count
		}
		if i > 0 {
			key := be.AppendUint32(be.AppendUint32([]byte{kind, 0}, file), start)
			w.over = append(w.over, record{key, value})
		}
	}
}

// write writes all of the volume, and returns its size.
func (w *writer) write() int64 {
	w.next = w.blocks(reserved)
	journal := w.journal()
	c := newCatalog(w)
	files := c.build()
	catalog := w.store(4, 0, w.tree(treeOptions{
		nodeSize: w.NodeSize, maxKey: 516, keysVary: true, compare: w.compareKind(), spare: 8,
	}, files.records), max(1, w.CatalogPieces))
	attributes := fork{}
	if len(files.attributes) > 0 {
		attributes = w.store(8, 0, w.tree(treeOptions{nodeSize: 8192, maxKey: 266, keysVary: true, spare: 1},
			files.attributes), 1)
	}
	sortRecords(w.over, func(a, b record) int {
		return cmp.Or(cmp.Compare(be.Uint32(a.key[2:]), be.Uint32(b.key[2:])), cmp.Compare(a.key[0], b.key[0]),
			cmp.Compare(be.Uint32(a.key[6:]), be.Uint32(b.key[6:])))
	})
	further := w.store(3, 0, w.tree(treeOptions{nodeSize: 4096, maxKey: 10, spare: 2}, w.over), 1)

	// The map of free space has a bit for each block, also for its own and the last ones.
	total := w.next + w.blocks(1024)
	total += w.blocks(int64(total)/8+1) + 1
	total = max(total, w.blocks(w.Size))
	bits := make([]byte, (int64(total)+7)/8)
	at := w.alloc(w.blocks(int64(len(bits))))
	used := func(block uint32) { bits[block/8] |= 0x80 >> (block % 8) }
	for b := range w.next {
		used(b)
	}
	for _, b := range w.free {
		bits[b/8] &^= 0x80 >> (b % 8)
	}
	last := w.blocks(1024)
	for b := total - last; b < total; b++ {
		used(b)
	}
	w.put(bits, int64(at)*int64(w.BlockSize))
	allocation := fork{int64(len(bits)), []extent{{at, w.blocks(int64(len(bits)))}}}

	h := w.header(files, journal)
	be.PutUint32(h[44:], total)
	be.PutUint32(h[48:], total-w.next-last+uint32(len(w.free)))
	be.PutUint32(h[52:], w.next)
	for i, f := range []fork{allocation, further, catalog, attributes} {
		copy(h[112+forkBytes*i:], f.bytes())
	}
	size := int64(total) * int64(w.BlockSize)
	w.put(h, headerAt)
	w.put(h, size-1024)
	w.put(make([]byte, 512), size-512)
	return size
}

func (w *writer) compareKind() byte {
	if w.IsExact {
		return 0xbc
	}
	return 0xcf
}

// header returns the header without its forks and counts of blocks.
func (w *writer) header(c *catalog, journal uint32) []byte {
	b := make([]byte, headerSize)
	copy(b, "H+\x00\x04")
	if w.IsExact {
		copy(b, "HX\x00\x05")
	}
	attributes := uint32(0x80000000) // unused nodes are zero
	if !w.Mounted {
		attributes |= 1 << 8
	}
	if w.Journal != NoJournal {
		attributes |= 1 << 13
	}
	be.PutUint32(b[4:], attributes)
	copy(b[8:], "10.0")
	be.PutUint32(b[12:], journal)
	for _, at := range []int{16, 20, 28} {
		be.PutUint32(b[at:], defaultTime+timeOffset)
	}
	be.PutUint32(b[32:], c.fileCount)
	be.PutUint32(b[36:], c.dirCount)
	be.PutUint32(b[40:], uint32(w.BlockSize))
	be.PutUint32(b[56:], 65536)
	be.PutUint32(b[60:], 65536)
	be.PutUint32(b[64:], c.next)
	be.PutUint64(b[72:], 1)
	return b
}

// journal writes a journal, and returns the block of the information about it.
func (w *writer) journal() uint32 {
	if w.Journal == NoJournal {
		return 0
	}
	info, at := w.alloc(1), w.alloc(w.blocks(journalBytes))
	b := make([]byte, 52)
	be.PutUint32(b, 1)
	if w.Journal == NewJournal {
		be.PutUint32(b, 5)
	}
	be.PutUint64(b[36:], uint64(at)*uint64(w.BlockSize))
	be.PutUint64(b[44:], journalBytes)
	w.put(b, int64(info)*int64(w.BlockSize))
	if w.Journal == NewJournal {
		return info
	}
	var order binary.ByteOrder = le
	if w.Journal == BigEndianJournal {
		order = be
	}
	j := make([]byte, 44)
	order.PutUint32(j, 0x4a4e4c78)
	order.PutUint32(j[4:], 0x12345678)
	order.PutUint64(j[8:], 512)
	order.PutUint64(j[16:], 512)
	if w.Journal == FullJournal {
		order.PutUint64(j[16:], 4608)
	}
	order.PutUint64(j[24:], journalBytes)
	order.PutUint32(j[32:], 4096)
	order.PutUint32(j[40:], 512)
	w.put(j, int64(at)*int64(w.BlockSize))
	return info
}

// wrap writes the header of the volume of HFS that the volume is embedded in.
func (w *writer) wrap(out io.WriterAt, size int64) int64 {
	const block = 4096
	b := make([]byte, 162)
	copy(b, "BD")
	count := (size + block - 1) / block
	if count >= 1<<16 {
		w.err = cmp.Or(w.err, fmt.Errorf("a volume of %d bytes is too large for a wrapper", size))
	}
	be.PutUint16(b[18:], uint16(count+1))
	be.PutUint32(b[20:], block)
	be.PutUint16(b[28:], (wrapperStart-block)/512) // its first block is unused
	b[36] = 7
	copy(b[37:], "wrapper")
	copy(b[124:], "H+")
	be.PutUint16(b[126:], 1)
	be.PutUint16(b[128:], uint16(count))
	total := wrapperStart + count*block + 1024
	for _, at := range []int64{headerAt, total - 1024} {
		if _, err := out.WriteAt(b, at); err != nil {
			w.err = cmp.Or(w.err, err)
		}
	}
	if _, err := out.WriteAt(make([]byte, 512), total-512); err != nil {
		w.err = cmp.Or(w.err, err)
	}
	return total
}
