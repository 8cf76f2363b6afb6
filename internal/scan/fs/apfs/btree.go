package apfs

import (
	"fmt"

	"github.com/buildyard/buildyard/internal/scan/fs/apfs/keybag"
)

// Parts of a node, and of the description of a tree at the end of its root.
const (
	nodeHeaderSize = 56
	treeInfoSize   = 40
	maxTreeLevel   = 12 // of a tree; a container of 2^60 bytes needs fewer

	nodeRoot  = 1
	nodeLeaf  = 2
	nodeFixed = 4

	nodeNoHeader = 0x10

	treeHashed   = 0x80
	treeNoHeader = 0x100

	noValueOffset = 0xffff
)

// node is a node of a B-tree. Its bytes are immutable.
type node struct {
	data        []byte
	tocOffset   int // where the table of contents begins
	keysOffset  int // where the keys begin
	valuesEnd   int // where the values end: they are counted from there downwards
	recordCount int
	level       int
	isLeaf      bool
	fixedSizes  bool
	isRoot      bool
	keySize     int // of a fixed tree, which only its root knows
	valueSize   int
}

type nodeKey struct {
	block     uint64
	hasHeader bool
	cipher    *keybag.Cipher // that decrypts it; nil for none
}

// parseNode reads the header of a node and checks its bounds.
func parseNode(b []byte) (*node, error) {
	flags := le.Uint16(b[32:])
	n := &node{
		data: b, level: int(le.Uint16(b[34:])), recordCount: int(le.Uint32(b[36:])),
		isLeaf: flags&nodeLeaf != 0, fixedSizes: flags&nodeFixed != 0, isRoot: flags&nodeRoot != 0,
		valuesEnd: len(b),
	}
	if n.isRoot {
		n.valuesEnd -= treeInfoSize
		n.keySize, n.valueSize = int(le.Uint32(b[n.valuesEnd+8:])), int(le.Uint32(b[n.valuesEnd+12:]))
	}
	n.tocOffset = nodeHeaderSize + int(le.Uint16(b[40:]))
	n.keysOffset = n.tocOffset + int(le.Uint16(b[42:]))
	entry := 8
	if n.fixedSizes {
		entry = 4
	}
	if n.keysOffset > n.valuesEnd || n.recordCount < 0 || n.recordCount > (n.keysOffset-n.tocOffset)/entry {
		return nil, damaged("a node has %d records, which do not fit", n.recordCount)
	}
	if n.isLeaf != (n.level == 0) || n.level > maxTreeLevel {
		return nil, damaged("a node has level %d", n.level)
	}
	return n, nil
}

// key returns the key of a record; it is empty where the node is damaged.
func (n *node) key(i, size int) []byte {
	var off int
	if n.fixedSizes {
		off = int(le.Uint16(n.data[n.tocOffset+4*i:]))
	} else {
		at := n.tocOffset + 8*i
		off, size = int(le.Uint16(n.data[at:])), int(le.Uint16(n.data[at+2:]))
	}
	from := n.keysOffset + off
	if from+size > n.valuesEnd {
		return nil
	}
	return n.data[from : from+size : from+size]
}

// value returns the value of a record; it is empty where there is none.
func (n *node) value(i, size int) []byte {
	var off int
	if n.fixedSizes {
		off = int(le.Uint16(n.data[n.tocOffset+4*i+2:]))
		if !n.isLeaf {
			size = min(8, off)
		}
	} else {
		at := n.tocOffset + 8*i + 4
		off, size = int(le.Uint16(n.data[at:])), int(le.Uint16(n.data[at+2:]))
	}
	from := n.valuesEnd - off
	if off == noValueOffset || from < n.keysOffset || size > off {
		return nil
	}
	return n.data[from : from+size : from+size]
}

// tree is a B-tree. It is safe for concurrent use.
type tree struct {
	device         *device
	omap           *omap // nil where nodes are named by their block
	xid            uint64
	rootID         uint64
	root           *node
	noHeader       bool
	hashedChildren bool // children are named by their distance from the root, and hashed
}

// openTree reads the root of a tree. Nodes of a virtual tree are looked up in m as of xid.
func openTree(d *device, m *omap, rootID, xid uint64) (*tree, error) {
	t := &tree{device: d, omap: m, xid: xid, rootID: rootID}
	root, err := t.nodeEntry(rootID)
	if err != nil {
		return nil, err
	}
	t.noHeader = root.flags&omapNoHeader != 0
	if t.root, err = t.loadNode(root); err != nil {
		return nil, err
	}
	if !t.root.isRoot {
		return nil, damaged("block %d is not the root of a tree", root.block)
	}
	info := t.root.data[t.root.valuesEnd:]
	flags, size := le.Uint32(info), le.Uint32(info[4:])
	if size != uint32(d.blockSize) {
		return nil, fmt.Errorf("nodes of %d bytes in a B-tree: %w", size, ErrUnsupported)
	}
	if t.root.fixedSizes && (t.root.keySize < 8 || t.root.keySize > d.blockSize || t.root.valueSize > d.blockSize) {
		return nil, damaged("a tree has keys of %d bytes", t.root.keySize)
	}
	t.noHeader, t.hashedChildren = flags&treeNoHeader != 0, flags&treeHashed != 0
	return t, nil
}

// nodeEntry returns the block of a node, and the flags of its entry in an object map.
func (t *tree) nodeEntry(id uint64) (omapEntry, error) {
	if t.omap == nil {
		return omapEntry{block: id}, nil
	}
	return t.omap.find(id, t.xid)
}

