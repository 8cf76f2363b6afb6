package ext4

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// run is a mapping of contiguous blocks of a file.
type run struct {
	first uint64 // block of the file
	n     uint64
	place uint64 // block of the file system; 0 = they read as zeros
}

func (r run) has(block uint64) bool { return block >= r.first && block-r.first < r.n }

// Form of a tree of extents.
const (
	extentMagic   = 0xf30a
	extentSize    = 12 // of a header and of an entry
	maxDepth      = 5
	maxExtent     = 32768 // blocks; a larger number marks an unwritten extent
	maxFileBlocks = 1 << 32
)

// find returns the run with a block of an inode.
func (f *FS) find(n *inode, block uint64) (r run, err error) {
	if block >= maxFileBlocks {
		return run{}, damaged("block %d of a file", block)
	}
	if n.flags&flagExtents != 0 {
		r, err = f.findExtent(n, block)
	} else {
		r, err = f.findMapped(n, block)
	}
	if err == nil && r.place != 0 && (r.place >= f.super.blocks || r.n > f.super.blocks-r.place) {
		err = damaged("its blocks %d+%d are at %d of %d", r.first, r.n, r.place, f.super.blocks)
	}
	if err != nil {
		err = fmt.Errorf("inode %d: %w", n.number, err)
	}
	return r, err
}

// findExtent descends the tree of extents. Each node has its depth, so that a loop ends.
func (f *FS) findExtent(n *inode, block uint64) (run, error) {
	node, end := n.where[:], uint64(maxFileBlocks)
	le := binary.LittleEndian
	for depth := -1; ; {
		entries, at, err := nodeOf(node)
		if err != nil {
			return run{}, err
		}
		if depth < 0 {
			depth = at
		}
		if depth > maxDepth {
			return run{}, damaged("its tree of extents is %d deep", depth)
		}
		if at != depth {
			return run{}, damaged("its tree of extents says that it is %d deep where it is %d", at, depth)
		}
		k := before(entries, block)
		if next := (k + 1) * extentSize; next < len(entries) {
			end = min(end, uint64(le.Uint32(entries[next:])))
		}
		if k < 0 {
			return run{first: block, n: end - block}, nil
		}
		e := entries[k*extentSize:]
		if depth == 0 {
			return leaf(e, block, end)
		}
		place := uint64(le.Uint32(e[4:])) | uint64(le.Uint16(e[8:]))<<32
		if node, err = f.extentBlock(n, place); err != nil {
			return run{}, err
		}
		depth--
	}
}

// nodeOf returns the entries of a node and the depth of the tree below it.
func nodeOf(node []byte) (entries []byte, depth int, err error) {
	le := binary.LittleEndian
	count := int(le.Uint16(node[2:]))
	if le.Uint16(node) != extentMagic || (count+1)*extentSize > len(node) {
		return nil, 0, damaged("its tree of extents has a node without sense")
	}
	return node[extentSize : (count+1)*extentSize], int(le.Uint16(node[6:])), nil
}

// before returns the index of the last entry that begins at a block or before it; -1 without one.
func before(entries []byte, block uint64) int {
	low, high := 0, len(entries)/extentSize
	for low < high {
		mid := (low + high) / 2
		if uint64(binary.LittleEndian.Uint32(entries[mid*extentSize:])) <= block {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low - 1
}

// leaf decodes an extent; end is where the next one begins.
func leaf(e []byte, block, end uint64) (run, error) {
	le := binary.LittleEndian
	r := run{
		first: uint64(le.Uint32(e)), n: uint64(le.Uint16(e[4:])),
		place: uint64(le.Uint32(e[8:])) | uint64(le.Uint16(e[6:]))<<32,
	}
	unwritten := r.n > maxExtent
	if unwritten {
		r.n -= maxExtent
	}
	switch {
	case end <= block:
		return r, damaged("its extents are not in order")
	case !r.has(block):
		return run{first: block, n: end - block}, nil
	case unwritten:
		r.place = 0
	case r.place == 0:
		return r, damaged("an extent is at block 0")
	}
	return r, nil
}

// extentBlock reads a node that has a separate block.
func (f *FS) extentBlock(n *inode, place uint64) ([]byte, error) {
	b, err := f.block(place)
	if err != nil || !f.super.checksums() {
		return b, err
	}
	tail := (int(binary.LittleEndian.Uint16(b[4:])) + 1) * extentSize // after the maximum number of entries
	if tail > len(b)-4 || checksum(f.seedOf(n), b[:tail]) != binary.LittleEndian.Uint32(b[tail:]) {
		return nil, damaged("a node of its tree of extents is not what its checksum says")
	}
	return b, nil
}

// block reads a block of metadata.
func (f *FS) block(place uint64) ([]byte, error) {
	if err := f.within(place); err != nil {
		return nil, err
	}
	return f.pages.get(int64(place)*f.super.blockSize, f.super.blockSize)
}

// blockInto reads a block without the page cache, into a buffer that grows as needed.
func (f *FS) blockInto(place uint64, into *[]byte) ([]byte, error) {
	if err := f.within(place); err != nil {
		return nil, err
	}
	size := int(f.super.blockSize)
	*into = slices.Grow((*into)[:0], size)[:size]
	return *into, f.pages.read(*into, int64(place)*f.super.blockSize)
}

// within reports whether the block exists.
func (f *FS) within(place uint64) error {
	if place == 0 || place >= f.super.blocks {
		return damaged("it refers to block %d of %d", place, f.super.blocks)
	}
	return nil
}

const (
	directBlocks = 12
	pointerSize  = 4
)

// findMapped reads the older form: twelve blocks, then a block of pointers, then blocks
// of pointers to those, up to three levels.
func (f *FS) findMapped(n *inode, block uint64) (run, error) {
	if block < directBlocks {
		return pointers(n.where[:directBlocks*pointerSize], block, 0), nil
	}
	per := uint64(f.super.blockSize) / pointerSize
	first, span := uint64(directBlocks), per
	level := 1
	for ; block-first >= span; level++ {
		if level == 3 {
			return run{}, damaged("block %d is more than a file without extents can have", block)
		}
		first += span
		span *= per
	}
	place := binary.LittleEndian.Uint32(n.where[(directBlocks+level-1)*pointerSize:])
	for ; ; level-- {
		if place == 0 {
			return run{first: first, n: span}, nil
		}
		table, err := f.block(uint64(place))
		if err != nil {
			return run{}, err
		}
		span /= per
		if level == 1 {
			return pointers(table, block, first), nil
		}
		k := (block - first) / span
		first += k * span
		place = binary.LittleEndian.Uint32(table[k*pointerSize:])
	}
}

// pointers returns the run that begins at a block, from a table of block pointers.
func pointers(table []byte, block, first uint64) run {
	at := func(k uint64) uint64 { return uint64(binary.LittleEndian.Uint32(table[k*pointerSize:])) }
	k, count := block-first, uint64(len(table)/pointerSize)
	r := run{first: block, n: 1, place: at(k)}
	for k+r.n < count {
		next := at(k + r.n)
		if r.place == 0 && next != 0 || r.place != 0 && next != r.place+r.n {
			break
		}
		r.n++
	}
	return r
}
