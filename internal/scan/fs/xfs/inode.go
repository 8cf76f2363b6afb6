package xfs

import (
	"bytes"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// Forms of the data fork of an inode.
const (
	formLocal   = 1 // the content
	formExtents = 2 // all extents
	formTree    = 3 // the root of a tree of extents
)

const (
	inodeMagic          = "IN"
	inodeCoreSize       = 100 // of the fields of version 1 and 2, before the data fork
	inodeCheckedSize    = 176 // of version 3
	inodeChecksumOffset = 100
	flagRealtime        = 0x1  // in the flags: the extents are on the realtime device
	flagBigTime         = 0x8  // in the further flags: times are nanoseconds
	flagLargeCounts     = 0x10 // in the further flags: the number of extents has 64 bits
	bigTimeEpoch        = -1 << 31
	extentSize          = 16 // bytes of an extent
)

// inode has the fields of an inode.
type inode struct {
	number   uint64
	mode     uint16
	form     byte // of the fork; 0 = the inode has no content
	realtime bool
	links    uint32
	size     int64
	mtime    time.Time
	fork     []byte // the content, the extents, or the root of their tree
}

func (n *inode) kind() uint16 { return n.mode & inodefs.ModeKind }
func (n *inode) isDir() bool  { return n.kind() == inodefs.ModeDir }

// readInode reads the inode of a name.
func (f *FS) readInode(number uint64) (*inode, error) {
	off, err := f.superblock.inodeOffset(number)
	if err != nil {
		return nil, err
	}
	raw, err := f.pages.Get(off, f.superblock.inodeSize)
	if err != nil {
		return nil, fmt.Errorf("inode %d: %w", number, err)
	}
	n, err := f.superblock.parseInode(number, raw)
	if err != nil {
		return nil, fmt.Errorf("inode %d: %w", number, err)
	}
	return n, nil
}

func (s *superblock) parseInode(number uint64, raw []byte) (*inode, error) {
	version := raw[4]
	switch {
	case string(raw[:len(inodeMagic)]) != inodeMagic:
		return nil, damaged("there is not an inode")
	case s.hasChecksums() != (version == 3) || version < 1 || version > 3:
		return nil, damaged("it has version %d", version)
	case s.hasChecksums():
		if err := s.verifyInode(number, raw); err != nil {
			return nil, err
		}
	}
	n := &inode{number: number, mode: be.Uint16(raw[2:]), links: be.Uint32(raw[16:]), size: int64(be.Uint64(raw[56:]))}
	if version == 1 {
		n.links = uint32(be.Uint16(raw[6:]))
	}
	n.realtime = be.Uint16(raw[90:])&flagRealtime != 0
	start, flags, extents := inodeCoreSize, uint64(0), uint64(be.Uint32(raw[76:]))
	if version == 3 {
		start, flags = inodeCheckedSize, be.Uint64(raw[120:])
	}
	if flags&flagLargeCounts != 0 {
		extents = be.Uint64(raw[24:])
	}
	n.mtime = time.Unix(int64(int32(be.Uint32(raw[40:]))), int64(int32(be.Uint32(raw[44:]))))
	if flags&flagBigTime != 0 {
		nanos := be.Uint64(raw[40:])
		n.mtime = time.Unix(bigTimeEpoch+int64(nanos/1e9), int64(nanos%1e9))
	}
	switch {
	case n.mode == 0:
		return nil, damaged("it is free")
	case n.size < 0:
		return nil, damaged("it has %d bytes", uint64(n.size))
	}
	fork := raw[start:]
	if end := int(raw[82]) * 8; end > 0 { // there are attributes behind it
		if end >= len(fork) {
			return nil, damaged("its attributes are at byte %d of %d", end, len(fork))
		}
		fork = fork[:end]
	}
	return n, n.setFork(raw[5], fork, extents)
}

// verifyInode verifies that an inode of version 3 is the one of a number.
func (s *superblock) verifyInode(number uint64, raw []byte) error {
	switch {
	case !hasChecksum(raw, inodeChecksumOffset):
		return damaged("it is not what its checksum says")
	case be.Uint64(raw[152:]) != number:
		return damaged("it says that it is inode %d", be.Uint64(raw[152:]))
	case [16]byte(raw[160:176]) != s.uuid:
		return damaged("it is of another file system")
	}
	return nil
}

// formsOf are the forms of the data fork that inodes of a kind may have. Other kinds have no content.
var formsOf = map[uint16][]byte{
	inodefs.ModeRegular: {formExtents, formTree},
	inodefs.ModeDir:     {formLocal, formExtents, formTree},
	inodefs.ModeLink:    {formLocal, formExtents},
}

// setFork sets the form and a copy of the fork's used part, which keeps no page in memory.
func (n *inode) setFork(form byte, fork []byte, extents uint64) error {
	forms, hasContent := formsOf[n.kind()]
	if !hasContent {
		return nil
	}
	used := uint64(len(fork))
	switch form {
	case formLocal:
		used = uint64(n.size)
	case formExtents:
		if extents > used/extentSize {
			return damaged("it has %d extents in %d bytes", extents, used)
		}
		used = extents * extentSize
	}
	switch {
	case !bytes.Contains(forms, []byte{form}):
		return damaged("its content has the form %d", form)
	case used > uint64(len(fork)):
		return damaged("it has %d bytes of content in %d", used, len(fork))
	}
	n.form, n.fork = form, bytes.Clone(fork[:used])
	return nil
}

// ID returns the number of the inode: files with the same one are the same file.
func (n *inode) ID() uint64 { return n.number }

// Links returns the number of names of the file.
func (n *inode) Links() uint64 { return uint64(n.links) }

// IsLink reports whether the inode is a symbolic link.
func (n *inode) IsLink() bool { return n.kind() == inodefs.ModeLink }

// Attributes returns its mode, its size, and when its content was changed.
func (n *inode) Attributes() (mode uint16, size int64, changed time.Time) {
	return n.mode, n.size, n.mtime
}
