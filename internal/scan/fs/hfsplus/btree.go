package hfsplus

import (
	"fmt"

	"github.com/buildyard/buildyard/internal/scan/fs/inodefs"
)

// Form of a tree: nodes of one size, the first of which has the header. A node has its records from its beginning on,
// and from its end down where each begins, and where free space does.
const (
	descriptorSize = 14 // of a node
	treeHeaderSize = descriptorSize + 106
	minNodeSize    = 512
	maxNodeSize    = 32 << 10
	maxTreeHeight  = 16 // that of Apple's systems is 8
	nodeLeaf       = -1
	nodeIndex      = 0
	nodeHeader     = 1

	compareExactly = 0xbc // names in the catalog of HFSX
	keysVary       = 4    // in the attributes: keys of index nodes have various lengths

	// treePageBytes is a multiple of every size of nodes: a page has whole ones.
	treePageBytes = 64 << 10
)

// tree is a B-tree. It is safe for concurrent use, and caches 16 MiB of its nodes.
type tree struct {
	name      string // for errors
	pages     *inodefs.Pages
	nodeSize  int64
	nodeCount uint32
	root      uint32 // 0: it has no records
	keysVary  bool
	maxKey    int
	isExact   bool // of the catalog: names are compared exactly
}

// openTree reads the header of the tree in a fork.
func (f *FS) openTree(name string, file uint32, d forkData) (*tree, error) {
	k, err := f.openFork(file, dataFork, d)
	if err != nil {
		return nil, err
	}
	if d.size < treeHeaderSize {
		return nil, damaged("the tree of %s has %d bytes", name, d.size)
	}
	b := make([]byte, treeHeaderSize)
	if _, err := k.ReadAt(b, 0); err != nil {
		return nil, fmt.Errorf("the tree of %s: %w", name, err)
	}
	h := b[descriptorSize:]
	t := &tree{
		name: name, root: be.Uint32(h[2:]), nodeSize: int64(be.Uint16(h[18:])), maxKey: int(be.Uint16(h[20:])),
		isExact: h[37] == compareExactly, keysVary: be.Uint32(h[38:])&keysVary != 0,
	}
	switch {
	case int8(b[8]) != nodeHeader:
		return nil, damaged("the tree of %s has no header", name)
	case t.nodeSize < minNodeSize || t.nodeSize > maxNodeSize || t.nodeSize&(t.nodeSize-1) != 0:
		return nil, damaged("the tree of %s has nodes of %d bytes", name, t.nodeSize)
	}
	t.nodeCount = uint32(min(int64(be.Uint32(h[22:])), d.size/t.nodeSize))
	t.pages = inodefs.NewPagesOf(k, d.size, treePageBytes)
	return t, nil
}

// node is a node of a tree. Its bytes are immutable.
type node struct {
	tree           *tree
	number         uint32
	data           []byte
	next, previous uint32 // on its level; 0 = none
	isLeaf         bool
	height         int // 1 = a leaf
	count          int // of records
}

// readNode reads a node with records.
func (t *tree) readNode(number uint32) (*node, error) {
	if number == 0 || number >= t.nodeCount {
		return nil, damaged("the tree of %s refers to node %d of %d", t.name, number, t.nodeCount)
	}
	b, err := t.pages.Get(int64(number)*t.nodeSize, t.nodeSize)
	if err != nil {
		return nil, fmt.Errorf("the tree of %s: %w", t.name, err)
	}
	n := &node{
		tree: t, number: number, data: b, next: be.Uint32(b), previous: be.Uint32(b[4:]),
		isLeaf: int8(b[8]) == nodeLeaf, height: int(b[9]), count: int(be.Uint16(b[10:])),
	}
	switch {
	case !n.isLeaf && int8(b[8]) != nodeIndex, n.isLeaf != (n.height == 1), n.height < 1, n.height > maxTreeHeight:
		return nil, damaged("node %d of the tree of %s has the kind %d and height %d", number, t.name, int8(b[8]),
			n.height)
	case n.count < 1 || descriptorSize+2*(n.count+1) > len(b):
		return nil, damaged("node %d of the tree of %s has %d records", number, t.name, n.count)
	}
	return n, nil
}

