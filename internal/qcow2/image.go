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
	r                 io.ReaderAt
	fileSize          int64 // bytes of the image's file
	header            header
	diskSize          int64
	clusterSize       int64
	l1Table           []int64   // offsets of the L2 tables; 0 = none
	l2Cache           *lruCache // L2 tables
	decompressedCache *lruCache // compressed clusters, decompressed
}

var _ rangeStepper = (*Image)(nil)

const (
	offsetMask        = 1<<56 - 1<<9 // of L1 entries and of L2 entries of plain clusters
	entryZero         = 1 << 0       // version 3, plain L2 entries only
	entryCompressed   = 1 << 62      // compressed
	subclusters       = 32           // subclusters of a cluster, with extended entries
	defaultCacheBytes = 8 << 20      // of each cache, where its items are not larger
	minCachedItems    = 4            // items of each cache
	l1ReadEntries     = 1 << 16      // entries that are read at a time
)

// Open reads header and L1 table of the image r, whose file has the given size in bytes. The caller
// owns r, which must not change while the image is used. An image with a backing file is refused.
func Open(r io.ReaderAt, file int64) (*Image, error) {
	h, err := readHeader(r)
	if err == nil {
		err = h.checkNoBacking()
	}
	if err != nil {
		return nil, err
	}
	return open(r, file, h, int(max(minCachedItems, defaultCacheBytes>>h.clusterBits)))
}

// OpenOverlay is Open for an image that may have a backing file, which the caller puts below it:
// ranges without content are Absent. cache limits the bytes of each of its two caches, whose
// minimum is one cluster.
func OpenOverlay(r io.ReaderAt, file, cache int64) (*Image, error) {
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
		r: r, fileSize: file, header: h, diskSize: int64(h.diskSize), clusterSize: int64(1) << h.clusterBits,
		l2Cache: newLRUCache(held), decompressedCache: newLRUCache(held),
	}
	return i, i.readL1()
}

// readL1 reads the offsets of the L2 tables. All differ and are within the file: together the
// tables cannot be larger than it.
func (i *Image) readL1() error {
	span := i.header.l2TableSpan()
	n := (i.diskSize + span - 1) / span
	switch {
	case n > maxL1Bytes/l2EntryBytes || int64(i.header.l1Count) < n:
		return damaged("its L1 table has %d entries and its disk needs %d", i.header.l1Count, n)
	case i.header.l1Offset == 0 || i.header.l1Offset%uint64(i.clusterSize) != 0:
		return damaged("its L1 table is at %d, not at the start of a cluster", i.header.l1Offset)
	case i.header.l1Offset > uint64(i.fileSize) || int64(i.header.l1Offset) > i.fileSize-n*l2EntryBytes:
		return damaged("its L1 table is at %d, and the file has %d bytes: it may have been cut off",
			i.header.l1Offset, i.fileSize)
	}
	i.l1Table = make([]int64, n)
	raw := make([]byte, min(n, l1ReadEntries)*l2EntryBytes)
	for k := range i.l1Table {
		within := k % l1ReadEntries
		if within == 0 {
			if _, err := i.r.ReadAt(raw[:min(n-int64(k), l1ReadEntries)*l2EntryBytes],
				int64(i.header.l1Offset)+int64(k)*l2EntryBytes); err != nil {
				return fmt.Errorf("read L1 table: %w", err)
			}
		}
		at := int64(binary.BigEndian.Uint64(raw[within*l2EntryBytes:]) & offsetMask)
		switch {
		case at%i.clusterSize != 0:
			return damaged("an L2 table is at %d, within a cluster", at)
		case at > i.fileSize-i.clusterSize:
			return damaged("an L2 table is at %d, and the file has %d bytes: it may have been cut off", at, i.fileSize)
		}
		i.l1Table[k] = at
	}
	places := slices.Clone(i.l1Table)
	slices.Sort(places)
	for k, at := range places[1:] {
		if at != 0 && at == places[k] {
			return damaged("two parts of its disk have the same L2 table")
		}
	}
	return nil
}

// Size returns the size of the disk in bytes.
func (i *Image) Size() int64 { return i.diskSize }

// NextData returns the next range at or after off with data; start == end means that there is none.
func (i *Image) NextData(off int64) (start, end int64, err error) { return NextData(i, off) }

// NextRange returns the longest range of one kind that begins at off.
func (i *Image) NextRange(off int64) (Range, bool, error) { return mergeSteps(i, off) }

func (i *Image) tableRange(off int64) (Range, error) {
	m, err := i.locate(off)
	return Range{Off: off, Len: m.length, Kind: m.kind}, err
}

