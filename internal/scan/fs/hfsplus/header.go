package hfsplus

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
)

// Form of the header of a volume, which is behind its first 1024 bytes, and of its copy, 1024 bytes before its end.
const (
	headerOffset   = 1024
	headerSize     = 512
	signaturePlus  = 0x482b // "H+"
	signatureX     = 0x4858 // "HX"
	minBlockSize   = 512
	maxBlockSize   = 1 << 26 // more than any system makes
	headerUnmount  = 1 << 8  // in the attributes
	headerUnsound  = 1 << 11
	headerJournal  = 1 << 13
	extentsForkAt  = 192
	catalogForkAt  = 272
	attributesFork = 352
)

// A wrapper of HFS: its header is at the same place, and names the blocks of the embedded volume.
const (
	signatureWrapper = 0x4244 // "BD"
	wrapperSector    = 512    // in which its first block is counted
)

// header has the fields of the header of a volume.
type header struct {
	isX         bool // HFSX: names may be compared exactly
	attributes  uint32
	journalInfo uint32 // block
	blockSize   int64
	blockLog    uint
	blockCount  uint32
	catalog     forkData
	extents     forkData
	attributed  forkData // the tree of attributes
}

// readHeader reads the header at an offset.
func readHeader(r io.ReaderAt, at int64) (*header, error) {
	var b [headerSize]byte
	if at < 0 {
		return nil, ErrNotHFSPlus
	}
	if n, err := r.ReadAt(b[:], at); n < len(b) {
		return nil, fmt.Errorf("%w: read its header: %w", ErrNotHFSPlus, err)
	}
	h := &header{
		attributes: be.Uint32(b[4:]), journalInfo: be.Uint32(b[12:]), blockSize: int64(be.Uint32(b[40:])),
		blockCount: be.Uint32(b[44:]),
		extents:    parseFork(b[extentsForkAt:]), catalog: parseFork(b[catalogForkAt:]),
		attributed: parseFork(b[attributesFork:]),
	}
	switch be.Uint16(b[:]) {
	case signaturePlus:
	case signatureX:
		h.isX = true
	default:
		return nil, ErrNotHFSPlus
	}
	if h.blockSize < minBlockSize || h.blockSize > maxBlockSize || h.blockSize&(h.blockSize-1) != 0 {
		return nil, damaged("it has blocks of %d bytes", h.blockSize)
	}
	h.blockLog = uint(bits.TrailingZeros64(uint64(h.blockSize)))
	return h, nil
}

// embedded returns the part of r that a wrapper of HFS has the volume in; r itself without a wrapper.
func embedded(r io.ReaderAt, size int64) (io.ReaderAt, int64) {
	var b [162]byte
	if n, _ := r.ReadAt(b[:], headerOffset); n < len(b) || be.Uint16(b[:]) != signatureWrapper {
		return r, size
	}
	if s := be.Uint16(b[124:]); s != signaturePlus && s != signatureX {
		return r, size
	}
	block, first := int64(be.Uint32(b[20:])), int64(be.Uint16(b[28:]))*wrapperSector
	start, length := first+int64(be.Uint16(b[126:]))*block, int64(be.Uint16(b[128:]))*block
	start = min(start, size)
	length = min(length, size-start)
	return io.NewSectionReader(r, start, length), length
}

// Form of the journal: a block of information names its place. Its header has numbers in the order of the machine that
// wrote it, and where what is to be replayed begins and ends.
const (
	infoSize        = 52
	infoInVolume    = 1
	infoNeedsInit   = 4 // nothing was written yet
	journalMagic    = 0x4a4e4c78
	journalHeadSize = 24
)

// isJournalEmpty reports whether nothing is only in the journal. It is false if that cannot be determined.
func (f *FS) isJournalEmpty() bool {
	var b [infoSize]byte
	if err := f.disk.Read(b[:], int64(f.header.journalInfo)<<f.header.blockLog); err != nil {
		return false
	}
	flags, at := be.Uint32(b[:]), be.Uint64(b[36:])
	if flags&infoNeedsInit != 0 {
		return true
	}
	if flags&infoInVolume == 0 || at > uint64(f.disk.Size()) {
		return false
	}
	var head [journalHeadSize]byte
	if err := f.disk.Read(head[:], int64(at)); err != nil {
		return false
	}
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		if order.Uint32(head[:]) == journalMagic {
			return order.Uint64(head[8:]) == order.Uint64(head[16:])
		}
	}
	return false
}
