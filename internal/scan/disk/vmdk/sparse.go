package vmdk

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"

	"github.com/buildyard/buildyard/internal/qcow2"
	"github.com/buildyard/buildyard/internal/scan/disk/chunked"
)

const (
	headerBytes     = sectorBytes
	maxVersion      = 3
	maxGrainBytes   = 4 << 20
	maxTableEntries = 512
	maxTableBytes   = 32 << 20 // of the grain directories of an image
	tableReadBytes  = 1 << 20  // of a directory that are read at a time

	tableCacheBytes = 4 << 20
	grainCacheBytes = 16 << 20
)

// Flags of a header.
const (
	flagZeroGrains = 1 << 2
	flagMarkers    = 1 << 17
)

const (
	entryZero       = 1               // of a grain table, with flagZeroGrains
	directoryAtEnd  = math.MaxUint64  // the footer has the offset
	footerBytes     = 3 * sectorBytes // marker, header and end-of-stream marker, at the end of the file
	footerType      = 3               // of a marker
	compressDeflate = 1               // RFC 1950
	grainHeadBytes  = 12              // of a marker before a compressed grain
)

// sparseHeader is the header of a sparse extent; numbers are sectors where nothing else is said.
type sparseHeader struct {
	version, flags   uint32
	capacity, grain  uint64
	descriptorAt     uint64 // 0 = none
	descriptorLength uint64
	tableEntries     uint32
	directoryAt      uint64
	compression      uint16
}

// readHeader reads the header at off.
func readHeader(r io.ReaderAt, off int64) (sparseHeader, error) {
	var b [headerBytes]byte
	if err := chunked.ReadFull(r, b[:], off, "the header"); err != nil {
		return sparseHeader{}, err
	}
	if string(b[:4]) != magicSparse {
		return sparseHeader{}, chunked.Damaged("the header of a sparse extent is missing at %d", off)
	}
	le := binary.LittleEndian
	return sparseHeader{
		version: le.Uint32(b[4:]), flags: le.Uint32(b[8:]), capacity: le.Uint64(b[12:]), grain: le.Uint64(b[20:]),
		descriptorAt: le.Uint64(b[28:]), descriptorLength: le.Uint64(b[36:]), tableEntries: le.Uint32(b[44:]),
		directoryAt: le.Uint64(b[56:]), compression: le.Uint16(b[77:]),
	}, nil
}

// readFooter reads the header that a file written as a stream has at its end.
func readFooter(r io.ReaderAt, size int64) (sparseHeader, error) {
	at := size - footerBytes
	var marker [sectorBytes]byte
	if at < headerBytes {
		return sparseHeader{}, chunked.Damaged("the file has no footer")
	}
	if err := chunked.ReadFull(r, marker[:], at, "the footer"); err != nil {
		return sparseHeader{}, err
	}
	if le := binary.LittleEndian; le.Uint32(marker[8:]) != 0 || le.Uint32(marker[12:]) != footerType {
		return sparseHeader{}, chunked.Damaged("the file has no footer at %d: it may be incomplete", at)
	}
	h, err := readHeader(r, at+sectorBytes)
	if err == nil && h.directoryAt == directoryAtEnd {
		err = chunked.Damaged("the footer has no grain directory")
	}
	return h, err
}

// check refuses an extent that cannot be read, and what exceeds a limit.
func (h *sparseHeader) check() error {
	switch {
	case h.version == 0 || h.version > maxVersion:
		return fmt.Errorf("version %d of VMDK cannot be read: %s", h.version, adviceConvert)
	case h.capacity == 0 || h.capacity > chunked.MaxDiskBytes/sectorBytes:
		return chunked.Damaged("an extent has %d sectors", h.capacity)
	case h.grain == 0 || h.grain > maxGrainBytes/sectorBytes || bits.OnesCount64(h.grain) != 1:
		return chunked.Damaged("a grain has %d sectors", h.grain)
	case h.tableEntries == 0 || h.tableEntries > maxTableEntries:
		return chunked.Damaged("a grain table has %d entries", h.tableEntries)
	case h.compression > compressDeflate:
		return fmt.Errorf("the compression %d of its grains cannot be read: %s", h.compression, adviceConvert)
	}
	return nil
}

