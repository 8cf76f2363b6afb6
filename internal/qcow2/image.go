package qcow2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Image is one qcow2 image, possibly an overlay: the layer below is not read. It is safe for
// concurrent reads.
type Image struct {
	r       io.ReaderAt
	file    int64 // bytes of the image's file
	h       header
	size    int64
	cluster int64
	l1      []int64 // offsets of the L2 tables; 0 = none
	tables  *cache  // L2 tables
	plain   *cache  // compressed clusters, decompressed
}

var _ stepper = (*Image)(nil)

const (
	placeMask  = 1<<56 - 1<<9 // of L1 entries and of L2 entries of plain clusters
	entryZero  = 1 << 0       // version 3, plain L2 entries only
	entryPack  = 1 << 62      // compressed
	blocks     = 32           // subclusters of a cluster, with extended entries
	cacheBytes = 8 << 20      // of each cache, where its items are not larger
	leastHeld  = 4            // items of each cache
	l1Piece    = 1 << 16      // entries that are read at a time
)

// Open reads header and L1 table of the image r, whose file has the given size in bytes. The caller
// owns r, which must not change while the image is used. An image with a backing file is refused.
func Open(r io.ReaderAt, file int64) (*Image, error) {
	h, err := readHeader(r)
	if err == nil {
		err = h.alone()
	}
	if err != nil {
		return nil, err
	}
	return open(r, file, h, int(max(leastHeld, cacheBytes>>h.clusterBits)))
}

// OpenPart is Open for an image that may have a backing file, which the caller puts below it:
// ranges without content are Absent. cache limits the bytes of each of its two caches, whose
// minimum is one cluster.
func OpenPart(r io.ReaderAt, file, cache int64) (*Image, error) {
	h, err := readHeader(r)
	if err != nil {
		return nil, err
	}
	return open(r, file, h, int(max(1, cache>>h.clusterBits)))
}

func open(r io.ReaderAt, file int64, h header, held int) (*Image, error) {
	if h.features&featureCorrupt != 0 {
		return nil, errors.New("the qcow2 image is marked as damaged; \"qemu-img check -r all\" may repair it")
	}
	i := &Image{
		r: r, file: file, h: h, size: int64(h.size), cluster: int64(1) << h.clusterBits,
		tables: newCache(held), plain: newCache(held),
	}
	return i, i.readL1()
}

// readL1 reads the offsets of the L2 tables. All differ and are within the file: together the
// tables cannot be larger than it.
func (i *Image) readL1() error {
	span := i.h.span()
	n := (i.size + span - 1) / span
	switch {
	case n > maxL1Bytes/entryBytes || int64(i.h.l1Entries) < n:
		return damaged("its L1 table has %d entries and its disk needs %d", i.h.l1Entries, n)
	case i.h.l1 == 0 || i.h.l1 > uint64(i.file) || i.h.l1%uint64(i.cluster) != 0 || int64(i.h.l1) > i.file-n*entryBytes:
		return damaged("its L1 table is at %d", i.h.l1)
	}
	i.l1 = make([]int64, n)
	raw := make([]byte, min(n, l1Piece)*entryBytes)
	for k := range i.l1 {
		within := k % l1Piece
		if within == 0 {
			if _, err := i.r.ReadAt(raw[:min(n-int64(k), l1Piece)*entryBytes],
				int64(i.h.l1)+int64(k)*entryBytes); err != nil {
				return fmt.Errorf("read L1 table: %w", err)
			}
		}
		at := int64(binary.BigEndian.Uint64(raw[within*entryBytes:]) & placeMask)
		if at%i.cluster != 0 || at > i.file-i.cluster {
			return damaged("an L2 table is at %d", at)
		}
		i.l1[k] = at
	}
	places := slices.Clone(i.l1)
	slices.Sort(places)
	for k, at := range places[1:] {
		if at != 0 && at == places[k] {
			return damaged("two parts of its disk have the same L2 table")
		}
	}
	return nil
}

// Size returns the size of the disk in bytes.
func (i *Image) Size() int64 { return i.size }

// NextData returns the next range at or after off with data; start == end means that there is none.
func (i *Image) NextData(off int64) (start, end int64, err error) { return NextData(i, off) }

// NextRange returns the longest range of one kind that begins at off.
func (i *Image) NextRange(off int64) (Range, bool, error) { return longest(i, off) }

func (i *Image) step(off int64) (Range, error) {
	m, err := i.locate(off)
	return Range{Off: off, Len: m.n, Kind: m.kind}, err
}

