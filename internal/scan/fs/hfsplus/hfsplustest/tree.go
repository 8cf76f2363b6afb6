package hfsplustest

import "slices"

// record is a record of a tree: its key without the length.
type record struct{ key, value []byte }

func sortRecords(list []record, compare func(a, b record) int) { slices.SortStableFunc(list, compare) }

// treeOptions are the form of a tree.
type treeOptions struct {
	nodeSize, maxKey int
	keysVary         bool
	compare          byte
	spare            int // nodes without use
}

const (
	descriptorSize = 14
	kindLeaf       = 0xff
	kindIndex      = 0
	kindHeader     = 1
)

// size returns the bytes of a record, for which its offset has two more.
func (o treeOptions) size(r record, isLeaf bool) int { return len(o.bytes(r, isLeaf)) + 2 }

func (o treeOptions) bytes(r record, isLeaf bool) []byte {
	b := append(be.AppendUint16(nil, uint16(len(r.key))), r.key...)
	if !isLeaf && !o.keysVary {
		b = append(b, make([]byte, o.maxKey-len(r.key))...)
	}
	if len(b)%2 != 0 {
		b = append(b, 0)
	}
	return append(b, r.value...)
}

// level divides records into nodes.
func (o treeOptions) level(records []record, isLeaf bool) (nodes [][]record) {
	room := 0
	for _, r := range records {
		size := o.size(r, isLeaf)
		if size > room {
			nodes, room = append(nodes, nil), o.nodeSize-descriptorSize-2
		}
		last := len(nodes) - 1
		nodes[last], room = append(nodes[last], r), room-size
	}
	return nodes
}

// node returns a node.
func (o treeOptions) node(kind byte, height int, records [][]byte) []byte {
	b := make([]byte, o.nodeSize)
	b[8], b[9] = kind, byte(height)
	be.PutUint16(b[10:], uint16(len(records)))
	at := descriptorSize
	for i, r := range append(records, nil) {
		be.PutUint16(b[o.nodeSize-2*(i+1):], uint16(at))
		at += copy(b[at:], r)
	}
	return b
}

// tree returns the file of a tree with records in their order.
func (w *writer) tree(o treeOptions, records []record) []byte {
	nodes := [][]byte{nil} // the first is the header
	depth, root, firstLeaf, lastLeaf := 0, 0, 0, 0
	for level, isLeaf := records, true; len(records) > 0; isLeaf = false {
		parts := o.level(level, isLeaf)
		depth++
		level = nil
		kind, start := byte(kindIndex), len(nodes)
		if isLeaf {
			kind, firstLeaf, lastLeaf = kindLeaf, start, start+len(parts)-1
		}
		for i, part := range parts {
			var list [][]byte
			for _, r := range part {
				list = append(list, o.bytes(r, isLeaf))
			}
			b := o.node(kind, depth, list)
			if i+1 < len(parts) {
				be.PutUint32(b, uint32(start+i+1))
			}
			if i > 0 {
				be.PutUint32(b[4:], uint32(start+i-1))
			}
			nodes = append(nodes, b)
			level = append(level, record{part[0].key, be.AppendUint32(nil, uint32(start+i))})
		}
		if len(parts) == 1 {
			root = start
			break
		}
	}
	used := len(nodes)
	total := used + o.spare
	for total*o.nodeSize%w.BlockSize != 0 {
		total++
	}
	nodes[0] = o.headerNode(depth, root, len(records), firstLeaf, lastLeaf)
	h := nodes[0][descriptorSize:]
	be.PutUint32(h[22:], uint32(total))
	be.PutUint32(h[26:], uint32(total-used))
	be.PutUint32(h[32:], uint32(max(w.BlockSize, o.nodeSize)*8))
	bits := nodes[0][248 : o.nodeSize-8]
	if total > 8*len(bits) {
		panic("the tree has more nodes than its header has bits")
	}
	for i := range used {
		bits[i/8] |= 0x80 >> (i % 8)
	}
	return append(slices.Concat(nodes...), make([]byte, (total-used)*o.nodeSize)...)
}

// headerNode returns the first node: the header, an unused record and the map of nodes.
func (o treeOptions) headerNode(depth, root, records, firstLeaf, lastLeaf int) []byte {
	h := make([]byte, 106)
	be.PutUint16(h, uint16(depth))
	for i, v := range []int{root, records, firstLeaf, lastLeaf} {
		be.PutUint32(h[2+4*i:], uint32(v))
	}
	be.PutUint16(h[18:], uint16(o.nodeSize))
	be.PutUint16(h[20:], uint16(o.maxKey))
	h[37] = o.compare
	attributes := uint32(2) // lengths of keys have two bytes
	if o.keysVary {
		attributes |= 4
	}
	be.PutUint32(h[38:], attributes)
	return o.node(kindHeader, 0, [][]byte{h, make([]byte, 128), make([]byte, o.nodeSize-256)})
}
