package apfs

import "fmt"

// Parts of a node, and of the description of a tree at the end of its root.
const (
	nodeHeader = 56
	treeInfo   = 40
	maxLevel   = 12 // of a tree; a container of 2^60 bytes needs fewer

	nodeRoot  = 1
	nodeLeaf  = 2
	nodeFixed = 4

	nodeNoHeader = 0x10

	treeHashed   = 0x80
	treeNoHeader = 0x100

	noValue = 0xffff
)

// node is a node of a B-tree. Its bytes are immutable.
type node struct {
	b       []byte
	table   int // where the table of contents begins
	keys    int // where the keys begin
	end     int // where the values end: they are counted from there downwards
	count   int
	level   int
	leaf    bool
	fixed   bool
	root    bool
	keySize int // of a fixed tree, which only its root knows
	valSize int
}

type nodeKey struct {
	block  uint64
	header bool
}

// parseNode reads the header of a node and checks its bounds.
func parseNode(b []byte) (*node, error) {
	flags := le.Uint16(b[32:])
	n := &node{
		b: b, level: int(le.Uint16(b[34:])), count: int(le.Uint32(b[36:])),
		leaf: flags&nodeLeaf != 0, fixed: flags&nodeFixed != 0, root: flags&nodeRoot != 0,
		end: len(b),
	}
	if n.root {
		n.end -= treeInfo
		n.keySize, n.valSize = int(le.Uint32(b[n.end+8:])), int(le.Uint32(b[n.end+12:]))
	}
	n.table = nodeHeader + int(le.Uint16(b[40:]))
	n.keys = n.table + int(le.Uint16(b[42:]))
	entry := 8
	if n.fixed {
		entry = 4
	}
	if n.keys > n.end || n.count < 0 || n.count > (n.keys-n.table)/entry {
		return nil, damaged("a node has %d records, which do not fit", n.count)
	}
	if n.leaf != (n.level == 0) || n.level > maxLevel {
		return nil, damaged("a node has level %d", n.level)
	}
	return n, nil
}

// key returns the key of a record; it is empty where the node is damaged.
func (n *node) key(i, size int) []byte {
	var off int
	if n.fixed {
		off = int(le.Uint16(n.b[n.table+4*i:]))
	} else {
		at := n.table + 8*i
		off, size = int(le.Uint16(n.b[at:])), int(le.Uint16(n.b[at+2:]))
	}
	from := n.keys + off
	if from+size > n.end {
		return nil
	}
	return n.b[from : from+size : from+size]
}

// value returns the value of a record; it is empty where there is none.
func (n *node) value(i, size int) []byte {
	var off int
	if n.fixed {
		off = int(le.Uint16(n.b[n.table+4*i+2:]))
		if !n.leaf {
			size = min(8, off)
		}
	} else {
		at := n.table + 8*i + 4
		off, size = int(le.Uint16(n.b[at:])), int(le.Uint16(n.b[at+2:]))
	}
	from := n.end - off
	if off == noValue || from < n.keys || size > off {
		return nil
	}
	return n.b[from : from+size : from+size]
}

// tree is a B-tree. It is safe for concurrent use.
type tree struct {
	d        *device
	omap     *omap // nil where nodes are named by their block
	xid      uint64
	rootID   uint64
	root     *node
	noHeader bool
	hashed   bool // children are named by their distance from the root, and hashed
}

// openTree reads the root of a tree. Nodes of a virtual tree are looked up in m as of xid.
func openTree(d *device, m *omap, rootID, xid uint64) (*tree, error) {
	t := &tree{d: d, omap: m, xid: xid, rootID: rootID}
	block, headless, err := t.find(rootID)
	if err != nil {
		return nil, err
	}
	t.noHeader = headless
	if t.root, err = t.load(block); err != nil {
		return nil, err
	}
	if !t.root.root {
		return nil, damaged("block %d is not the root of a tree", block)
	}
	info := t.root.b[t.root.end:]
	flags, size := le.Uint32(info), le.Uint32(info[4:])
	if size != uint32(d.blockSize) {
		return nil, fmt.Errorf("a tree with nodes of %d bytes: %w", size, ErrUnsupported)
	}
	if t.root.fixed && (t.root.keySize < 8 || t.root.keySize > d.blockSize || t.root.valSize > d.blockSize) {
		return nil, damaged("a tree has keys of %d bytes", t.root.keySize)
	}
	t.noHeader, t.hashed = flags&treeNoHeader != 0, flags&treeHashed != 0
	return t, nil
}

// find returns the block of a node, and whether a flag states that it has no header.
func (t *tree) find(id uint64) (block uint64, headless bool, err error) {
	if t.omap == nil {
		return id, false, nil
	}
	at, err := t.omap.find(id, t.xid)
	return at.block, at.flags&omapNoHeader != 0, err
}