// ReadAt reads the disk; ranges without data read as zeros.
func (i *Image) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("qcow2: negative offset")
	}
	n := 0
	for n < len(p) && off < i.size {
		m, err := i.locate(off)
		if err != nil {
			return n, err
		}
		part := p[n:min(len(p), n+int(m.n))]
		if err := i.fill(part, m); err != nil {
			return n, err
		}
		n += len(part)
		off += int64(len(part))
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// fill reads the beginning of a piece into p.
func (i *Image) fill(p []byte, m piece) error {
	switch {
	case m.kind != Data:
		clear(p)
		return nil
	case m.packed > 0:
		cluster, err := i.plain.get(m.at, func() ([]byte, error) { return i.unpack(m.at, m.packed) })
		if err == nil {
			copy(p, cluster[m.within:])
		}
		return err
	}
	n, err := i.r.ReadAt(p, m.at)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	clear(p[n:]) // the last cluster of a file may be written in part
	return err
}

// piece is a range within one cluster.
type piece struct {
	kind   Kind
	n      int64 // bytes of the disk
	at     int64 // of data: its offset in the file
	packed int64 // bytes of the compressed cluster at that offset; 0 = not compressed
	within int64 // of a compressed cluster: offset of the piece within it
}

// locate finds the piece that begins at off, which is within the disk. An Absent piece may be
// longer than a cluster.
func (i *Image) locate(off int64) (piece, error) {
	span, left := i.h.span(), i.size-off
	k := off / span
	place := i.l1[k]
	if place == 0 {
		return piece{n: min(left, (k+1)*span-off)}, nil
	}
	table, err := i.tables.get(place, func() ([]byte, error) {
		b := make([]byte, i.cluster)
		_, err := i.r.ReadAt(b, place)
		return b, err
	})
	if err != nil {
		return piece{}, fmt.Errorf("read L2 table at %d: %w", place, err)
	}
	within := off % i.cluster
	at := off % span / i.cluster * i.h.entrySize()
	entry := binary.BigEndian.Uint64(table[at:])
	var m piece
	switch {
	case entry&entryPack != 0:
		m, err = i.compressed(entry)
		m.n, m.within = i.cluster-within, within
	case i.h.extended():
		m, err = i.sub(entry, binary.BigEndian.Uint64(table[at+8:]), within)
	default:
		m, err = i.whole(entry, within)
	}
	m.n = min(m.n, left)
	if err != nil {
		err = fmt.Errorf("byte %d of the disk: %w", off, err)
	}
	return m, err
}

// whole decodes an entry of 8 bytes.
func (i *Image) whole(entry uint64, within int64) (piece, error) {
	m := piece{n: i.cluster - within}
	if i.h.version > 2 && entry&entryZero != 0 {
		m.kind = Zero
		return m, nil
	}
	place := int64(entry & placeMask)
	if place == 0 {
		return m, nil
	}
	m.kind, m.at = Data, place+within
	return m, i.checkData(place)
}

// sub decodes an entry of 16 bytes: the lower half of the bits marks the blocks with data in the
// cluster, the upper half those that are zero.
func (i *Image) sub(entry, bits uint64, within int64) (piece, error) {
	block := i.cluster / blocks
	kind := func(k int64) Kind {
		switch {
		case bits>>(32+k)&1 != 0:
			return Zero
		case bits>>k&1 != 0:
			return Data
		}
		return Absent
	}
	first := within / block
	last := first
	for last+1 < blocks && kind(last+1) == kind(first) {
		last++
	}
	m := piece{kind: kind(first), n: (last+1)*block - within}
	if bits&(bits>>32)&(1<<32-1) != 0 {
		return m, damaged("a block is both there and zero")
	}
	if m.kind != Data {
		return m, nil
	}
	place := int64(entry & placeMask)
	m.at = place + within
	return m, i.checkData(place)
}

// checkData reports whether a cluster of data may be at an offset.
func (i *Image) checkData(place int64) error {
	if place == 0 || place%i.cluster != 0 || place >= i.file {
		return damaged("data is at %d of a file of %d bytes", place, i.file)
	}
	return nil
}

// compressed decodes the entry of a compressed cluster: its offset, and the sectors that it touches
// after its first one.
func (i *Image) compressed(entry uint64) (piece, error) {
	bits := 62 - (i.h.clusterBits - 8)
	place := int64(entry & (1<<bits - 1))
	sectors := int64(entry&(entryPack-1)>>bits) + 1
	m := piece{kind: Data, at: place, packed: sectors*512 - place%512}
	if place == 0 || place >= i.file {
		return m, damaged("a compressed cluster is at %d of a file of %d bytes", place, i.file)
	}
	return m, nil
}