// loadNode returns a node, from the cache if possible.
func (t *tree) loadNode(at omapEntry) (*node, error) {
	block, k := at.block, nodeKey{block: at.block, hasHeader: !t.noHeader}
	if at.flags&omapEncrypted != 0 {
		k.cipher = t.omap.cipher
	}
	if n, ok := t.device.nodeCache.get(k); ok {
		return n, nil
	}
	b, err := t.device.readBlock(block)
	if err != nil {
		return nil, err
	}
	if k.cipher != nil {
		k.cipher.Decrypt(b, t.device.firstUnit(block))
	}
	if k.hasHeader && !hasNoHeader(b) {
		if !checksumValid(b) {
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
	t.device.nodeCache.add(k, n)
	return n, nil
}

// hasNoHeader reports whether a node itself has no header: in its place are zeros.
func hasNoHeader(b []byte) bool {
	return le.Uint16(b[32:])&nodeNoHeader != 0 && [objectHeaderSize]byte(b) == [objectHeaderSize]byte{}
}

// readChild reads the node that record i of n names.
func (t *tree) readChild(n *node, i int) (*node, error) {
	v := n.value(i, 8)
	if len(v) < 8 {
		return nil, damaged("a node names no child")
	}
	id := le.Uint64(v)
	if t.hashedChildren {
		id += t.rootID
	}
	at, err := t.nodeEntry(id)
	if err != nil {
		return nil, err
	}
	c, err := t.loadNode(at)
	if err != nil {
		return nil, err
	}
	// Levels that decrease by one ensure that every descent ends.
	if c.level != n.level-1 || c.isRoot || c.fixedSizes != t.root.fixedSizes {
		return nil, damaged("block %d is not where it belongs in its tree", at.block)
	}
	return c, nil
}

// searchKey is a search key of a tree: it compares itself with a key.
type searchKey interface {
	compare(key []byte) int
}

// searchNode returns the first record of a node whose key is not before the target.
func (t *tree) searchNode(n *node, to searchKey) int {
	low, high := 0, n.recordCount
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
	tree *tree
	path [maxTreeLevel + 1]struct {
		n *node
		i int
	}
	depth      int // of the leaf; -1 at the end
	leavesLeft int // leaves that may still be visited, so that trees that share nodes end
}

const maxLeaves = 1 << 20

// seek returns a cursor at the first record whose key is not before the target, or at the end.
func (t *tree) seek(to searchKey) (cursor, error) {
	c := cursor{tree: t, leavesLeft: maxLeaves}
	n := t.root
	for {
		i := t.searchNode(n, to)
		if !n.isLeaf && (i == n.recordCount || to.compare(n.key(i, t.root.keySize)) > 0) {
			i = max(i-1, 0)
		}
		c.path[c.depth].n, c.path[c.depth].i = n, i
		if n.isLeaf {
			break
		}
		if n.recordCount == 0 {
			return c, damaged("a node has no children")
		}
		child, err := t.readChild(n, i)
		if err != nil {
			return c, err
		}
		n, c.depth = child, c.depth+1
	}
	return c, c.toNextRecord()
}

// seekBefore returns a cursor at the last record whose key is not after the target; ok is false where
// there is none.
func (t *tree) seekBefore(to searchKey) (c cursor, ok bool, err error) {
	c = cursor{tree: t, leavesLeft: maxLeaves}
	n := t.root
	for {
		i := t.searchNode(n, to)
		if i == n.recordCount || to.compare(n.key(i, t.root.keySize)) > 0 {
			i--
		}
		if i < 0 {
			return c, false, nil
		}
		c.path[c.depth].n, c.path[c.depth].i = n, i
		if n.isLeaf {
			return c, true, nil
		}
		if n, err = t.readChild(n, i); err != nil {
			return c, false, err
		}
		c.depth++
	}
}

func (c *cursor) atEnd() bool { return c.depth < 0 }

func (c *cursor) key() []byte {
	at := &c.path[c.depth]
	return at.n.key(at.i, c.tree.root.keySize)
}

func (c *cursor) value() []byte {
	at := &c.path[c.depth]
	return at.n.value(at.i, c.tree.root.valueSize)
}

func (c *cursor) next() error {
	c.path[c.depth].i++
	return c.toNextRecord()
}

// toNextRecord moves on from the end of a leaf to the next one.
func (c *cursor) toNextRecord() error {
	for c.path[c.depth].i >= c.path[c.depth].n.recordCount {
		for c.path[c.depth].i >= c.path[c.depth].n.recordCount {
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
	if c.leavesLeft--; c.leavesLeft < 0 {
		return damaged("a tree has no end")
	}
	for {
		at := c.path[c.depth]
		if at.n.isLeaf || at.i >= at.n.recordCount {
			return nil
		}
		n, err := c.tree.readChild(at.n, at.i)
		if err != nil {
			return err
		}
		c.depth++
		c.path[c.depth].n, c.path[c.depth].i = n, 0
	}
}

// skipUnreadable continues after a child that could not be read, which an error of seek or next reported. It
// returns false at the end.
func (c *cursor) skipUnreadable() bool {
	for c.depth >= 0 {
		c.path[c.depth].i++
		err := c.descend()
		if err == nil {
			err = c.toNextRecord()
		}
		if err == nil {
			return c.depth >= 0
		}
		if c.leavesLeft < 0 {
			return false
		}
	}
	return false
}
