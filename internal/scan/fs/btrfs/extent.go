package btrfs

import (
	"bytes"
	"errors"
	"fmt"
)

// Forms of extents.
const (
	formInline   = 0 // the content is in the item
	formRegular  = 1
	formPrealloc = 2 // allocated and not written
)

const (
	extentHeaderSize = 21 // of the item of an extent, before the content of one that is in it
	extentSize       = 53
	maxUnpacked      = 128 << 10 // of a compressed extent, in bytes, before and after compression
)

// extentPart identifies a compressed extent on the disk.
type extentPart struct {
	address, packed, unpacked uint64
	packing                   byte
}

// extent is a range of a file that is stored in one way.
type extent struct {
	start, end int64  // in the file, in bytes
	inline     []byte // its content; nil: it is on the disk
	isHole     bool   // it reads as zeros
	offset     uint64 // of its first byte in what is on the disk, in bytes: of a compressed one after decompression
	disk       extentPart
}

func (e *extent) contains(off int64) bool { return off >= e.start && off < e.end }

// findExtent returns the extent with an offset of a file.
func (f *FS) findExtent(n *inode, off int64) (*extent, error) {
	c, err := f.device.seekLast(n.in.tree, key{n.number, kindExtent, uint64(off)})
	if err != nil {
		return nil, err
	}
	start := int64(0) // of a hole, where no extent exists
	if c.is(n.number, kindExtent) {
		e, err := f.parseExtent(c.key().offset, c.data())
		if err != nil || e.contains(off) {
			return e, err
		}
		start = e.end
	}
	// There is a hole up to the next extent.
	if !c.valid() {
		c, err = f.device.seekFirst(n.in.tree)
	} else {
		err = c.next()
	}
	if err != nil {
		return nil, err
	}
	hole := &extent{start: start, end: 1<<63 - 1, isHole: true}
	if c.is(n.number, kindExtent) && c.key().offset < uint64(hole.end) {
		hole.end = int64(c.key().offset)
	}
	if !hole.contains(off) {
		return nil, damaged("its extents are not in order at byte %d", off)
	}
	return hole, nil
}

// parseExtent reads the extent of an item that begins at an offset of a file.
func (f *FS) parseExtent(start uint64, b []byte) (*extent, error) {
	s := f.device.superblock
	if len(b) < extentHeaderSize || start > 1<<62 {
		return nil, damaged("its extent at byte %d has %d bytes", start, len(b))
	}
	e := &extent{start: int64(start), disk: extentPart{unpacked: le.Uint64(b[8:]), packing: b[16]}}
	form := b[20]
	switch {
	case b[17] != 0 || le.Uint16(b[18:]) != 0:
		return nil, fmt.Errorf("%w: its extent at byte %d is encrypted", ErrUnsupported, start)
	case e.disk.packing > packZstd:
		return nil, fmt.Errorf("%w: its extent at byte %d has compression %d, which is none of zlib, lzo and zstd",
			ErrUnsupported, start, e.disk.packing)
	case form == formInline:
		return e, e.setInline(b[extentHeaderSize:], s.sectorSize)
	case form != formRegular && form != formPrealloc || len(b) != extentSize:
		return nil, damaged("its extent at byte %d has the form %d and %d bytes", start, form, len(b))
	}
	e.disk.address, e.disk.packed, e.offset = le.Uint64(b[21:]), le.Uint64(b[29:]), le.Uint64(b[37:])
	count, all := le.Uint64(b[45:]), e.disk.unpacked
	if e.disk.packing == packNone {
		all = e.disk.packed // some kernels did not update the other field
	}
	e.isHole = form == formPrealloc || e.disk.address == 0
	aligned := uint64(s.sectorSize - 1)
	switch {
	case count == 0 || count > 1<<62 || (start|count|e.offset|e.disk.address|e.disk.packed)&aligned != 0:
		return nil, damaged("its extent at byte %d has %d bytes from %d on, at the logical address %d", start, count,
			e.offset, e.disk.address)
	case e.isHole:
	case e.disk.packing != packNone && (all > maxUnpacked || e.disk.packed > maxUnpacked || e.disk.packed == 0):
		return nil, damaged("its compressed extent at byte %d has %d bytes of %d", start, e.disk.packed, all)
	case e.offset > all || count > all-e.offset:
		return nil, damaged("its extent at byte %d is %d bytes from %d on, of %d", start, count, e.offset, all)
	}
	e.end = e.start + int64(count)
	return e, nil
}

// setInline sets the content of an extent that is in its item.
func (e *extent) setInline(b []byte, sectorSize int64) error {
	size := e.disk.unpacked
	if e.start != 0 || size == 0 || size > uint64(max(sectorSize, maxNodeSize)) {
		return damaged("it has %d bytes in its item, at byte %d", size, e.start)
	}
	e.end = int64(size)
	if e.disk.packing == packNone {
		if uint64(len(b)) != size {
			return damaged("it has %d bytes of content in %d", size, len(b))
		}
		e.inline = b
		return nil
	}
	var err error
	e.inline, err = unpack(e.disk.packing, b, int(size), sectorSize)
	return err
}

// maxTargetBytes is the size of the longest symbolic link.
const maxTargetBytes = 4096

// readLinkTarget reads a symbolic link, which is in the item of its extent.
func (f *FS) readLinkTarget(n *inode) (string, error) {
	if !n.IsLink() {
		return "", errors.New("not a symbolic link")
	}
	e, err := f.findExtent(n, 0)
	// mkfs.btrfs adds a zero.
	if err == nil && (n.size <= 0 || n.size > min(int64(len(e.inline)), maxTargetBytes)) {
		err = damaged("a symbolic link of %d bytes", n.size)
	}
	if err != nil {
		return "", fmt.Errorf("inode %d of subvolume %d: %w", n.number, n.in.id, err)
	}
	target := e.inline[:n.size]
	if bytes.IndexByte(target, 0) >= 0 {
		return "", damaged("a symbolic link with a zero in it")
	}
	return string(target), nil
}
