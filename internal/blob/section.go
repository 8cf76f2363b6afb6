package blob

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// maxSections bounds the sections of a frame.
	maxSections = 64
	// minSectionedBytes is the size above which a frame is cut into sections: a smaller one decodes quickly.
	minSectionedBytes = 64 << 10
	// maxSectionGap is how many blocks between two blocks of metadata are in the section of both: every section
	// costs compression.
	maxSectionGap = 8
)

// sectionEnds returns where the sections of a frame of a disk end, without the end of the frame itself. Blocks that a
// reader of the file system needs are apart from content of files, so that it decodes little. The result depends on
// the bytes alone.
func sectionEnds(raw []byte) (ends []int) {
	if len(raw) <= minSectionedBytes {
		return nil
	}
	begin, end := 0, 0 // of the newest section of metadata, in bytes; none as long as end is 0
	for at := 0; at+BlockSize <= len(raw); at += BlockSize {
		if !isMetadata(raw[at : at+BlockSize]) {
			continue
		}
		if at-end > maxSectionGap*BlockSize {
			ends = appendSection(ends, begin, end)
			begin = at
		}
		end = at + BlockSize
	}
	if len(raw)-end <= maxSectionGap*BlockSize {
		end = len(raw)
	}
	ends = appendSection(ends, begin, end)
	if k := len(ends) - 1; k >= 0 && ends[k] == len(raw) {
		ends = ends[:k]
	}
	return ends
}

// appendSection appends the ends of a section of metadata and of what is before it.
func appendSection(ends []int, begin, end int) []int {
	if begin > 0 {
		ends = append(ends, begin)
	}
	if end > 0 {
		ends = append(ends, end)
	}
	return ends
}

// isMetadata reports whether a block looks like a directory of ext2 to ext4, or a node of a tree of APFS. A wrong
// answer costs a little compression.
func isMetadata(block []byte) bool { return isExtDirectory(block) || isAPFSNode(block) }

const (
	extEntryBytes    = 8    // before the name
	extTailBytes     = 12   // of the entry with the checksum, which ends the block
	extTailType      = 0xde // in place of a type of file
	extMaxFileType   = 7
	extEntryLenShift = 4 // entries begin at multiples of four bytes
)

// isExtDirectory reports whether a block consists of entries of a directory.
func isExtDirectory(block []byte) bool {
	for at, used := 0, false; ; {
		e := block[at:]
		if len(e) < extEntryBytes {
			return len(e) == 0 && used
		}
		inode, nameLen, kind := binary.LittleEndian.Uint32(e), int(e[6]), e[7]
		n := int(binary.LittleEndian.Uint16(e[4:]))
		if n < extEntryBytes+nameLen || n%extEntryLenShift != 0 || n > len(e) {
			return false
		}
		switch {
		case inode == 0 && nameLen == 0 && kind == extTailType:
			return used && n == extTailBytes && n == len(e)
		case kind > extMaxFileType, inode != 0 && nameLen == 0:
			return false
		}
		used = used || inode != 0
		at += n
	}
}

const (
	apfsRoot, apfsNode          = 2, 3 // types of objects
	apfsOmap, apfsFSTree        = 0xb, 0xe
	apfsStorageMask             = 0xc0000000 // of a type
	apfsEphemeral               = 0x80000000
	apfsMaxFlags                = 7
	apfsMaxLevel                = 16
	apfsHeaderBytes             = 56
	apfsMinRecordBytes          = 4
	apfsTypeBits         uint32 = 0xffff
)

// isAPFSNode reports whether a block is a node of the tree of a volume's files, or of its object map.
func isAPFSNode(block []byte) bool {
	if len(block) < apfsHeaderBytes {
		return false
	}
	kind, subtype := binary.LittleEndian.Uint32(block[24:]), binary.LittleEndian.Uint32(block[28:])
	flags, level := binary.LittleEndian.Uint16(block[32:]), binary.LittleEndian.Uint16(block[34:])
	records := binary.LittleEndian.Uint32(block[36:])
	switch {
	case kind&apfsTypeBits != apfsRoot && kind&apfsTypeBits != apfsNode, kind&apfsStorageMask == apfsEphemeral:
		return false
	case subtype != apfsOmap && subtype != apfsFSTree:
		return false
	}
	return flags <= apfsMaxFlags && level < apfsMaxLevel && records > 0 &&
		records <= uint32(len(block)/apfsMinRecordBytes)
}

