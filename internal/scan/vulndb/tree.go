package vulndb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// tree is one section of a file for reading. A block follows all blocks below it, and these follow
// the block before it on its level. So no path through a damaged file is a cycle, and no block is
// reached by two paths.
type tree struct {
	r       io.ReaderAt
	cache   *cache
	begin   int64
	root    blockHandle
	entries int
}

// query selects the entries to visit. Where returns a negative number for keys before them, 0 for
// theirs and a positive one for those after them. Visit gets slices that are valid until it
// returns, and returns false to end the walk.
type query struct {
	where func(key []byte) int
	visit func(key, value []byte) (more bool, err error)
}

// scan visits every entry whose key begins with prefix, in order.
func (t *tree) scan(prefix []byte, visit func(key, value []byte) (bool, error)) error {
	return t.run(query{visit: visit, where: func(key []byte) int {
		if bytes.HasPrefix(key, prefix) {
			return 0
		}
		return bytes.Compare(key, prefix)
	}})
}

// get returns the value of one key.
func (t *tree) get(key []byte) (value []byte, found bool, err error) {
	err = t.run(query{
		where: func(k []byte) int { return bytes.Compare(k, key) },
		visit: func(_, v []byte) (bool, error) {
			value, found = v, true // of a block that is never changed
			return false, nil
		},
	})
	return value, found, err
}

func (t *tree) run(q query) error {
	if t.entries == 0 {
		return nil
	}
	_, err := t.walk(q, t.root, t.begin, -1)
	return err
}

// walk visits the entries below one block. Low is the minimum offset of the first block below it,
// level its level, -1 of the root.
func (t *tree) walk(q query, at blockHandle, low int64, level int) (more bool, err error) {
	b, err := t.block(at)
	if err != nil {
		return false, err
	}
	if level >= 0 && b.level != level || b.level > maxHeight {
		return false, fmt.Errorf("%w: a block is on the wrong level", ErrDamaged)
	}
	if b.level == 0 {
		return b.visit(q)
	}
	children, err := b.children(q, low, at.at)
	if err != nil {
		return false, err
	}
	for _, c := range children {
		if more, err = t.walk(q, c.blockHandle, c.low, b.level-1); err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// block returns a block with a valid checksum.
func (t *tree) block(at blockHandle) (*sealed, error) {
	if b := t.cache.get(at.at); b != nil {
		return b, nil
	}
	raw := make([]byte, at.length)
	if _, err := t.r.ReadAt(raw, at.at); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	b, err := unseal(raw)
	if err != nil {
		return nil, err
	}
	t.cache.put(at.at, b)
	return b, nil
}

// visit visits the entries of a leaf.
func (b *sealed) visit(q query) (more bool, err error) {
	if len(b.marks) == 0 {
		return true, nil
	}
	m := b.marks[b.from(q)]
	c := cursor{rest: b.entries[m.at:], key: bytes.Clone(m.before)}
	for c.next() {
		where := q.where(c.key)
		if where > 0 {
			return false, nil
		}
		if where < 0 {
			continue
		}
		if more, err := q.visit(c.key, c.value); err != nil || !more {
			return false, err
		}
	}
	return c.err == nil, c.err
}

// child is a block below another one.
type child struct {
	blockHandle
	low int64 // minimum offset of the blocks below it
}

// children returns those that may have matching entries. As a child is named by its first key, such
// an entry may be in the last one before it.
func (b *sealed) children(q query, low, high int64) ([]child, error) {
	var list []child
	from := b.from(q)
	for i, m := range b.marks[max(0, from-1):] {
		p, ok := parseBlockHandle(m.value)
		if !ok || p.at < low || p.at > high-p.length {
			return nil, fmt.Errorf("%w: a block lies outside its tree", ErrDamaged)
		}
		if i > 0 || from == 0 {
			if q.where(m.key) > 0 {
				return list, nil
			}
			list = append(list, child{p, low})
		}
		low = p.at + p.length
	}
	return list, nil
}
