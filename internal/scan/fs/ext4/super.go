package ext4

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
)

const (
	superAt    = 1024
	superSize  = 1024
	superMagic = 0xef53

	rootInode       = 2
	groupSize32     = 32
	maxGroupSize    = 1024
	minBlock        = 1024
	maxBlock        = 64 << 10
	goodInode       = 128 // bytes of an inode of the first revision
	checksumOfSuper = 0x3fc
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

	known = hasFileType | hasRecovery | hasMetaGroups | hasExtents | has64Bit | hasMMP | hasFlexGroups |
		hasEAInode | hasSeed | hasLargeDir | hasInline | hasEncryption | hasCaseFold
)

// Other features, which only describe additional data.
const (
	compatSparse2    = 0x200
	roSparseSuper    = 0x1
	roMetaChecksums  = 0x400
	stateClean       = 0x1
	stateErrors      = 0x2
	creatorLinuxOnly = 0x175 // offset of the checksum's kind: 1 is CRC-32C
)

// super has the fields of the superblock that reading needs.
type super struct {
	inodes         uint32
	blocks         uint64
	firstBlock     uint32
	blockSize      int64
	blocksPerGroup uint32
	inodesPerGroup uint32
	inodeSize      int64
	groupSize      int64
	firstMeta      uint32
	backups        [2]uint32 // with sparse_super2: the groups that have a copy of the superblock

	compat, incompat, ro uint32
	state                uint16
	label, mounted       string
	uuid                 [16]byte
	seed                 uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum continues a CRC-32C as the format defines it: without the inversions at beginning and
// end.
func checksum(crc uint32, p []byte) uint32 { return ^crc32.Update(^crc, castagnoli, p) }

func readSuper(r io.ReaderAt) (*super, error) {
	b := make([]byte, superSize)
	if n, err := r.ReadAt(b, superAt); n < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			return nil, ErrNone
		}
		return nil, fmt.Errorf("read superblock: %w", err)
	}
	le := binary.LittleEndian
	if le.Uint16(b[56:]) != superMagic {
		return nil, ErrNone
	}
	s := &super{
		inodes: le.Uint32(b), blocks: uint64(le.Uint32(b[4:])), firstBlock: le.Uint32(b[20:]),
		blocksPerGroup: le.Uint32(b[32:]), inodesPerGroup: le.Uint32(b[40:]), state: le.Uint16(b[58:]),
		inodeSize: goodInode, groupSize: groupSize32,
		mounted: text(b[136:200]), label: text(b[120:136]),
	}
	if le.Uint32(b[76:]) > 0 { // a revision with features
		s.inodeSize = int64(le.Uint16(b[88:]))
		s.compat, s.incompat, s.ro = le.Uint32(b[92:]), le.Uint32(b[96:]), le.Uint32(b[100:])
	}
	copy(s.uuid[:], b[104:])
	if s.incompat&has64Bit != 0 {
		s.blocks |= uint64(le.Uint32(b[336:])) << 32
		s.groupSize = int64(le.Uint16(b[254:]))
	}
	s.firstMeta = le.Uint32(b[260:])
	s.backups = [2]uint32{le.Uint32(b[0x24c:]), le.Uint32(b[0x250:])}
	s.seed = checksum(^uint32(0), s.uuid[:])
	if s.incompat&hasSeed != 0 {
		s.seed = le.Uint32(b[0x270:])
	}
	log := le.Uint32(b[24:])
	if log > 6 {
		return nil, damaged("its blocks have 2^%d bytes", uint64(log)+10)
	}
	s.blockSize = minBlock << log
	if s.checksums() {
		if b[creatorLinuxOnly] != 1 {
			return nil, fmt.Errorf("unsupported checksum type (%d)", b[creatorLinuxOnly])
		}
		if checksum(^uint32(0), b[:checksumOfSuper]) != le.Uint32(b[checksumOfSuper:]) {
			return nil, damaged("its superblock is not what its checksum says")
		}
	}
	return s, s.check()
}

// check refuses a file system that cannot be read.
func (s *super) check() error {
	groups := uint64(0)
	if s.blocksPerGroup > 0 && s.blocks > uint64(s.firstBlock) {
		groups = (s.blocks - uint64(s.firstBlock) + uint64(s.blocksPerGroup) - 1) / uint64(s.blocksPerGroup)
	}
	switch {
	case s.incompat&hasJournalDev != 0:
		return errors.New("the device is the journal of another file system")
	case s.incompat&^known != 0:
		return fmt.Errorf("unsupported ext4 features (%#x)", s.incompat&^known)
	case s.blocksPerGroup == 0 || s.inodesPerGroup == 0 || groups == 0:
		return damaged("it has %d blocks in groups of %d and %d inodes in groups of %d", s.blocks, s.blocksPerGroup,
			s.inodes, s.inodesPerGroup)
	case groups > 1<<32 || uint64(s.inodes) > groups*uint64(s.inodesPerGroup) || s.inodes < rootInode:
		return damaged("it has %d inodes in %d groups of %d", s.inodes, groups, s.inodesPerGroup)
	case s.inodeSize < goodInode || s.inodeSize > s.blockSize || s.inodeSize&(s.inodeSize-1) != 0:
		return damaged("its inodes have %d bytes", s.inodeSize)
	case s.groupSize < groupSize32 || s.groupSize > maxGroupSize || s.groupSize&(s.groupSize-1) != 0:
		return damaged("its descriptors of groups have %d bytes", s.groupSize)
	case s.blocks > 1<<62/uint64(s.blockSize):
		return damaged("it has %d blocks", s.blocks)
	}
	return nil
}

func (s *super) checksums() bool { return s.ro&roMetaChecksums != 0 }

// descriptor returns the offset in the file system of a group's descriptor.
func (s *super) descriptor(group uint32) int64 {
	perBlock := uint32(s.blockSize / s.groupSize)
	meta := group / perBlock
	block := uint64(superAt/s.blockSize) + 1 + uint64(meta) // after the superblock, wherever groups begin
	if s.incompat&hasMetaGroups != 0 && meta >= s.firstMeta {
		first := meta * perBlock
		block = uint64(s.firstBlock) + uint64(first)*uint64(s.blocksPerGroup)
		if s.hasCopy(first) {
			block++
		}
		if first == 0 && s.blockSize == minBlock && s.firstBlock == 0 {
			block++ // the boot block precedes the superblock
		}
	}
	return int64(block)*s.blockSize + int64(group%perBlock)*s.groupSize
}

// hasCopy reports whether a group begins with a superblock.
func (s *super) hasCopy(group uint32) bool {
	switch {
	case group == 0:
		return true
	case s.compat&compatSparse2 != 0:
		return group == s.backups[0] || group == s.backups[1]
	case group == 1 || s.ro&roSparseSuper == 0:
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

// text returns the characters before the first zero, without terminal control characters.
func text(b []byte) string {
	if k := bytes.IndexByte(b, 0); k >= 0 {
		b = b[:k]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\ufffd' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(b), ""))
}
