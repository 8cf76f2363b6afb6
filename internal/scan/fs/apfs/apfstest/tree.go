package apfstest

import (
	"crypto/sha256"
	"slices"
)

// record is a key and a value of a tree.
type record struct{ key, value []byte }

// place is where a virtual object was written.
type place struct {
	id, xid, block uint64
	flags          uint32
}

// shape describes the form of a tree.
type shape struct {
	sub     uint32 // type of its content
	xid     uint64
	fixed   bool // all keys and all values have one length
	virtual bool // nodes have numbers, from first on
	first   uint64
	hashed  bool // nodes have no header, and children are named by distance
	full    int  // maximum number of records of a node; 0 for as many as fit
}

// tree writes a tree of records that are in order. It returns the number or the block of the root,
// and the blocks of a virtual one's nodes.
func (w *writer) tree(s shape, records []record) (root uint64, places []place) {
	count, longestKey, longestValue := len(records), 0, 0
	for _, r := range records {
		longestKey, longestValue = max(longestKey, len(r.key)), max(longestValue, len(r.value))
	}
	keySize, valueSize := 0, 0
	if s.fixed {
		keySize, valueSize = longestKey, longestValue
		if count == 0 {
			keySize, valueSize = 16, 16
		}
	}
	next := s.first + 1 // the root has the first number
	nodes := 0
	for level := 0; ; level++ {
		groups := split(s, records)
		nodes += len(groups)
		last := len(groups) == 1
		var up []record
		for _, g := range groups {
			b := layOut(s, level, g, last)
			block, id := w.alloc(1), next
			if !s.virtual {
				id = block
			} else if last {
				id = s.first
			} else {
				next++
			}
			if last {
				flags := uint32(0)
				if !s.virtual {
					flags |= 0x10
				}
				if s.hashed {
					flags |= 0x80 | 0x100
				}
				info := b[BlockSize-40:]
				le.PutUint32(info, flags)
				le.PutUint32(info[4:], BlockSize)
				le.PutUint32(info[8:], uint32(keySize))
				le.PutUint32(info[12:], uint32(valueSize))
				le.PutUint32(info[16:], uint32(longestKey))
				le.PutUint32(info[20:], uint32(longestValue))
				le.PutUint64(info[24:], uint64(count))
				le.PutUint64(info[32:], uint64(nodes))
			}
			w.node(s, block, id, last, b)
			if s.virtual {
				p := place{id: id, xid: s.xid, block: block}
				if s.hashed {
					p.flags = 8
				}
				if w.cipher != nil {
					p.flags |= 4
				}
				places = append(places, p)
			}
			if last {
				w.rootHash = sha256.Sum256(b)
				return id, places
			}
			up = append(up, record{g[0].key, childOf(s, id, b)})
		}
		records = up
	}
}

// childOf returns the value that names a child.
func childOf(s shape, id uint64, b []byte) []byte {
	if s.hashed {
		sum := sha256.Sum256(b)
		return append(le.AppendUint64(nil, id-s.first), sum[:]...)
	}
	return le.AppendUint64(nil, id)
}

func (w *writer) node(s shape, block, id uint64, root bool, b []byte) {
	if s.hashed {
		w.putNode(s, block, b)
		return
	}
	kind := uint32(typeNode)
	if root {
		kind = typeTree
	}
	if !s.virtual {
		kind |= physical
	}
	w.putNode(s, block, seal(header{id, s.xid, kind, s.sub}, b))
}

// putNode writes a node. Those of an encrypted volume's virtual trees are encrypted.
func (w *writer) putNode(s shape, block uint64, b []byte) {
	if s.virtual && w.cipher != nil {
		b = w.cipher.encrypt(b, block)
	}
	w.put(block, b)
}

// split divides records into nodes.
func split(s shape, records []record) [][]record {
	var out [][]record
	entry, start, used := 8, 0, 0
	if s.fixed {
		entry = 4
	}
	for i, r := range records {
		size := entry + len(r.key) + len(r.value)
		if used+size > BlockSize-56-40 || s.full > 0 && i-start == s.full {
			out = append(out, records[start:i])
			start, used = i, 0
		}
		used += size
	}
	return append(out, records[start:])
}

// layOut writes the records of a node: a table, then keys, and values from the end on.
func layOut(s shape, level int, records []record, root bool) []byte {
	b := make([]byte, BlockSize)
	flags, entry, end := uint16(0), 8, BlockSize
	if root {
		flags |= 1
		end -= 40
	}
	if level == 0 {
		flags |= 2
	}
	if s.fixed {
		flags |= 4
		entry = 4
	}
	if s.hashed {
		flags |= 8 | 16 // the latter: without a header
	}
	le.PutUint16(b[32:], flags)
	le.PutUint16(b[34:], uint16(level))
	le.PutUint32(b[36:], uint32(len(records)))
	le.PutUint16(b[42:], uint16(entry*len(records)))
	keys := 56 + entry*len(records)
	k, v := 0, 0
	for i, r := range records {
		copy(b[keys+k:], r.key)
		v += len(r.value)
		copy(b[end-v:], r.value)
		at := b[56+entry*i:]
		le.PutUint16(at, uint16(k))
		if s.fixed {
			le.PutUint16(at[2:], uint16(v))
		} else {
			le.PutUint16(at[2:], uint16(len(r.key)))
			le.PutUint16(at[4:], uint16(v))
			le.PutUint16(at[6:], uint16(len(r.value)))
		}
		k += len(r.key)
	}
	le.PutUint16(b[44:], uint16(k))
	le.PutUint16(b[46:], uint16(end-v-keys-k))
	for _, at := range []int{48, 52} { // lists of free places: none
		le.PutUint16(b[at:], 0xffff)
	}
	return b
}

// omap writes an object map with the blocks of objects, and returns its own block.
func (w *writer) omap(xid uint64, places []place) uint64 {
	slices.SortFunc(places, func(a, b place) int {
		if a.id != b.id {
			return int(int64(a.id - b.id))
		}
		return int(int64(a.xid - b.xid))
	})
	var records []record
	for _, p := range places {
		value := le.AppendUint32(le.AppendUint32(nil, p.flags), BlockSize)
		records = append(records,
			record{le.AppendUint64(le.AppendUint64(nil, p.id), p.xid), le.AppendUint64(value, p.block)})
	}
	root, _ := w.tree(shape{sub: typeOMap, xid: xid, fixed: true}, records)
	b := make([]byte, BlockSize)
	le.PutUint32(b[40:], typeTree|physical)
	le.PutUint32(b[44:], typeTree|physical)
	le.PutUint64(b[48:], root)
	block := w.alloc(1)
	w.object(block, header{block, xid, typeOMap | physical, 0}, b)
	return block
}