// sparse is a sparse extent.
type sparse struct {
	index     int // of the extent in its image
	file      qcow2.Layer
	size      int64 // bytes of the extent
	grain     int64 // bytes
	entries   int64 // of a grain table
	flags     uint32
	isDeflate bool
	directory []uint32 // sectors of the grain tables; 0 = none
	caches    *caches
}

var _ chunked.Source = (*sparse)(nil)

// caches are those of all extents of an image.
type caches struct {
	tables, grains *chunked.Cache[cacheKey]
	tableBytes     int64 // of all grain directories
}

// cacheKey is a place in the file of an extent.
type cacheKey struct {
	extent int
	at     int64
}

func newCaches() *caches {
	return &caches{
		tables: chunked.NewCache[cacheKey](tableCacheBytes), grains: chunked.NewCache[cacheKey](grainCacheBytes),
	}
}

// openSparse reads header and grain directory of an extent.
func openSparse(f qcow2.Layer, h sparseHeader, index int, c *caches) (*sparse, error) {
	if h.directoryAt == directoryAtEnd {
		var err error
		if h, err = readFooter(f, f.Size()); err != nil {
			return nil, err
		}
	}
	if err := h.check(); err != nil {
		return nil, err
	}
	s := &sparse{
		index: index, file: f, size: int64(h.capacity) * sectorBytes, grain: int64(h.grain) * sectorBytes,
		entries: int64(h.tableEntries), flags: h.flags,
		isDeflate: h.compression == compressDeflate, caches: c,
	}
	return s, s.readDirectory(h.directoryAt)
}

// readDirectory reads the places of the grain tables. No two tables overlap and all are within the file:
// together they cannot be larger than it.
func (s *sparse) readDirectory(sector uint64) error {
	n := (s.size + s.span() - 1) / s.span()
	if s.caches.tableBytes += 4 * n; s.caches.tableBytes > maxTableBytes {
		return fmt.Errorf("the grain directories of the image have more than %d bytes: %s", maxTableBytes,
			adviceConvert)
	}
	if sector == 0 || sector > uint64(s.file.Size())/sectorBytes || int64(sector)*sectorBytes > s.file.Size()-4*n {
		return chunked.Damaged("the grain directory is at sector %d", sector)
	}
	s.directory = make([]uint32, 0, n)
	raw := make([]byte, min(4*n, tableReadBytes))
	for at, left := int64(sector)*sectorBytes, 4*n; left > 0; {
		part := raw[:min(left, tableReadBytes)]
		if err := chunked.ReadFull(s.file, part, at, "the grain directory"); err != nil {
			return err
		}
		for k := 0; k < len(part); k += 4 {
			s.directory = append(s.directory, binary.LittleEndian.Uint32(part[k:]))
		}
		at, left = at+int64(len(part)), left-int64(len(part))
	}
	return s.checkDirectory()
}

// checkDirectory refuses tables that overlap or are outside of the file.
func (s *sparse) checkDirectory() error {
	places := slices.Clone(s.directory)
	slices.Sort(places)
	end := int64(0) // of the table before
	for _, sector := range places {
		if sector == 0 {
			continue
		}
		at := int64(sector) * sectorBytes
		if at < end {
			return chunked.Damaged("two grain tables overlap at sector %d", sector)
		}
		end = at + 4*s.entries
	}
	if end > s.file.Size() {
		return chunked.Damaged("a grain table is behind the end of the file")
	}
	return nil
}

// span returns how many bytes of the disk a grain table maps.
func (s *sparse) span() int64 { return s.entries * s.grain }

