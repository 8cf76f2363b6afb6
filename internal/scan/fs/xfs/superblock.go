package xfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

const (
	superMagic          = "XFSB"
	superChecksumOffset = 224
	sectorBytes         = 512 // of a disk address, and the smallest sector
	maxSectorBytes      = 32 << 10

	version4 = 4
	version5 = 5 // with checksums

	// The sizes of blocks, and of inodes, are powers of two between these.
	minBlockLog, maxBlockLog = 9, 16
	minInodeLog, maxInodeLog = 8, 11
	minCheckedBlockLog       = 10 // of version 5
	minCheckedInodeLog       = 9
)

// Bits of the version's field.
const (
	versionNumber      = 0xf
	versionDirs2       = 0x2000 // directories of the second version
	versionHasFeatures = 0x8000 // the features below have a field
)

// Features that both versions may have.
const (
	featureLazyCounts = 0x2
	featureAttrs2     = 0x8
	featureProjects32 = 0x80
	featureFileType   = 0x200 // entries of directories have the types of their files
	supportedFeatures = featureLazyCounts | featureAttrs2 | featureProjects32 | featureFileType
)

// Incompatible features of version 5: a reader that does not support one must not read.
const (
	incompatFileType     = 0x1
	incompatSparseInodes = 0x2
	incompatMetaUUID     = 0x4
	incompatBigTime      = 0x8
	incompatNeedsRepair  = 0x10
	incompatLargeCounts  = 0x20
	incompatExchange     = 0x40
	incompatParents      = 0x80

	supportedIncompat = incompatFileType | incompatSparseInodes | incompatMetaUUID | incompatBigTime |
		incompatNeedsRepair | incompatLargeCounts | incompatExchange | incompatParents
)

// unsupportedIncompat names known features that are not supported.
var unsupportedIncompat = []struct {
	bit  uint32
	name string
}{
	{0x100, "metadir (a directory of metadata, and realtime groups)"}, {0x200, "zoned"}, {0x400, "zone_gaps"},
}

// superblock has the fields of the superblock that reading needs.
type superblock struct {
	version    int
	sectorSize int64 // bytes
	blockLog   uint  // power of two of blockSize
	blockSize  int64 // bytes
	blockCount uint64
	inodeLog   uint // power of two of inodeSize
	inodeSize  int64
	rootInode  uint64

	// The number of a block has that of its allocation group in its upper bits and its position in the
	// group in the lower groupLog bits.
	groupCount, groupBlocks uint32
	groupLog                uint
	dirBlockLog             uint // power of two of the blocks of a directory block

	logStart  uint64 // block of the log; 0 = it is on another device
	logBlocks uint32

	features, incompat uint32
	hasDirs2           bool
	unfinished         bool     // mkfs.xfs did not finish
	uuid               [16]byte // in the headers of metadata
	label              string
}

func readSuperblock(r io.ReaderAt) (*superblock, error) {
	b, err := readStart(r, sectorBytes)
	if err != nil {
		return nil, err
	}
	if string(b[:len(superMagic)]) != superMagic {
		return nil, ErrNotXFS
	}
	s := parseSuperblock(b)
	if s.version == version5 {
		if s.sectorSize < sectorBytes || s.sectorSize > maxSectorBytes || s.sectorSize&(s.sectorSize-1) != 0 {
			return nil, damaged("its sectors have %d bytes", s.sectorSize)
		}
		if b, err = readStart(r, s.sectorSize); err != nil {
			return nil, err
		}
		if !hasChecksum(b, superChecksumOffset) {
			return nil, damaged("its superblock is not what its checksum says")
		}
	}
	return s, s.checkSupported()
}

// readStart reads the first n bytes.
func readStart(r io.ReaderAt, n int64) ([]byte, error) {
	b := make([]byte, n)
	if got, err := r.ReadAt(b, 0); got < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			return nil, ErrNotXFS
		}
		return nil, fmt.Errorf("read superblock: %w", err)
	}
	return b, nil
}

func parseSuperblock(b []byte) *superblock {
	flags := be.Uint16(b[100:])
	s := &superblock{
		version: int(flags & versionNumber), hasDirs2: flags&versionDirs2 != 0,
		sectorSize: int64(be.Uint16(b[102:])),
		blockLog:   uint(b[120]), blockSize: int64(be.Uint32(b[4:])), blockCount: be.Uint64(b[8:]),
		inodeLog: uint(b[122]), inodeSize: int64(be.Uint16(b[104:])), rootInode: be.Uint64(b[56:]),
		groupCount: be.Uint32(b[88:]), groupBlocks: be.Uint32(b[84:]), groupLog: uint(b[124]),
		dirBlockLog: uint(b[192]), logStart: be.Uint64(b[48:]), logBlocks: be.Uint32(b[96:]),
		unfinished: b[126] != 0, uuid: [16]byte(b[32:48]), label: inodefs.CString(b[108:120]),
	}
	if flags&versionHasFeatures != 0 {
		// Programs for 64-bit machines once wrote the field at the offset of the next one.
		s.features = be.Uint32(b[200:]) | be.Uint32(b[204:])
	}
	if s.version == version5 {
		s.incompat = be.Uint32(b[216:])
		if s.incompat&incompatMetaUUID != 0 {
			s.uuid = [16]byte(b[248:264])
		}
	}
	return s
}

