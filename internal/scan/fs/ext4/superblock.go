package ext4

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

const (
	superblockOffset = 1024
	superblockSize   = 1024
	superMagic       = 0xef53

	rootInode           = 2
	descriptorSize32    = 32
	maxDescriptorSize   = 1024
	minBlockSize        = 1024
	maxBlockSize        = 64 << 10
	minInodeSize        = 128 // bytes of an inode of the first revision
	superChecksumOffset = 0x3fc
)

// Incompatible features: a reader that does not support one must not read.
const (
	hasFileType   = 0x2
	hasRecovery   = 0x4
	hasJournalDev = 0x8
	hasMetaGroups = 0x10
	hasExtents    = 0x40
	has64Bit      = 0x80
	hasMMP        = 0x100
	hasFlexGroups = 0x200
	hasEAInode    = 0x400
	hasSeed       = 0x2000
	hasLargeDir   = 0x4000
	hasInline     = 0x8000
	hasEncryption = 0x10000
	hasCaseFold   = 0x20000

	supportedFeatures = hasFileType | hasRecovery | hasMetaGroups | hasExtents | has64Bit | hasMMP | hasFlexGroups |
		hasEAInode | hasSeed | hasLargeDir | hasInline | hasEncryption | hasCaseFold
)

// Other features, which only describe additional data.
const (
	compatSparse2      = 0x200
	roSparseSuper      = 0x1
	roMetaChecksums    = 0x400
	stateClean         = 0x1
	stateErrors        = 0x2
	checksumTypeOffset = 0x175 // offset of the checksum's kind: 1 is CRC-32C
)

// superblock has the fields of the superblock that reading needs.
type superblock struct {
	inodeCount     uint32
	blockCount     uint64
	firstBlock     uint32
	blockSize      int64
	blocksPerGroup uint32
	inodesPerGroup uint32
	inodeSize      int64
	descriptorSize int64
	firstMetaGroup uint32
	backupGroups   [2]uint32 // with sparse_super2: the groups that have a copy of the superblock

	compat, incompat, roCompat uint32
	state                      uint16
	label, lastMounted         string
	uuid                       [16]byte
	checksumSeed               uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum continues a CRC-32C as the format defines it: without the inversions at beginning and
// end.
func checksum(crc uint32, p []byte) uint32 { return ^crc32.Update(^crc, castagnoli, p) }

func readSuperblock(r io.ReaderAt) (*superblock, error) {
	b := make([]byte, superblockSize)
	if n, err := r.ReadAt(b, superblockOffset); n < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			return nil, ErrNotExt
		}
		return nil, fmt.Errorf("read superblock: %w", err)
	}
	le := binary.LittleEndian
	if le.Uint16(b[56:]) != superMagic {
		return nil, ErrNotExt
	}
	s := &superblock{
		inodeCount: le.Uint32(b), blockCount: uint64(le.Uint32(b[4:])), firstBlock: le.Uint32(b[20:]),
		blocksPerGroup: le.Uint32(b[32:]), inodesPerGroup: le.Uint32(b[40:]), state: le.Uint16(b[58:]),
		inodeSize: minInodeSize, descriptorSize: descriptorSize32,
		lastMounted: inodefs.CString(b[136:200]), label: inodefs.CString(b[120:136]),
	}
	if le.Uint32(b[76:]) > 0 { // a revision with features
		s.inodeSize = int64(le.Uint16(b[88:]))
		s.compat, s.incompat, s.roCompat = le.Uint32(b[92:]), le.Uint32(b[96:]), le.Uint32(b[100:])
	}
	copy(s.uuid[:], b[104:])
	if s.incompat&has64Bit != 0 {
		s.blockCount |= uint64(le.Uint32(b[336:])) << 32
		s.descriptorSize = int64(le.Uint16(b[254:]))
	}
	s.firstMetaGroup = le.Uint32(b[260:])
	s.backupGroups = [2]uint32{le.Uint32(b[0x24c:]), le.Uint32(b[0x250:])}
	s.checksumSeed = checksum(^uint32(0), s.uuid[:])
	if s.incompat&hasSeed != 0 {
		s.checksumSeed = le.Uint32(b[0x270:])
	}
	log := le.Uint32(b[24:])
	if log > 6 {
		return nil, damaged("its blocks have 2^%d bytes", uint64(log)+10)
	}
	s.blockSize = minBlockSize << log
	if s.hasChecksums() {
		if b[checksumTypeOffset] != 1 {
			return nil, fmt.Errorf("unsupported checksum type (%d)", b[checksumTypeOffset])
		}
		if checksum(^uint32(0), b[:superChecksumOffset]) != le.Uint32(b[superChecksumOffset:]) {
			return nil, damaged("its superblock is not what its checksum says")
		}
	}
	return s, s.checkSupported()
}

