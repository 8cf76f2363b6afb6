package vulndb

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/klauspost/compress/zstd"
)

// tree is one section of a file for reading. A block follows all blocks below it, and these follow
// the block before it on its level. So no path through a damaged file is a cycle, and no block is
// reached by two paths.
type tree struct {
	r           io.ReaderAt
	cache       *blockCache
	decoder     *zstd.Decoder
	beginOffset int64
	root        blockHandle
	entryCount  int
}

// query selects the entries to visit. Where returns a negative number for keys before them, 0 for
// theirs and a positive one for those after them. Visit gets slices that are valid until it
// returns, and returns false to end the walk.
type query struct {
	compare func(key []byte) int
	visit   func(key, value []byte) (more bool, err error)
}

// scan visits every entry whose key begins with prefix, in order.
func (t *tree) scan(prefix []byte, visit func(key, value []byte) (bool, error)) error {
	return t.run(query{visit: visit, compare: func(key []byte) int {
		if bytes.HasPrefix(key, prefix) {
			return 0
		}
		return bytes.Compare(key, prefix)
	}})
}

// get returns the value of one key.
func (t *tree) get(key []byte) (value []byte, found bool, err error) {
	err = t.run(query{
		compare: func(k []byte) int { return bytes.Compare(k, key) },
		visit: func(_, v []byte) (bool, error) {
			value, found = v, true // of a block that is never changed
			return false, nil
		},
	})
	return value, found, err
}

// floor returns the value of the last key that is not after a key.
func (t *tree) floor(key []byte) (value []byte, found bool, err error) {
	if t.entryCount == 0 {
		return nil, false, nil
	}
	at, low, level := t.root, t.beginOffset, -1
	for {
		b, err := t.readBlock(at)
		if err != nil {
			return nil, false, err
		}
		if level >= 0 && b.level != level || b.level > maxTreeHeight {
			return nil, false, fmt.Errorf("%w: a block is on the wrong tree level", ErrDamaged)
		}
		i := sort.Search(len(b.restartPoints), func(i int) bool {
			return bytes.Compare(b.restartPoints[i].key, key) > 0
		})
		if i == 0 {
			return nil, false, nil
		}
		m := b.restartPoints[i-1]
		if b.level == 0 {
			return b.floorFrom(m, key)
		}
		p, ok := parseBlockHandle(m.value)
		if !ok || p.offset < low || p.offset > at.offset-p.length {
			return nil, false, fmt.Errorf("%w: a block is outside of its tree", ErrDamaged)
		}
		at, level = p, b.level-1
	}
}

// floorFrom returns the value of the last key that is not after a key, of the entries of a leaf from one on.
func (b *parsedBlock) floorFrom(m restartPoint, key []byte) (value []byte, found bool, err error) {
	c := cursor{remaining: b.entries[m.offset:], key: bytes.Clone(m.previousKey)}
	for c.next() && bytes.Compare(c.key, key) <= 0 {
		value, found = c.value, true // of a block that is never changed
	}
	return value, found, c.err
}

func (t *tree) run(q query) error {
	if t.entryCount == 0 {
		return nil
	}
	_, err := t.walk(q, t.root, t.beginOffset, -1)
	return err
}

// walk visits the entries below one block. Low is the minimum offset of the first block below it,
// level its level, -1 of the root.
func (t *tree) walk(q query, at blockHandle, low int64, level int) (more bool, err error) {
	b, err := t.readBlock(at)
	if err != nil {
		return false, err
	}
	if level >= 0 && b.level != level || b.level > maxTreeHeight {
		return false, fmt.Errorf("%w: a block is on the wrong tree level", ErrDamaged)
	}
	if b.level == 0 {
		return b.visit(q)
	}
	children, err := b.children(q, low, at.offset)
	if err != nil {
		return false, err
	}
	for _, c := range children {
		if more, err = t.walk(q, c.blockHandle, c.minOffset, b.level-1); err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// readBlock returns a block with a valid checksum.
func (t *tree) readBlock(at blockHandle) (*parsedBlock, error) {
	if b := t.cache.get(at.offset); b != nil {
		return b, nil
	}
	raw := make([]byte, at.length)
	if _, err := t.r.ReadAt(raw, at.offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	b, err := parseBlock(raw, t.decoder)
	if err != nil {
		return nil, err
	}
	t.cache.put(at.offset, b)
	return b, nil
}

// visit visits the entries of a leaf.
func (b *parsedBlock) visit(q query) (more bool, err error) {
	if len(b.restartPoints) == 0 {
		return true, nil
	}
	m := b.restartPoints[b.searchStart(q)]
	c := cursor{remaining: b.entries[m.offset:], key: bytes.Clone(m.previousKey)}
	for c.next() {
		where := q.compare(c.key)
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

// childHandle is a block below another one.
type childHandle struct {
	blockHandle
	minOffset int64 // minimum offset of the blocks below it
}

// children returns those that may have matching entries. As a child is named by its first key, such
// an entry may be in the last one before it.
func (b *parsedBlock) children(q query, low, high int64) ([]childHandle, error) {
	var list []childHandle
	from := b.searchStart(q)
	for i, m := range b.restartPoints[max(0, from-1):] {
		p, ok := parseBlockHandle(m.value)
		if !ok || p.offset < low || p.offset > high-p.length {
			return nil, fmt.Errorf("%w: a block is outside of its tree", ErrDamaged)
		}
		if i > 0 || from == 0 {
			if q.compare(m.key) > 0 {
				return list, nil
			}
			list = append(list, childHandle{p, low})
		}
		low = p.offset + p.length
	}
	return list, nil
}
