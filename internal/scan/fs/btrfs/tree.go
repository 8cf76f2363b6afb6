package btrfs

import (
	"cmp"
	"sort"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// Types of items.
const (
	kindInode       = 1
	kindInodeRef    = 12
	kindDirItem     = 84
	kindDirIndex    = 96
	kindExtent      = 108
	kindChecksum    = 128
	kindRoot        = 132
	kindRootBackref = 144
	kindChunk       = 228
)

const (
	nodeHeaderSize = 101
	leafItemSize   = 25 // key, offset of the data behind the header, and their size
	pointerSize    = 33 // key, address, generation
	maxLevel       = 7
	nodeCacheBytes = 16 << 20
)

// key is the key of an item.
type key struct {
	object uint64
	kind   byte
	offset uint64
}

func parseKey(b []byte) key { return key{le.Uint64(b), b[8], le.Uint64(b[9:])} }

func (k key) compare(l key) int {
	if k.object != l.object {
		return cmp.Compare(k.object, l.object)
	}
	if k.kind != l.kind {
		return cmp.Compare(k.kind, l.kind)
	}
	return cmp.Compare(k.offset, l.offset)
}

// device reads trees by their logical addresses. It is safe for concurrent use.
type device struct {
	superblock *superblock
	chunks     chunkMap
	pages      *inodefs.Pages // of which only Read is used
	nodes      *inodefs.Cache[uint64, *node]
}

// node is a verified node of a tree. It does not change.
type node struct {
	b          []byte // all bytes
	address    uint64
	generation uint64
	owner      uint64
	level      byte
	count      int
}

// entrySize returns the size of what is in the list of a node.
func (n *node) entrySize() int {
	if n.level == 0 {
		return leafItemSize
	}
	return pointerSize
}

func (n *node) entry(k int) []byte { return n.b[nodeHeaderSize+k*n.entrySize():] }
func (n *node) key(k int) key      { return parseKey(n.entry(k)) }

// child returns the reference to a node below.
func (n *node) child(k int) treeRoot {
	e := n.entry(k)
	return treeRoot{address: le.Uint64(e[keySize:]), generation: le.Uint64(e[keySize+8:]), level: n.level - 1}
}

// data returns the data of an item of a leaf.
func (n *node) data(k int) []byte {
	e := n.entry(k)
	start, size := le.Uint32(e[keySize:]), le.Uint32(e[keySize+4:])
	return n.b[nodeHeaderSize:][start:][:size:size]
}

// lastAt returns the index of the last entry at a key or before it; -1 without one.
func (n *node) lastAt(k key) int {
	return sort.Search(n.count, func(i int) bool { return n.key(i).compare(k) > 0 }) - 1
}

// readNode reads a node. If one copy of it is damaged, the other is read.
func (d *device) readNode(r treeRoot) (*node, error) {
	n, ok := d.nodes.Get(r.address)
	if !ok {
		var err error
		if n, err = d.loadNode(r.address); err != nil {
			return nil, err
		}
		d.nodes.Put(r.address, n)
	}
	switch {
	case n.level != r.level:
		return nil, damaged("the node at %d has level %d where it is %d", r.address, n.level, r.level)
	case n.generation != r.generation:
		return nil, damaged("the node at %d has generation %d instead of %d", r.address, n.generation, r.generation)
	}
	return n, nil
}

func (d *device) loadNode(address uint64) (*node, error) {
	size := d.superblock.nodeSize
	if address&uint64(d.superblock.sectorSize-1) != 0 {
		return nil, damaged("there is a node at %d, which is not at a sector", address)
	}
	offsets, copies, err := d.chunks.find(address, uint64(size))
	if err != nil {
		return nil, err
	}
	var first error
	for _, off := range offsets[:copies] {
		b := make([]byte, size)
		err := d.pages.Read(b, off)
		if err == nil {
			var n *node
			if n, err = d.superblock.parseNode(address, b); err == nil {
				return n, nil
			}
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// parseNode verifies the node of a logical address.
func (s *superblock) parseNode(address uint64, b []byte) (*node, error) {
	n := &node{
		b: b, address: address, generation: le.Uint64(b[80:]), owner: le.Uint64(b[88:]), level: b[100],
		count: int(le.Uint32(b[96:])),
	}
	switch {
	case !s.sum.equal(b[maxSumSize:], b):
		return nil, damaged("the node at %d is not what its checksum says", address)
	case le.Uint64(b[48:]) != address:
		return nil, damaged("the node at %d says that it is at %d", address, le.Uint64(b[48:]))
	case [16]byte(b[32:48]) != s.metadataID:
		return nil, damaged("the node at %d is of another file system", address)
	case n.level > maxLevel:
		return nil, damaged("the node at %d has level %d", address, n.level)
	case n.count > (len(b)-nodeHeaderSize)/n.entrySize() || n.count == 0 && n.level > 0:
		return nil, damaged("the node at %d has %d entries", address, n.count)
	}
	listEnd := n.count * n.entrySize()
	for k := range n.count {
		if k > 0 && n.key(k-1).compare(n.key(k)) >= 0 {
			return nil, damaged("the node at %d has keys that are not in order", address)
		}
		if n.level > 0 {
			continue
		}
		e := n.entry(k)
		start, size := int64(le.Uint32(e[keySize:])), int64(le.Uint32(e[keySize+4:]))
		if start < int64(listEnd) || start+size > int64(len(b)-nodeHeaderSize) {
			return nil, damaged("the node at %d has an item of %d bytes at byte %d", address, size, start)
		}
	}
	return n, nil
}

// cursor is a position in a tree: an item of a leaf, or the end.
type cursor struct {
	device *device
	path   []step // from the root to the leaf; empty at the end
	steps  [maxLevel + 1]step
}

// step is an entry of a node.
type step struct {
	node  *node
	index int
	end   key // the keys of the node are before this one
}

// noEnd is the end of the keys of a root.
var noEnd = key{1<<64 - 1, 1<<8 - 1, 1<<64 - 1}

// seek returns a cursor at the first item at a key or behind it.
func (d *device) seek(root treeRoot, k key) (*cursor, error) {
	c, err := d.seekLast(root, k)
	if err != nil {
		return nil, err
	}
	if !c.valid() { // all items are behind the key
		return d.seekFirst(root)
	}
	if c.key().compare(k) < 0 {
		return c, c.next()
	}
	return c, nil
}

// seekFirst returns a cursor at the first item.
func (d *device) seekFirst(root treeRoot) (*cursor, error) {
	c := newCursor(d)
	return c, c.descend(root, key{}, noEnd, func(*node) int { return 0 })
}

// seekLast returns a cursor at the last item at a key or before it; at the end, if there is none.
func (d *device) seekLast(root treeRoot, k key) (*cursor, error) {
	c := newCursor(d)
	return c, c.descend(root, key{}, noEnd, func(n *node) int { return n.lastAt(k) })
}

func newCursor(d *device) *cursor {
	c := &cursor{device: d}
	c.path = c.steps[:0]
	return c
}

// descend extends the path from a node to a leaf. The first key of a node is that of the entry above it, and its last
// key is before that of the next entry: no item is found on two paths of one tree.
func (c *cursor) descend(r treeRoot, first, end key, choose func(*node) int) error {
	if r.level > maxLevel {
		return damaged("a tree has %d levels", r.level)
	}
	for {
		n, err := c.device.readNode(r)
		if err != nil {
			return err
		}
		isRoot := len(c.path) == 0
		switch {
		case n.count == 0 && isRoot:
			return nil // an empty tree
		case n.count == 0 || !isRoot && n.key(0) != first || end != noEnd && n.key(n.count-1).compare(end) >= 0:
			return damaged("the node at %d has other keys than the node above it says", n.address)
		}
		k := choose(n)
		if k < 0 {
			c.path = c.path[:0]
			return nil
		}
		c.path = append(c.path, step{n, k, end})
		if n.level == 0 {
			return nil
		}
		r, first, end = c.path[len(c.path)-1].below()
	}
}

// below returns the reference to the node below, and the limits of its keys.
func (s *step) below() (r treeRoot, first, end key) {
	end = s.end
	if s.index+1 < s.node.count {
		end = s.node.key(s.index + 1)
	}
	return s.node.child(s.index), s.node.key(s.index), end
}

// valid reports whether the cursor is at an item.
func (c *cursor) valid() bool { return len(c.path) > 0 }

func (c *cursor) key() key {
	s := c.path[len(c.path)-1]
	return s.node.key(s.index)
}

// data returns the data of the item. They must not be changed.
func (c *cursor) data() []byte {
	s := c.path[len(c.path)-1]
	return s.node.data(s.index)
}

// is reports whether the cursor is at an item of an object and a type.
func (c *cursor) is(object uint64, kind byte) bool {
	if !c.valid() {
		return false
	}
	k := c.key()
	return k.object == object && k.kind == kind
}

// next moves to the next item, or to the end.
func (c *cursor) next() error {
	i := len(c.path) - 1
	for ; i >= 0; i-- {
		if s := &c.path[i]; s.index+1 < s.node.count {
			s.index++
			break
		}
	}
	c.path = c.path[:i+1]
	if i < 0 || c.path[i].node.level == 0 {
		return nil
	}
	r, first, end := c.path[i].below()
	return c.descend(r, first, end, func(*node) int { return 0 })
}
