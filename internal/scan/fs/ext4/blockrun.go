package ext4

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// blockRun is a mapping of contiguous blocks of a file.
type blockRun struct {
	fileBlock uint64 // block of the file
	count     uint64
	diskBlock uint64 // block of the file system; 0 = they read as zeros
}

func (r blockRun) contains(block uint64) bool {
	return block >= r.fileBlock && block-r.fileBlock < r.count
}

// Form of a tree of extents.
const (
	extentMagic     = 0xf30a
	extentEntrySize = 12 // of a header and of an entry
	maxExtentDepth  = 5
	maxExtentBlocks = 32768 // blocks; a larger number marks an unwritten extent
	maxFileBlocks   = 1 << 32
)

// findRun returns the run with a block of an inode.
func (f *FS) findRun(n *inode, block uint64) (r blockRun, err error) {
	if block >= maxFileBlocks {
		return blockRun{}, damaged("block %d of a file", block)
	}
	if n.flags&flagExtents != 0 {
		r, err = f.findExtent(n, block)
	} else {
		r, err = f.findMapped(n, block)
	}
	if err == nil && r.diskBlock != 0 &&
		(r.diskBlock >= f.superblock.blockCount || r.count > f.superblock.blockCount-r.diskBlock) {
		err = damaged("its blocks %d+%d are at %d of %d", r.fileBlock, r.count, r.diskBlock, f.superblock.blockCount)
	}
	if err != nil {
		err = fmt.Errorf("inode %d: %w", n.number, err)
	}
	return r, err
}

// findExtent descends the tree of extents. Each node has its depth, so that a loop ends.
func (f *FS) findExtent(n *inode, block uint64) (blockRun, error) {
	node, end := n.blockMap[:], uint64(maxFileBlocks)
	le := binary.LittleEndian
	for depth := -1; ; {
		entries, at, err := parseExtentNode(node)
		if err != nil {
			return blockRun{}, err
		}
		if depth < 0 {
			depth = at
		}
		if depth > maxExtentDepth {
			return blockRun{}, damaged("its tree of extents is %d deep", depth)
		}
		if at != depth {
			return blockRun{}, damaged("its tree of extents says that it is %d deep where it is %d", at, depth)
		}
		k := lastEntryBefore(entries, block)
		if next := (k + 1) * extentEntrySize; next < len(entries) {
			end = min(end, uint64(le.Uint32(entries[next:])))
		}
		if k < 0 {
			return blockRun{fileBlock: block, count: end - block}, nil
		}
		e := entries[k*extentEntrySize:]
		if depth == 0 {
			return runFromExtent(e, block, end)
		}
		place := uint64(le.Uint32(e[4:])) | uint64(le.Uint16(e[8:]))<<32
		if node, err = f.readExtentNode(n, place); err != nil {
			return blockRun{}, err
		}
		depth--
	}
}

// parseExtentNode returns the entries of a node and the depth of the tree below it.
func parseExtentNode(node []byte) (entries []byte, depth int, err error) {
	le := binary.LittleEndian
	count := int(le.Uint16(node[2:]))
	if le.Uint16(node) != extentMagic || (count+1)*extentEntrySize > len(node) {
		return nil, 0, damaged("its tree of extents has a node without sense")
	}
	return node[extentEntrySize : (count+1)*extentEntrySize], int(le.Uint16(node[6:])), nil
}