// checkSupported refuses a file system that cannot be read.
func (s *superblock) checkSupported() error {
	groups := uint64(0)
	if s.blocksPerGroup > 0 && s.blockCount > uint64(s.firstBlock) {
		groups = (s.blockCount - uint64(s.firstBlock) + uint64(s.blocksPerGroup) - 1) / uint64(s.blocksPerGroup)
	}
	switch {
	case s.incompat&hasJournalDev != 0:
		return errors.New("the device is the journal of another file system")
	case s.incompat&^supportedFeatures != 0:
		return fmt.Errorf("unsupported ext4 features (%#x)", s.incompat&^supportedFeatures)
	case s.blocksPerGroup == 0 || s.inodesPerGroup == 0 || groups == 0:
		return damaged("it has %d blocks in groups of %d and %d inodes in groups of %d", s.blockCount, s.blocksPerGroup,
			s.inodeCount, s.inodesPerGroup)
	case groups > 1<<32 || uint64(s.inodeCount) > groups*uint64(s.inodesPerGroup) || s.inodeCount < rootInode:
		return damaged("it has %d inodes in %d groups of %d", s.inodeCount, groups, s.inodesPerGroup)
	case s.inodeSize < minInodeSize || s.inodeSize > s.blockSize || s.inodeSize&(s.inodeSize-1) != 0:
		return damaged("its inodes have %d bytes", s.inodeSize)
	case s.descriptorSize < descriptorSize32 || s.descriptorSize > maxDescriptorSize ||
		s.descriptorSize&(s.descriptorSize-1) != 0:
		return damaged("its descriptors of groups have %d bytes", s.descriptorSize)
	case s.blockCount > 1<<62/uint64(s.blockSize):
		return damaged("it has %d blocks", s.blockCount)
	}
	return nil
}

func (s *superblock) hasChecksums() bool { return s.roCompat&roMetaChecksums != 0 }

// descriptorOffset returns the offset in the file system of a group's descriptor.
func (s *superblock) descriptorOffset(group uint32) int64 {
	perBlock := uint32(s.blockSize / s.descriptorSize)
	meta := group / perBlock
	block := uint64(superblockOffset/s.blockSize) + 1 + uint64(meta) // after the superblock, wherever groups begin
	if s.incompat&hasMetaGroups != 0 && meta >= s.firstMetaGroup {
		first := meta * perBlock
		block = uint64(s.firstBlock) + uint64(first)*uint64(s.blocksPerGroup)
		if s.hasSuperblockCopy(first) {
			block++
		}
		if first == 0 && s.blockSize == minBlockSize && s.firstBlock == 0 {
			block++ // the boot block precedes the superblock
		}
	}
	return int64(block)*s.blockSize + int64(group%perBlock)*s.descriptorSize
}

// hasSuperblockCopy reports whether a group begins with a superblock.
func (s *superblock) hasSuperblockCopy(group uint32) bool {
	switch {
	case group == 0:
		return true
	case s.compat&compatSparse2 != 0:
		return group == s.backupGroups[0] || group == s.backupGroups[1]
	case group == 1 || s.roCompat&roSparseSuper == 0:
		return true
	}
	for _, base := range []uint64{3, 5, 7} {
		n := base
		for n < uint64(group) {
			n *= base
		}
		if n == uint64(group) {
			return true
		}
	}
	return false
}