// ReadAt reads the disk; ranges without data read as zeros.
func (i *Image) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("qcow2: negative offset")
	}
	n := 0
	for n < len(p) && off < i.diskSize {
		m, err := i.locate(off)
		if err != nil {
			return n, err
		}
		part := p[n:min(len(p), n+int(m.length))]
		if err := i.readMapping(part, m); err != nil {
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

// readMapping reads the beginning of a piece into p.
func (i *Image) readMapping(p []byte, m mapping) error {
	switch {
	case m.kind != Data:
		clear(p)
		return nil
	case m.compressedBytes > 0:
		cluster, err := i.decompressedCache.get(m.fileOffset,
			func() ([]byte, error) { return i.decompressCluster(m.fileOffset, m.compressedBytes) })
		if err == nil {
			copy(p, cluster[m.offsetInCluster:])
		}
		return err
	}
	n, err := i.r.ReadAt(p, m.fileOffset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	clear(p[n:]) // the last cluster of a file may be written in part
	return err
}

// mapping is a range within one cluster.
type mapping struct {
	kind            Kind
	length          int64 // bytes of the disk
	fileOffset      int64 // of data: its offset in the file
	compressedBytes int64 // bytes of the compressed cluster at that offset; 0 = not compressed
	offsetInCluster int64 // of a compressed cluster: offset of the piece within it
}

// locate finds the piece that begins at off, which is within the disk. An Absent piece may be
// longer than a cluster.
func (i *Image) locate(off int64) (mapping, error) {
	span, left := i.header.l2TableSpan(), i.diskSize-off
	k := off / span
	place := i.l1Table[k]
	if place == 0 {
		return mapping{length: min(left, (k+1)*span-off)}, nil
	}
	table, err := i.l2Cache.get(place, func() ([]byte, error) {
		b := make([]byte, i.clusterSize)
		_, err := i.r.ReadAt(b, place)
		return b, err
	})
	if err != nil {
		return mapping{}, fmt.Errorf("read L2 table at %d: %w", place, err)
	}
	within := off % i.clusterSize
	at := off % span / i.clusterSize * i.header.entrySize()
	entry := binary.BigEndian.Uint64(table[at:])
	var m mapping
	switch {
	case entry&entryCompressed != 0:
		m, err = i.decodeCompressedEntry(entry)
		m.length, m.offsetInCluster = i.clusterSize-within, within
	case i.header.hasExtendedL2():
		m, err = i.decodeExtendedEntry(entry, binary.BigEndian.Uint64(table[at+8:]), within)
	default:
		m, err = i.decodeEntry(entry, within)
	}
	m.length = min(m.length, left)
	if err != nil {
		err = fmt.Errorf("read at offset %d of the disk: %w", off, err)
	}
	return m, err
}

// decodeEntry decodes an entry of 8 bytes.
func (i *Image) decodeEntry(entry uint64, within int64) (mapping, error) {
	m := mapping{length: i.clusterSize - within}
	if i.header.version > 2 && entry&entryZero != 0 {
		m.kind = Zero
		return m, nil
	}
	place := int64(entry & offsetMask)
	if place == 0 {
		return m, nil
	}
	m.kind, m.fileOffset = Data, place+within
	return m, i.checkDataOffset(place)
}

// decodeExtendedEntry decodes an entry of 16 bytes: the lower half of the bits marks the blocks with data in the
// cluster, the upper half those that are zero.
func (i *Image) decodeExtendedEntry(entry, bits uint64, within int64) (mapping, error) {
	block := i.clusterSize / subclusters
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
	for last+1 < subclusters && kind(last+1) == kind(first) {
		last++
	}
	m := mapping{kind: kind(first), length: (last+1)*block - within}
	if bits&(bits>>32)&(1<<32-1) != 0 {
		return m, damaged("a block is both there and zero")
	}
	if m.kind != Data {
		return m, nil
	}
	place := int64(entry & offsetMask)
	m.fileOffset = place + within
	return m, i.checkDataOffset(place)
}

// checkDataOffset reports whether a cluster of data may be at an offset.
func (i *Image) checkDataOffset(place int64) error {
	if place == 0 || place%i.clusterSize != 0 || place >= i.fileSize {
		return damaged("data is at %d of a file of %d bytes", place, i.fileSize)
	}
	return nil
}

// decodeCompressedEntry decodes the entry of a compressed cluster: its offset, and the sectors that it touches
// after its first one.
func (i *Image) decodeCompressedEntry(entry uint64) (mapping, error) {
	bits := 62 - (i.header.clusterBits - 8)
	place := int64(entry & (1<<bits - 1))
	sectors := int64(entry&(entryCompressed-1)>>bits) + 1
	m := mapping{kind: Data, fileOffset: place, compressedBytes: sectors*512 - place%512}
	if place == 0 || place >= i.fileSize {
		return m, damaged("a compressed cluster is at %d of a file of %d bytes", place, i.fileSize)
	}
	return m, nil
}
