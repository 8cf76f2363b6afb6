package ext4

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// Flags of inodes.
const (
	flagEncrypted = 0x800
	flagExtents   = 0x80000
	flagInline    = 0x10000000
	flagCaseFold  = 0x40000000
)

// blockMapBytes is the size in bytes of the block map of an inode.
const blockMapBytes = 60

// inode has the fields of an inode.
type inode struct {
	number      uint32
	generation  uint32
	mode        uint16
	linkCount   uint16
	flags       uint32
	size        int64
	mtime       time.Time
	blockMap    [blockMapBytes]byte
	inlineAttrs []byte // of one with inline data: its attributes, after the fixed fields
}

func (n *inode) kind() uint16 { return n.mode & inodefs.ModeKind }
func (n *inode) isDir() bool  { return n.kind() == inodefs.ModeDir }

// readInode reads the inode of a name.
func (f *FS) readInode(number uint32) (*inode, error) {
	n, err := f.loadInode(number)
	if err != nil {
		f.reads.addFailure()
		return nil, err
	}
	f.reads.addInode(n)
	return n, nil
}

func (f *FS) loadInode(number uint32) (*inode, error) {
	off, err := f.inodeOffset(number)
	if err != nil {
		return nil, err
	}
	raw, err := f.pages.Get(off, f.superblock.inodeSize)
	if err != nil {
		return nil, fmt.Errorf("inode %d: %w", number, err)
	}
	n, err := f.parseInode(number, raw)
	if err != nil {
		return nil, fmt.Errorf("inode %d: %w", number, err)
	}
	return n, nil
}

// inodeOffset returns the offset of an inode.
func (f *FS) inodeOffset(number uint32) (int64, error) {
	if number == 0 || number > f.superblock.inodeCount {
		return 0, damaged("a name leads to inode %d of %d", number, f.superblock.inodeCount)
	}
	table, err := f.inodeTableOffset((number - 1) / f.superblock.inodesPerGroup)
	return table + int64((number-1)%f.superblock.inodesPerGroup)*f.superblock.inodeSize, err
}

// inodeTableOffset returns the offset of a group's inodes.
func (f *FS) inodeTableOffset(group uint32) (int64, error) {
	raw, err := f.pages.Get(f.superblock.descriptorOffset(group), f.superblock.descriptorSize)
	if err != nil {
		return 0, fmt.Errorf("read descriptor of block group %d: %w", group, err)
	}
	le := binary.LittleEndian
	block := uint64(le.Uint32(raw[8:]))
	if len(raw) >= 64 {
		block |= uint64(le.Uint32(raw[0x28:])) << 32
	}
	if f.superblock.hasChecksums() {
		crc := checksum(checksum32(f.superblock.checksumSeed, group), raw[:0x1e])
		crc = checksum(crc, []byte{0, 0})
		crc = checksum(crc, raw[0x20:])
		if uint16(crc) != le.Uint16(raw[0x1e:]) {
			return 0, damaged("the descriptor of group %d is not what its checksum says", group)
		}
	}
	if block == 0 || block >= f.superblock.blockCount {
		return 0, damaged("the inodes of group %d are at block %d of %d", group, block, f.superblock.blockCount)
	}
	return int64(block) * f.superblock.blockSize, nil
}

// checksum32 continues with a checksum over a number.
func checksum32(crc, v uint32) uint32 {
	return checksum(crc, []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)})
}

func (f *FS) parseInode(number uint32, raw []byte) (*inode, error) {
	le := binary.LittleEndian
	n := &inode{
		number: number, generation: le.Uint32(raw[100:]), mode: le.Uint16(raw), linkCount: le.Uint16(raw[26:]),
		flags: le.Uint32(raw[32:]),
	}
	extra := int64(0)
	if len(raw) >= minInodeSize+4 {
		extra = int64(le.Uint16(raw[128:]))
		if extra > int64(len(raw))-minInodeSize || extra%4 != 0 {
			return nil, damaged("invalid size %d of its extra fields: want a multiple of 4 up to %d", extra,
				len(raw)-minInodeSize)
		}
	}
	if f.superblock.hasChecksums() {
		if err := f.checkInode(n, raw, extra); err != nil {
			return nil, err
		}
	}
	size := uint64(le.Uint32(raw[4:]))
	if n.kind() == inodefs.ModeRegular || n.isDir() && f.superblock.incompat&hasLargeDir != 0 {
		size |= uint64(le.Uint32(raw[108:])) << 32
	}
	if n.size = int64(size); n.size < 0 || n.size > f.superblock.blockSize<<32 {
		return nil, damaged("it has %d bytes", size)
	}
	seconds, nanos := int64(int32(le.Uint32(raw[16:]))), int64(0)
	if extra >= 12 {
		more := le.Uint32(raw[136:])
		seconds += int64(more&3) << 32
		nanos = int64(more >> 2)
	}
	n.mtime = time.Unix(seconds, nanos)
	copy(n.blockMap[:], raw[40:])
	if n.flags&flagInline != 0 {
		// a copy, which keeps no page in memory
		n.inlineAttrs = bytes.Clone(raw[min(minInodeSize+extra, int64(len(raw))):])
	}
	return n, nil
}

// checksumSeed begins a checksum of metadata that belongs to an inode.
func (f *FS) checksumSeed(n *inode) uint32 {
	return checksum32(checksum32(f.superblock.checksumSeed, n.number), n.generation)
}

// checkInode verifies the checksum of an inode, which is stored in it in two parts.
func (f *FS) checkInode(n *inode, raw []byte, extra int64) error {
	const low, high = 124, 130
	le := binary.LittleEndian
	zero := []byte{0, 0}
	crc := checksum(checksum(f.checksumSeed(n), raw[:low]), zero)
	want, got := uint32(le.Uint16(raw[low:])), uint32(0)
	switch {
	case len(raw) == minInodeSize:
		got = checksum(crc, raw[low+2:]) & 0xffff
	case extra >= 4:
		crc = checksum(checksum(crc, raw[low+2:high]), zero)
		got = checksum(crc, raw[high+2:])
		want |= uint32(le.Uint16(raw[high:])) << 16
	default:
		got = checksum(crc, raw[low+2:]) & 0xffff
	}
	if got != want {
		return damaged("it is not what its checksum says")
	}
	return nil
}

// ID returns the number of the inode: files with the same one are the same file.
func (n *inode) ID() uint64 { return uint64(n.number) }

// Links returns the number of names of the file.
func (n *inode) Links() uint64 { return uint64(n.linkCount) }

// IsLink reports whether the inode is a symbolic link.
func (n *inode) IsLink() bool { return n.kind() == inodefs.ModeLink }

// Attributes returns its mode, its size, and when its content was changed.
func (n *inode) Attributes() (mode uint16, size int64, changed time.Time) {
	return n.mode, n.size, n.mtime
}