// lastEntryBefore returns the index of the last entry that begins at a block or before it; -1 without one.
func lastEntryBefore(entries []byte, block uint64) int {
	low, high := 0, len(entries)/extentEntrySize
	for low < high {
		mid := (low + high) / 2
		if uint64(binary.LittleEndian.Uint32(entries[mid*extentEntrySize:])) <= block {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low - 1
}

// runFromExtent returns the run at a block: that of the extent e, or the hole behind it up to end, where the
// next extent begins.
func runFromExtent(e []byte, block, end uint64) (blockRun, error) {
	le := binary.LittleEndian
	r := blockRun{
		fileBlock: uint64(le.Uint32(e)), count: uint64(le.Uint16(e[4:])),
		diskBlock: uint64(le.Uint32(e[8:])) | uint64(le.Uint16(e[6:]))<<32,
	}
	unwritten := r.count > maxExtentBlocks
	if unwritten {
		r.count -= maxExtentBlocks
	}
	switch {
	case end <= block:
		return r, damaged("its extents are not in order")
	case !r.contains(block):
		return blockRun{fileBlock: block, count: end - block}, nil
	case unwritten:
		r.diskBlock = 0
	case r.diskBlock == 0:
		return r, damaged("an extent is at block 0")
	}
	return r, nil
}

// readExtentNode reads a node that has a separate block.
func (f *FS) readExtentNode(n *inode, place uint64) ([]byte, error) {
	b, err := f.readBlock(place)
	if err != nil || !f.superblock.hasChecksums() {
		return b, err
	}
	tail := (int(binary.LittleEndian.Uint16(b[4:])) + 1) * extentEntrySize // after the maximum number of entries
	if tail > len(b)-4 || checksum(f.checksumSeed(n), b[:tail]) != binary.LittleEndian.Uint32(b[tail:]) {
		return nil, damaged("a node of its tree of extents is not what its checksum says")
	}
	return b, nil
}

// readBlock reads a block of metadata.
func (f *FS) readBlock(place uint64) ([]byte, error) {
	if err := f.checkBlock(place); err != nil {
		return nil, err
	}
	b, err := f.pages.Get(int64(place)*f.superblock.blockSize, f.superblock.blockSize)
	if err != nil {
		f.reads.addFailure()
		return nil, err
	}
	f.reads.addRange(int64(place)*f.superblock.blockSize, f.superblock.blockSize)
	return b, nil
}

// readBlockInto reads a block without the page cache, into a buffer that grows as needed.
func (f *FS) readBlockInto(place uint64, into *[]byte) ([]byte, error) {
	if err := f.checkBlock(place); err != nil {
		return nil, err
	}
	size := int(f.superblock.blockSize)
	*into = slices.Grow((*into)[:0], size)[:size]
	err := f.pages.Read(*into, int64(place)*f.superblock.blockSize)
	if err != nil {
		f.reads.addFailure()
	}
	return *into, err
}

// checkBlock reports whether the block exists.
func (f *FS) checkBlock(place uint64) error {
	if place == 0 || place >= f.superblock.blockCount {
		return damaged("it refers to block %d of %d", place, f.superblock.blockCount)
	}
	return nil
}

const (
	directBlocks = 12
	pointerSize  = 4
)

// findMapped reads the older form: twelve blocks, then a block of pointers, then blocks
// of pointers to those, up to three levels.
func (f *FS) findMapped(n *inode, block uint64) (blockRun, error) {
	if block < directBlocks {
		return pointerRun(n.blockMap[:directBlocks*pointerSize], block, 0), nil
	}
	per := uint64(f.superblock.blockSize) / pointerSize
	first, span := uint64(directBlocks), per
	level := 1
	for ; block-first >= span; level++ {
		if level == 3 {
			return blockRun{}, damaged("block %d is more than a file without extents can have", block)
		}
		first += span
		span *= per
	}
	place := binary.LittleEndian.Uint32(n.blockMap[(directBlocks+level-1)*pointerSize:])
	for ; ; level-- {
		if place == 0 {
			return blockRun{fileBlock: first, count: span}, nil
		}
		table, err := f.readBlock(uint64(place))
		if err != nil {
			return blockRun{}, err
		}
		span /= per
		if level == 1 {
			return pointerRun(table, block, first), nil
		}
		k := (block - first) / span
		first += k * span
		place = binary.LittleEndian.Uint32(table[k*pointerSize:])
	}
}

// pointerRun returns the run that begins at a block, from a table of block pointers.
func pointerRun(table []byte, block, first uint64) blockRun {
	at := func(k uint64) uint64 { return uint64(binary.LittleEndian.Uint32(table[k*pointerSize:])) }
	k, count := block-first, uint64(len(table)/pointerSize)
	r := blockRun{fileBlock: block, count: 1, diskBlock: at(k)}
	for k+r.count < count {
		next := at(k + r.count)
		if r.diskBlock == 0 && next != 0 || r.diskBlock != 0 && next != r.diskBlock+r.count {
			break
		}
		r.count++
	}
	return r
}