// Size returns the size of the extent in bytes.
func (s *sparse) Size() int64 { return s.size }

// Range returns the grain, or the missing grain table, at off.
func (s *sparse) Range(off int64) (qcow2.Range, error) {
	table := s.directory[off/s.span()]
	if table == 0 {
		end := min(s.size, (off/s.span()+1)*s.span())
		return qcow2.Range{Off: off, Len: end - off, Kind: qcow2.Zero}, nil
	}
	r := qcow2.Range{Off: off, Len: min(s.size, (off/s.grain+1)*s.grain) - off, Kind: qcow2.Data}
	sector, err := s.lookup(off, table)
	if err == nil && s.isZero(sector) {
		r.Kind = qcow2.Zero
	}
	return r, err
}

// isZero reports whether an entry of a grain table is that of a grain without data.
func (s *sparse) isZero(sector uint32) bool {
	return sector == 0 || sector == entryZero && s.flags&flagZeroGrains != 0
}

// lookup returns the entry of the grain at off in its grain table.
func (s *sparse) lookup(off int64, table uint32) (uint32, error) {
	at := int64(table) * sectorBytes
	raw, err := s.caches.tables.Get(cacheKey{s.index, at}, func() ([]byte, error) {
		b := make([]byte, 4*s.entries)
		return b, chunked.ReadFull(s.file, b, at, "a grain table")
	})
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(raw[4*(off%s.span()/s.grain):]), nil
}

// ReadRange reads from a grain.
func (s *sparse) ReadRange(p []byte, off int64) error {
	sector, err := s.lookup(off, s.directory[off/s.span()])
	if err != nil {
		return err
	}
	at, within := int64(sector)*sectorBytes, off%s.grain
	if !s.isDeflate {
		return chunked.ReadFull(s.file, p, at+within, "a grain")
	}
	grain, err := s.caches.grains.Get(cacheKey{s.index, at}, func() ([]byte, error) {
		return s.inflate(at, off-within)
	})
	if err == nil {
		copy(p, grain[within:])
	}
	return err
}

// inflate decodes the compressed grain at a place in the file, which is at off of the disk. The last grain
// may end with the disk.
func (s *sparse) inflate(at, off int64) ([]byte, error) {
	packed, err := s.storedGrain(at, off)
	if err != nil {
		return nil, err
	}
	out := make([]byte, s.grain)
	n, err := chunked.Inflate(out, packed)
	if err != nil {
		return nil, chunked.Damaged("the compressed grain at %d: %v", at, err)
	}
	if int64(n) != s.grain && int64(n) != s.size-off {
		return nil, chunked.Damaged("the grain at %d has %d bytes instead of %d", at, n, s.grain)
	}
	return out, nil
}

// storedGrain reads the bytes of a compressed grain. Without a marker their number is not known: what follows
// them is ignored.
func (s *sparse) storedGrain(at, off int64) ([]byte, error) {
	if s.flags&flagMarkers == 0 {
		b := make([]byte, min(2*s.grain, max(0, s.file.Size()-at)))
		return b, chunked.ReadFull(s.file, b, at, "a grain")
	}
	var head [grainHeadBytes]byte
	if err := chunked.ReadFull(s.file, head[:], at, "the marker of a grain"); err != nil {
		return nil, err
	}
	sector, n := binary.LittleEndian.Uint64(head[:]), int64(binary.LittleEndian.Uint32(head[8:]))
	switch {
	case sector != uint64(off)/sectorBytes:
		return nil, chunked.Damaged("the grain at %d is that of sector %d instead of %d", at, sector, off/sectorBytes)
	case n == 0 || n > 2*s.grain:
		return nil, chunked.Damaged("the grain at %d has %d compressed bytes", at, n)
	}
	b := make([]byte, n)
	return b, chunked.ReadFull(s.file, b, at+grainHeadBytes, "a grain")
}