// load returns a node, from the cache if possible.
func (t *tree) load(block uint64) (*node, error) {
	k := nodeKey{block, !t.noHeader}
	if n, ok := t.d.nodes.get(k); ok {
		return n, nil
	}
	b, err := t.d.block(block)
	if err != nil {
		return nil, err
	}
	if k.header && !headless(b) {
		if !sound(b) {
			return nil, damaged("block %d, a node of a tree, has a wrong checksum", block)
		}
		if kind := le.Uint32(b[24:]) & typeMask; kind != typeBTree && kind != typeBTreeNode {
			return nil, damaged("block %d is of type %#x, not a node of a tree", block, kind)
		}
	}
	n, err := parseNode(b)
	if err != nil {
		return nil, fmt.Errorf("block %d: %w", block, err)
	}
	t.d.nodes.add(k, n)
	return n, nil
}

// headless reports whether a node itself has no header: in its place are zeros.
func headless(b []byte) bool {
	return le.Uint16(b[32:])&nodeNoHeader != 0 && [objectHeader]byte(b) == [objectHeader]byte{}
}

// child reads the node that record i of n names.
func (t *tree) child(n *node, i int) (*node, error) {
	v := n.value(i, 8)
	if len(v) < 8 {
		return nil, damaged("a node names no child")
	}
	id := le.Uint64(v)
	if t.hashed {
		id += t.rootID
	}
	block, _, err := t.find(id)
	if err != nil {
		return nil, err
	}
	c, err := t.load(block)
	if err != nil {
		return nil, err
	}
	// Levels that decrease by one ensure that every descent ends.
	if c.level != n.level-1 || c.root || c.fixed != t.root.fixed {
		return nil, damaged("block %d is not where it belongs in its tree", block)
	}
	return c, nil
}

// target is a search key of a tree: it compares itself with a key.
type target interface {
	compare(key []byte) int
}

// search returns the first record of a node whose key is not before the target.
func (t *tree) search(n *node, to target) int {
	low, high := 0, n.count
	for low < high {
		mid := int(uint(low+high) >> 1)
		if to.compare(n.key(mid, t.root.keySize)) < 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// cursor is a position in a tree. One goroutine uses it.
type cursor struct {
	t    *tree
	path [maxLevel + 1]struct {
		n *node
		i int
	}
	depth int // of the leaf; -1 at the end
	left  int // leaves that may still be visited, so that trees that share nodes end
}

const maxLeaves = 1 << 20

// seek returns a cursor at the first record whose key is not before the target, or at the end.
func (t *tree) seek(to target) (cursor, error) {
	c := cursor{t: t, left: maxLeaves}
	n := t.root
	for {
		i := t.search(n, to)
		if !n.leaf && (i == n.count || to.compare(n.key(i, t.root.keySize)) > 0) {
			i = max(i-1, 0)
		}
		c.path[c.depth].n, c.path[c.depth].i = n, i
		if n.leaf {
			break
		}
		if n.count == 0 {
			return c, damaged("a node has no children")
		}
		child, err := t.child(n, i)
		if err != nil {
			return c, err
		}
		n, c.depth = child, c.depth+1
	}
	return c, c.settle()
}

// before returns a cursor at the last record whose key is not after the target; ok is false where
// there is none.
func (t *tree) before(to target) (c cursor, ok bool, err error) {
	c = cursor{t: t, left: maxLeaves}
	n := t.root
	for {
		i := t.search(n, to)
		if i == n.count || to.compare(n.key(i, t.root.keySize)) > 0 {
			i--
		}
		if i < 0 {
			return c, false, nil
		}
		c.path[c.depth].n, c.path[c.depth].i = n, i
		if n.leaf {
			return c, true, nil
		}
		if n, err = t.child(n, i); err != nil {
			return c, false, err
		}
		c.depth++
	}
}

func (c *cursor) end() bool { return c.depth < 0 }

func (c *cursor) key() []byte {
	at := &c.path[c.depth]
	return at.n.key(at.i, c.t.root.keySize)
}

func (c *cursor) value() []byte {
	at := &c.path[c.depth]
	return at.n.value(at.i, c.t.root.valSize)
}

func (c *cursor) next() error {
	c.path[c.depth].i++
	return c.settle()
}

// settle moves on from the end of a leaf to the next one.
func (c *cursor) settle() error {
	for c.path[c.depth].i >= c.path[c.depth].n.count {
		for c.path[c.depth].i >= c.path[c.depth].n.count {
			c.depth--
			if c.depth < 0 {
				return nil
			}
			c.path[c.depth].i++
		}
		if err := c.descend(); err != nil {
			return err
		}
	}
	return nil
}

// descend goes to the first leaf below the record of the path.
func (c *cursor) descend() error {
	if c.left--; c.left < 0 {
		return damaged("a tree has no end")
	}
	for {
		at := c.path[c.depth]
		if at.n.leaf || at.i >= at.n.count {
			return nil
		}
		n, err := c.t.child(at.n, at.i)
		if err != nil {
			return err
		}
		c.depth++
		c.path[c.depth].n, c.path[c.depth].i = n, 0
	}
}

// skip continues after a child that could not be read, which an error of seek or next reported. It
// returns false at the end.
func (c *cursor) skip() bool {
	for c.depth >= 0 {
		c.path[c.depth].i++
		err := c.descend()
		if err == nil {
			err = c.settle()
		}
		if err == nil {
			return c.depth >= 0
		}
		if c.left < 0 {
			return false
		}
	}
	return false
}
