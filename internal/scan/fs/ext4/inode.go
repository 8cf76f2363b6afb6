package ext4

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"time"
)

// Flags of inodes.
const (
	flagEncrypted = 0x800
	flagExtents   = 0x80000
	flagInline    = 0x10000000
	flagCaseFold  = 0x40000000
)

// Kinds in the mode of an inode.
const (
	modeKind    = 0xf000
	modeFIFO    = 0x1000
	modeChar    = 0x2000
	modeFolder  = 0x4000
	modeBlock   = 0x6000
	modeRegular = 0x8000
	modeLink    = 0xa000
	modeSocket  = 0xc000
)

// blockArea is the size in bytes of the block map of an inode.
const blockArea = 60

// inode has the fields of an inode.
type inode struct {
	number     uint32
	generation uint32
	mode       uint16
	links      uint16
	flags      uint32
	size       int64
	mtime      time.Time
	where      [blockArea]byte
	tail       []byte // of one with inline data: its attributes, after the fixed fields
}

func (n *inode) kind() uint16 { return n.mode & modeKind }
func (n *inode) isDir() bool  { return n.kind() == modeFolder }
func (n *inode) isLink() bool { return n.kind() == modeLink }

// inode reads the inode of a name.
func (f *FS) inode(number uint32) (*inode, error) {
	if number == 0 || number > f.super.inodes {
		return nil, damaged("a name leads to inode %d of %d", number, f.super.inodes)
	}
	table, err := f.table((number - 1) / f.super.inodesPerGroup)
	if err != nil {
		return nil, err
	}
	raw, err := f.pages.get(table+int64((number-1)%f.super.inodesPerGroup)*f.super.inodeSize, f.super.inodeSize)
	if err != nil {
		return nil, fmt.Errorf("inode %d: %w", number, err)
	}
	n, err := f.parseInode(number, raw)
	if err != nil {
		return nil, fmt.Errorf("inode %d: %w", number, err)
	}
	return n, nil
}

// table returns the offset of a group's inodes.
func (f *FS) table(group uint32) (int64, error) {
	raw, err := f.pages.get(f.super.descriptor(group), f.super.groupSize)
	if err != nil {
		return 0, fmt.Errorf("descriptor of group %d: %w", group, err)
	}
	le := binary.LittleEndian
	block := uint64(le.Uint32(raw[8:]))
	if len(raw) >= 64 {
		block |= uint64(le.Uint32(raw[0x28:])) << 32
	}
	if f.super.checksums() {
		crc := checksum(checksum32(f.super.seed, group), raw[:0x1e])
		crc = checksum(crc, []byte{0, 0})
		crc = checksum(crc, raw[0x20:])
		if uint16(crc) != le.Uint16(raw[0x1e:]) {
			return 0, damaged("the descriptor of group %d is not what its checksum says", group)
		}
	}
	if block == 0 || block >= f.super.blocks {
		return 0, damaged("the inodes of group %d are at block %d of %d", group, block, f.super.blocks)
	}
	return int64(block) * f.super.blockSize, nil
}

// checksum32 continues with a checksum over a number.
func checksum32(crc, v uint32) uint32 {
	return checksum(crc, []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)})
}

func (f *FS) parseInode(number uint32, raw []byte) (*inode, error) {
	le := binary.LittleEndian
	n := &inode{
		number: number, generation: le.Uint32(raw[100:]), mode: le.Uint16(raw), links: le.Uint16(raw[26:]),
		flags: le.Uint32(raw[32:]),
	}
	extra := int64(0)
	if len(raw) >= goodInode+4 {
		extra = int64(le.Uint16(raw[128:]))
		if extra > int64(len(raw))-goodInode || extra%4 != 0 {
			return nil, damaged("it says to have %d more bytes", extra)
		}
	}
	if f.super.checksums() {
		if err := f.checkInode(n, raw, extra); err != nil {
			return nil, err
		}
	}
	size := uint64(le.Uint32(raw[4:]))
	if n.kind() == modeRegular || n.isDir() && f.super.incompat&hasLargeDir != 0 {
		size |= uint64(le.Uint32(raw[108:])) << 32
	}
	if n.size = int64(size); n.size < 0 || n.size > f.super.blockSize<<32 {
		return nil, damaged("it has %d bytes", size)
	}
	seconds, nanos := int64(int32(le.Uint32(raw[16:]))), int64(0)
	if extra >= 12 {
		more := le.Uint32(raw[136:])
		seconds += int64(more&3) << 32
		nanos = int64(more >> 2)
	}
	n.mtime = time.Unix(seconds, nanos)
	copy(n.where[:], raw[40:])
	if n.flags&flagInline != 0 {
		n.tail = bytes.Clone(raw[min(goodInode+extra, int64(len(raw))):]) // a copy, which keeps no page in memory
	}
	return n, nil
}

// seedOf begins a checksum of metadata that belongs to an inode.
func (f *FS) seedOf(n *inode) uint32 {
	return checksum32(checksum32(f.super.seed, n.number), n.generation)
}

// checkInode verifies the checksum of an inode, which is stored in it in two parts.
func (f *FS) checkInode(n *inode, raw []byte, extra int64) error {
	const low, high = 124, 130
	le := binary.LittleEndian
	zero := []byte{0, 0}
	crc := checksum(checksum(f.seedOf(n), raw[:low]), zero)
	want, got := uint32(le.Uint16(raw[low:])), uint32(0)
	switch {
	case len(raw) == goodInode:
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

// fileMode converts the mode to one of io/fs.
func (n *inode) fileMode() fs.FileMode {
	m := fs.FileMode(n.mode & 0o777)
	for _, b := range []struct {
		bit  uint16
		mode fs.FileMode
	}{{0o4000, fs.ModeSetuid}, {0o2000, fs.ModeSetgid}, {0o1000, fs.ModeSticky}} {
		if n.mode&b.bit != 0 {
			m |= b.mode
		}
	}
	return m | typeOf(n.kind())
}

// typeOf returns the type bits of a kind.
func typeOf(kind uint16) fs.FileMode {
	switch kind {
	case modeRegular:
		return 0
	case modeFolder:
		return fs.ModeDir
	case modeLink:
		return fs.ModeSymlink
	case modeFIFO:
		return fs.ModeNamedPipe
	case modeSocket:
		return fs.ModeSocket
	case modeBlock:
		return fs.ModeDevice
	case modeChar:
		return fs.ModeDevice | fs.ModeCharDevice
	}
	return fs.ModeIrregular
}

// info is the result of Stat for an inode.
type info struct {
	name string
	n    *inode
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.n.size }
func (i info) Mode() fs.FileMode  { return i.n.fileMode() }
func (i info) ModTime() time.Time { return i.n.mtime }
func (i info) IsDir() bool        { return i.n.isDir() }

// Sys returns the inode: its ID and its number of names.
func (i info) Sys() any { return i.n }

// ID returns the number of the inode: files with the same one are the same file.
func (n *inode) ID() uint64 { return uint64(n.number) }

// Links returns the number of names of the file.
func (n *inode) Links() uint64 { return uint64(n.links) }
