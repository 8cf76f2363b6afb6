package xfs

import (
	"fmt"
	"sort"
)

// blockRun is a mapping of contiguous blocks of a file.
type blockRun struct {
	fileBlock uint64 // block of the file
	count     uint64
	offset    int64 // in bytes on the disk; 0 = they read as zeros
}

func (r blockRun) end() uint64 { return r.fileBlock + r.count }

func (r blockRun) contains(block uint64) bool {
	return block >= r.fileBlock && block-r.fileBlock < r.count
}

// Form of the trees of extents.
const (
	treeMagic             = "BMAP"
	treeHeaderSize        = 24
	treeCheckedMagic      = "BMA3" // of version 5
	treeCheckedHeaderSize = 72
	treeRootHeaderSize    = 4  // of the root in an inode
	treeKeySize           = 8  // of a key, and of a pointer
	maxTreeLevel          = 12 // 2^48 extents in blocks of 1 KiB need less
	maxFileBlocks         = 1 << 54
)

// An extent: 1 bit that it is unwritten, 54 bits of the block of the file, 52 bits of the block of the file
// system, 21 bits of the number of blocks.
const (
	unwrittenBit   = 1 << 63
	extentLowBits  = 9 // of the block of the file system in the first half
	extentHighBits = 43
	extentCount    = 21
)

// findRun returns the run with a block of an inode.
func (f *FS) findRun(n *inode, block uint64) (r blockRun, err error) {
	extents, end := n.fork, uint64(maxFileBlocks)
	if n.form == formTree {
		extents, end, err = f.findLeaf(n, block)
	}
	if err == nil {
		r, err = f.findExtent(extents, block, end)
	}
	if err != nil {
		err = fmt.Errorf("inode %d: %w", n.number, err)
	}
	return r, err
}

// findExtent finds the run with a block in a list of extents, or the hole there, up to end at most.
func (f *FS) findExtent(extents []byte, block, end uint64) (blockRun, error) {
	first := func(k int) uint64 { return be.Uint64(extents[k*extentSize:]) &^ unwrittenBit >> extentLowBits }
	k := lastBefore(len(extents)/extentSize, first, block)
	if next := k + 1; next < len(extents)/extentSize {
		end = min(end, first(next))
	}
	hole := blockRun{fileBlock: block, count: end - block}
	if k < 0 {
		return hole, nil
	}
	high, low := be.Uint64(extents[k*extentSize:]), be.Uint64(extents[k*extentSize+8:])
	r := blockRun{fileBlock: first(k), count: low & (1<<extentCount - 1)}
	var err error
	switch {
	case r.count == 0 || r.end() > end:
		err = damaged("its blocks %d+%d overlap those from block %d on", r.fileBlock, r.count, end)
	case !r.contains(block):
		return hole, nil
	case high&unwrittenBit == 0:
		r.offset, err = f.superblock.blockOffset(high&(1<<extentLowBits-1)<<extentHighBits|low>>extentCount, r.count)
	}
	return r, err
}

// lastBefore returns the index of the last of count items that begins at a block or before it; -1 without one.
func lastBefore(count int, first func(int) uint64, block uint64) int {
	return sort.Search(count, func(k int) bool { return first(k) > block }) - 1
}

// treeNode is a node above the leaves of a tree of extents.
type treeNode struct {
	keys, pointers []byte
}

func (t treeNode) key(k int) uint64   { return be.Uint64(t.keys[k*treeKeySize:]) }
func (t treeNode) child(k int) uint64 { return be.Uint64(t.pointers[k*treeKeySize:]) }

// newTreeNode returns the node whose keys and pointers fill an area.
func newTreeNode(area []byte, count int) (treeNode, error) {
	most := len(area) / (2 * treeKeySize)
	if count < 1 || count > most {
		return treeNode{}, damaged("a node of its tree of extents has %d entries of at most %d", count, most)
	}
	return treeNode{area[:count*treeKeySize], area[most*treeKeySize:]}, nil
}

// findLeaf descends the tree of extents to the leaf with a block. It returns the leaf's extents, and the block
// at which those of the next leaf begin at the earliest. Each node has its level, so that a loop ends. Its
// first key is that of its parent, so that no node is found by two keys.
func (f *FS) findLeaf(n *inode, block uint64) (extents []byte, end uint64, err error) {
	end = maxFileBlocks
	if len(n.fork) < treeRootHeaderSize {
		return nil, 0, damaged("its tree of extents has no root")
	}
	level, count := int(be.Uint16(n.fork)), int(be.Uint16(n.fork[2:]))
	if level < 1 || level > maxTreeLevel {
		return nil, 0, damaged("its tree of extents has %d levels", level)
	}
	for area := n.fork[treeRootHeaderSize:]; ; {
		node, err := newTreeNode(area, count)
		if err != nil {
			return nil, 0, err
		}
		k := lastBefore(count, node.key, block)
		if k+1 < count {
			end = min(end, node.key(k+1))
		}
		if k < 0 {
			return nil, end, nil
		}
		level--
		if area, count, err = f.readTreeBlock(n, node.child(k), level); err != nil {
			return nil, 0, err
		}
		first := be.Uint64(area)
		if level == 0 {
			first = first &^ unwrittenBit >> extentLowBits
		}
		if want := node.key(k); first != want {
			return nil, 0, damaged("a part of its tree of extents begins at block %d instead of %d", first, want)
		}
		if level > 0 {
			continue
		}
		if count < 1 || count > len(area)/extentSize {
			return nil, 0, damaged("a leaf of its tree of extents has %d entries", count)
		}
		return area[:count*extentSize], end, nil
	}
}

// readTreeBlock reads the area with entries, and their number, of the block of a tree at a level.
func (f *FS) readTreeBlock(n *inode, block uint64, level int) (area []byte, count int, err error) {
	s := f.superblock
	off, err := s.blockOffset(block, 1)
	if err != nil {
		return nil, 0, err
	}
	b, err := f.pages.Get(off, s.blockSize)
	if err != nil {
		return nil, 0, err
	}
	magic, header := treeMagic, treeHeaderSize
	if s.hasChecksums() {
		magic, header = treeCheckedMagic, treeCheckedHeaderSize
		err = s.verifyBlock(b, treeHeader, off, n.number)
	}
	switch {
	case err != nil:
		return nil, 0, err
	case string(b[:len(magic)]) != magic:
		return nil, 0, damaged("its tree of extents refers to byte %d, which is not a node", off)
	case int(be.Uint16(b[4:])) != level:
		return nil, 0, damaged("its tree of extents has level %d where it is %d", be.Uint16(b[4:]), level)
	case n.isDir() && !f.claimBlock(off, n.number):
		return nil, 0, damaged("a node of its tree of extents is that of another directory")
	}
	return b[header:], int(be.Uint16(b[6:])), nil
}