// record returns the key of a record, without its length, and its value. Records do not overlap.
func (n *node) record(i int) (key, value []byte, err error) {
	end := len(n.data) - 2*(n.count+1) // of what records may take
	from, to := int(be.Uint16(n.data[len(n.data)-2*(i+1):])), int(be.Uint16(n.data[len(n.data)-2*(i+2):]))
	if from < descriptorSize || to > end || from+2 > to {
		return nil, nil, damaged("record %d of node %d of the tree of %s is from byte %d to %d", i, n.number,
			n.tree.name, from, to)
	}
	b := n.data[from:to:to]
	length := int(be.Uint16(b))
	room := length
	if !n.isLeaf && !n.tree.keysVary {
		room = n.tree.maxKey
	}
	start := (2 + room + 1) &^ 1
	if length > room || start > len(b) {
		return nil, nil, damaged("record %d of node %d of the tree of %s has a key of %d bytes", i, n.number,
			n.tree.name, length)
	}
	return b[2 : 2+length : 2+length], b[start:], nil
}

// position is a record of a leaf. Its node is nil where there is none.
type position struct {
	node    *node
	index   int
	isExact bool // its key is the one that was looked for
}

func (p *position) record() (key, value []byte, err error) { return p.node.record(p.index) }

// compareFunc compares a key with the one that is looked for: below zero where the key is before it.
type compareFunc func(key []byte) (int, error)

// find returns the last record whose key is not after the one that is looked for. Heights decrease by one, so that
// every search ends.
func (t *tree) find(compare compareFunc) (position, error) {
	if t.root == 0 {
		return position{}, nil
	}
	n, err := t.readNode(t.root)
	for err == nil {
		var i int
		var exact bool
		i, exact, err = n.search(compare)
		switch {
		case err != nil || i < 0:
			return position{}, err
		case n.isLeaf:
			return position{n, i, exact}, nil
		}
		n, err = n.child(i)
	}
	return position{}, err
}

// search returns the last record of a node that is not after what is looked for; -1 without one.
func (n *node) search(compare compareFunc) (index int, exact bool, err error) {
	low, high := 0, n.count
	for low < high {
		mid := (low + high) / 2
		key, _, err := n.record(mid)
		if err != nil {
			return 0, false, err
		}
		c, err := compare(key)
		if err != nil {
			return 0, false, err
		}
		if c > 0 {
			high = mid
		} else {
			low, exact = mid+1, c == 0
		}
	}
	return low - 1, exact, nil
}

// child returns the node that a record of an index node refers to.
func (n *node) child(i int) (*node, error) {
	_, value, err := n.record(i)
	if err != nil {
		return nil, err
	}
	if len(value) < 4 {
		return nil, damaged("record %d of node %d of the tree of %s refers to no node", i, n.number, n.tree.name)
	}
	c, err := n.tree.readNode(be.Uint32(value))
	if err == nil && c.height != n.height-1 {
		err = damaged("node %d of the tree of %s has height %d below %d", c.number, n.tree.name, c.height, n.height)
	}
	return c, err
}

// cursor moves over the leaves of a tree. One goroutine uses it.
type cursor struct {
	position
	first uint32 // the leaf at which it began
}

// next goes to the next record; ok is false at the end. Every leaf names the one before it, so that no leaf but the
// first could be reached twice.
func (c *cursor) next() (ok bool, err error) {
	if c.index++; c.index < c.node.count {
		return true, nil
	}
	if c.node.next == 0 {
		return false, nil
	}
	n, err := c.node.tree.readNode(c.node.next)
	if err != nil {
		return false, err
	}
	if !n.isLeaf || n.previous != c.node.number || n.number == c.first {
		return false, damaged("node %d of the tree of %s is not the one after node %d", n.number, n.tree.name,
			c.node.number)
	}
	c.node, c.index = n, 0
	return true, nil
}