// section is a part of a frame that decodes without the others: a zstd frame.
type section struct {
	storedEnd, end int // in the stored and the decoded frame
}

// parseSections returns the sections of a stored frame that decodes to a number of bytes. It returns nil for a frame
// that has one only, or that must be decoded as a whole to know whether it is valid.
func parseSections(stored []byte, decoded int) []section {
	var sections []section
	var last section
	for last.storedEnd < len(stored) {
		var h zstd.Header
		blocks, err := h.DecodeAndStrip(stored[last.storedEnd:])
		if err != nil || h.Skippable || h.HasCheckSum || h.DictionaryID != 0 || !h.HasFCS || h.FrameContentSize == 0 ||
			h.FrameContentSize > uint64(decoded-last.end) || len(sections) == maxSections {
			return nil
		}
		rest, ok := skipBlocks(blocks)
		if !ok {
			return nil
		}
		last = section{len(stored) - len(rest), last.end + int(h.FrameContentSize)}
		sections = append(sections, last)
	}
	if last.end != decoded || len(sections) < 2 {
		return nil
	}
	return sections
}

// skipBlocks returns what follows the last block of a zstd frame.
func skipBlocks(b []byte) (rest []byte, ok bool) {
	const headerBytes, rle, reserved = 3, 1, 3
	for {
		if len(b) < headerBytes {
			return nil, false
		}
		header := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
		isLast, kind, n := header&1 != 0, header>>1&3, header>>3
		if kind == rle {
			n = 1
		}
		if b = b[headerBytes:]; kind == reserved || n > len(b) {
			return nil, false
		}
		if b = b[n:]; isLast {
			return b, true
		}
	}
}

// frameBytes are the bytes of a verified frame. A section is decoded when it is read for the first time. It may be
// used from many goroutines.
type frameBytes struct {
	raw      []byte    // all bytes; with sections each begins decodeOverrun bytes farther than the one before it
	sections []section // nil: raw has all bytes

	mu      sync.Mutex // guards the fields below, and sections of raw that are not decoded
	stored  *[]byte    // of storedFramePool; nil when nothing is left to be decoded
	decoded [maxSections]bool
	left    int // sections to be decoded
}

// readAt copies bytes that are at off of the frame.
func (f *frameBytes) readAt(dst []byte, off int) error {
	if f.sections == nil {
		copy(dst, f.raw[off:])
		return nil
	}
	begin := 0
	for i, s := range f.sections {
		if off < s.end && len(dst) > 0 {
			raw, err := f.section(i, begin)
			if err != nil {
				return err
			}
			n := copy(dst, raw[off-begin:])
			dst, off = dst[n:], off+n
		}
		begin = s.end
	}
	return nil
}

// section returns a section, which begins at begin of the frame.
func (f *frameBytes) section(i, begin int) ([]byte, error) {
	n := f.sections[i].end - begin
	begin += i * decodeOverrun
	raw := f.raw[begin : begin+n : begin+n+decodeOverrun]
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.decoded[i] {
		return raw, nil
	}
	dec, err := zdecoder()
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	storedBegin := 0
	if i > 0 {
		storedBegin = f.sections[i-1].storedEnd
	}
	got, err := dec.DecodeAll((*f.stored)[storedBegin:f.sections[i].storedEnd], raw[:0])
	if err != nil {
		return nil, corrupt("section %d of a frame does not decode: %v", i, err)
	}
	if len(got) != n {
		return nil, corrupt("section %d of a frame decodes to %d bytes instead of %d", i, len(got), n)
	}
	f.decoded[i] = true
	if f.left--; f.left == 0 {
		f.releaseStored()
	}
	return raw, nil
}

// releaseStored returns the memory of the stored frame.
func (f *frameBytes) releaseStored() {
	if f.stored != nil {
		storedFramePool.Put(f.stored)
		f.stored = nil
	}
}
