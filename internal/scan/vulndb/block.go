package vulndb

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sort"
)

const (
	blockSize  = 8 << 10 // at which a block is closed
	entryLimit = 1 << 20 // bytes of the value of an entry
	keyLimit   = 1 << 10
	blockLimit = blockSize + entryLimit + keyLimit + 64
	maxHeight  = 8
)

// block is one block of a tree: sorted entries, each key encoded by its difference from the one
// before it. A leaf has records; every other block names the blocks below it by their first keys.
// In the file a CRC-32C precedes it.
//
//	level   byte, 0 of a leaf
//	entries until its end: shared, rest, value, each length a varint
type block struct {
	level   int
	entries []byte
	last    []byte // the key before the one to come
	count   int
}

func (b *block) add(key, value []byte) {
	n := shared(string(b.last), string(key))
	b.entries = binary.AppendUvarint(b.entries, uint64(n))
	b.entries = binary.AppendUvarint(b.entries, uint64(len(key)-n))
	b.entries = append(b.entries, key[n:]...)
	b.entries = binary.AppendUvarint(b.entries, uint64(len(value)))
	b.entries = append(b.entries, value...)
	b.last = append(b.last[:0], key...)
	b.count++
}

// seal returns the bytes for the file and empties the block.
func (b *block) seal() []byte {
	out := make([]byte, checksumSize, checksumSize+1+len(b.entries))
	out = append(out, byte(b.level))
	out = append(out, b.entries...)
	binary.LittleEndian.PutUint32(out, crc32.Checksum(out[checksumSize:], castagnoli))
	b.entries, b.last, b.count = b.entries[:0], b.last[:0], 0
	return out
}

// sealed is a block read from the file. It is immutable.
type sealed struct {
	level   int
	entries []byte
	marks   []restartPoint // of some entries, so that a search need not read all before
}

// restartPoint is an entry at which a search can begin.
type restartPoint struct {
	at     int    // in entries
	before []byte // the key of the entry before it, nil of the first
	key    []byte
	value  []byte
}

// markEvery is the number of leaf entries between two restart points. In other blocks each entry
// has one, since they are few and every search uses them.
const markEvery = 16

// markCost is about how many bytes a restart point takes.
const markCost = 128

// unseal verifies the checksum of a block and removes it.
func unseal(b []byte) (*sealed, error) {
	if len(b) <= checksumSize || binary.LittleEndian.Uint32(b) != crc32.Checksum(b[checksumSize:], castagnoli) {
		return nil, fmt.Errorf("%w: the checksum of a block is wrong", ErrDamaged)
	}
	s := &sealed{level: int(b[checksumSize]), entries: b[checksumSize+1:]}
	return s, s.mark()
}

// mark reads all entries once and records restart points.
func (b *sealed) mark() error {
	every := markEvery
	if b.level > 0 {
		every = 1
	}
	c := cursor{rest: b.entries}
	var before []byte
	for i := 0; ; i++ {
		at := len(b.entries) - len(c.rest)
		if !c.next() {
			return c.err
		}
		if i%every == 0 {
			b.marks = append(b.marks, restartPoint{at, before, bytes.Clone(c.key), c.value})
		}
		if (i+1)%every == 0 {
			before = bytes.Clone(c.key)
		}
	}
}

// cost returns about how many bytes a block takes in memory.
func (b *sealed) cost() int { return len(b.entries) + len(b.marks)*markCost }

// from returns the last restart point without a matching entry before it, 0 when there is none.
func (b *sealed) from(q query) int {
	return max(0, sort.Search(len(b.marks), func(i int) bool { return q.where(b.marks[i].key) >= 0 })-1)
}

// cursor iterates over the entries of a block.
type cursor struct {
	rest       []byte
	key, value []byte // key is overwritten by next
	err        error
}

// next returns false after the last entry, and when the block is damaged.
func (c *cursor) next() bool {
	if c.err != nil || len(c.rest) == 0 {
		return false
	}
	first := c.key == nil
	n, ok1 := c.number()
	rest, ok2 := c.take()
	if !ok1 || !ok2 || n > len(c.key) || n+len(rest) > keyLimit {
		return c.damaged("an entry has a wrong key")
	}
	if !first && bytes.Compare(rest, c.key[n:]) <= 0 {
		return c.damaged("its entries are not in order")
	}
	c.key = append(c.key[:n], rest...)
	if first && c.key == nil {
		c.key = []byte{}
	}
	var ok bool
	if c.value, ok = c.take(); !ok || len(c.value) > entryLimit {
		return c.damaged("an entry is cut off")
	}
	return true
}

func (c *cursor) damaged(what string) bool {
	c.err = fmt.Errorf("%w: in a block %s", ErrDamaged, what)
	return false
}

func (c *cursor) number() (int, bool) {
	v, n := binary.Uvarint(c.rest)
	if n <= 0 || v > blockLimit {
		return 0, false
	}
	c.rest = c.rest[n:]
	return int(v), true
}

func (c *cursor) take() ([]byte, bool) {
	n, ok := c.number()
	if !ok || n > len(c.rest) {
		return nil, false
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b, true
}

// blockHandle is the location of a block in the file.
type blockHandle struct{ at, length int64 }

func (p blockHandle) marshal() []byte {
	return binary.AppendUvarint(binary.AppendUvarint(nil, uint64(p.at)), uint64(p.length))
}

func parseBlockHandle(b []byte) (blockHandle, bool) {
	at, n := binary.Uvarint(b)
	if n <= 0 {
		return blockHandle{}, false
	}
	length, m := binary.Uvarint(b[n:])
	if m <= 0 || at > 1<<62 || length > blockLimit || length <= checksumSize {
		return blockHandle{}, false
	}
	return blockHandle{int64(at), int64(length)}, true
}