// checkSupported refuses a file system that cannot be read.
func (s *superblock) checkSupported() error {
	if err := s.checkFeatures(); err != nil {
		return err
	}
	blocks := uint64(s.groupCount) * uint64(s.groupBlocks)
	switch {
	case s.unfinished:
		return damaged("mkfs.xfs did not finish it")
	case s.blockLog < minBlockLog || s.blockLog > maxBlockLog || s.blockSize != 1<<s.blockLog ||
		s.hasChecksums() && s.blockLog < minCheckedBlockLog:
		return damaged("its blocks have %d bytes, and 2^%d", s.blockSize, s.blockLog)
	case s.inodeLog < minInodeLog || s.inodeLog > min(maxInodeLog, s.blockLog) || s.inodeSize != 1<<s.inodeLog ||
		s.hasChecksums() && s.inodeLog < minCheckedInodeLog:
		return damaged("its inodes have %d bytes, and 2^%d", s.inodeSize, s.inodeLog)
	case s.groupBlocks == 0 || s.groupLog != uint(bits.Len32(s.groupBlocks-1)):
		return damaged("its groups have %d blocks, and at most 2^%d", s.groupBlocks, s.groupLog)
	case s.blockCount > blocks || s.blockCount+uint64(s.groupBlocks) <= blocks ||
		s.blockCount > 1<<62>>s.blockLog:
		return damaged("it has %d blocks in %d groups of %d", s.blockCount, s.groupCount, s.groupBlocks)
	case s.dirBlockLog+s.blockLog > maxBlockLog:
		return damaged("its directories have blocks of 2^%d bytes", s.dirBlockLog+s.blockLog)
	}
	return nil
}

// checkFeatures refuses features that are not supported.
func (s *superblock) checkFeatures() error {
	missing := s.incompat &^ supportedIncompat
	var names []string
	for _, f := range unsupportedIncompat {
		if missing&f.bit != 0 {
			names = append(names, f.name)
		}
	}
	switch {
	case s.version != version4 && s.version != version5:
		return fmt.Errorf("%w: version %d", ErrUnsupported, s.version)
	case len(names) > 0:
		return fmt.Errorf("%w: %s (%#x)", ErrUnsupported, strings.Join(names, ", "), missing)
	case missing != 0:
		return fmt.Errorf("%w: unknown features (%#x)", ErrUnsupported, missing)
	case !s.hasDirs2:
		return fmt.Errorf("%w: directories of version 1", ErrUnsupported)
	case s.version == version4 && s.features&^supportedFeatures != 0:
		return fmt.Errorf("%w: unknown features (%#x) of version 4", ErrUnsupported, s.features&^supportedFeatures)
	}
	return nil
}

func (s *superblock) hasChecksums() bool { return s.version == version5 }

// hasFileTypes reports whether entries of directories have the types of their files.
func (s *superblock) hasFileTypes() bool {
	return s.features&featureFileType != 0 || s.incompat&incompatFileType != 0
}

// blockOffset returns the offset in bytes of count blocks of one allocation group. It is never 0.
func (s *superblock) blockOffset(block, count uint64) (int64, error) {
	group, position := block>>s.groupLog, block&(1<<s.groupLog-1)
	if group < uint64(s.groupCount) && position < uint64(s.groupBlocks) && count <= uint64(s.groupBlocks)-position {
		index := group*uint64(s.groupBlocks) + position
		if index > 0 && index+count <= s.blockCount {
			return int64(index) << s.blockLog, nil
		}
	}
	return 0, damaged("it refers to block %d of group %d and %d more, of %d blocks in groups of %d", position, group,
		count-1, s.blockCount, s.groupBlocks)
}

// inodeOffset returns the offset in bytes of an inode, whose number has that of its block in its upper bits.
func (s *superblock) inodeOffset(number uint64) (int64, error) {
	perBlock := s.blockLog - s.inodeLog
	off, err := s.blockOffset(number>>perBlock, 1)
	if err != nil {
		return 0, damaged("a name leads to inode %d, which is not in the file system", number)
	}
	return off + int64(number&(1<<perBlock-1))<<s.inodeLog, nil
}

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	noChecksum [4]byte
)

// hasChecksum reports whether the CRC-32C at an offset of b is that of b with zeros in its place.
func hasChecksum(b []byte, at int) bool {
	crc := crc32.Update(0, castagnoli, b[:at])
	crc = crc32.Update(crc, castagnoli, noChecksum[:])
	crc = crc32.Update(crc, castagnoli, b[at+len(noChecksum):])
	return crc == binary.LittleEndian.Uint32(b[at:])
}

// blockHeader has the offsets of the fields by which a block of version 5 describes itself.
type blockHeader struct{ checksum, address, uuid, owner int }

var (
	dirHeader    = blockHeader{checksum: 4, address: 8, uuid: 24, owner: 40}
	treeHeader   = blockHeader{checksum: 64, address: 24, uuid: 40, owner: 56}
	targetHeader = blockHeader{checksum: 12, address: 40, uuid: 16, owner: 32}
)

// verifyBlock verifies that b is a block of an inode at an offset in bytes.
func (s *superblock) verifyBlock(b []byte, h blockHeader, off int64, owner uint64) error {
	switch {
	case !hasChecksum(b, h.checksum):
		return damaged("its block at byte %d is not what its checksum says", off)
	case be.Uint64(b[h.address:]) != uint64(off)/sectorBytes:
		return damaged("its block at byte %d says that it is at sector %d", off, be.Uint64(b[h.address:]))
	case [16]byte(b[h.uuid:h.uuid+16]) != s.uuid:
		return damaged("its block at byte %d is of another file system", off)
	case be.Uint64(b[h.owner:]) != owner:
		return damaged("its block at byte %d is that of inode %d", off, be.Uint64(b[h.owner:]))
	}
	return nil
}
