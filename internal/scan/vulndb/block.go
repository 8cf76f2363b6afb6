package vulndb

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sort"
)

const (
	targetBlockBytes = 8 << 10 // at which a block is closed
	maxEntryBytes    = 1 << 20 // bytes of the value of an entry
	maxKeyBytes      = 1 << 10
	maxBlockBytes    = targetBlockBytes + maxEntryBytes + maxKeyBytes + 64
	maxTreeHeight    = 8
)

// blockBuilder is one block of a tree: sorted entries, each key encoded by its difference from the one
// before it. A leaf has records; every other block names the blocks below it by their first keys.
// In the file a CRC-32C precedes it.
//
//	level   byte, 0 of a leaf
//	entries until its end: shared, rest, value, each length a varint
type blockBuilder struct {
	level      int
	entries    []byte
	lastKey    []byte // the key before the one to come
	entryCount int
}

func (b *blockBuilder) add(key, value []byte) {
	n := commonPrefixLen(string(b.lastKey), string(key))
	b.entries = binary.AppendUvarint(b.entries, uint64(n))
	b.entries = binary.AppendUvarint(b.entries, uint64(len(key)-n))
	b.entries = append(b.entries, key[n:]...)
	b.entries = binary.AppendUvarint(b.entries, uint64(len(value)))
	b.entries = append(b.entries, value...)
	b.lastKey = append(b.lastKey[:0], key...)
	b.entryCount++
}

// finish returns the bytes for the file and empties the block.
func (b *blockBuilder) finish() []byte {
	out := make([]byte, checksumSize, checksumSize+1+len(b.entries))
	out = append(out, byte(b.level))
	out = append(out, b.entries...)
	binary.LittleEndian.PutUint32(out, crc32.Checksum(out[checksumSize:], castagnoli))
	b.entries, b.lastKey, b.entryCount = b.entries[:0], b.lastKey[:0], 0
	return out
}

// parsedBlock is a block read from the file. It is immutable.
type parsedBlock struct {
	level         int
	entries       []byte
	restartPoints []restartPoint // of some entries, so that a search need not read all before
}

// restartPoint is an entry at which a search can begin.
type restartPoint struct {
	offset      int    // in entries
	previousKey []byte // the key of the entry before it, nil of the first
	key         []byte
	value       []byte
}

// restartInterval is the number of leaf entries between two restart points. In other blocks each entry
// has one, since they are few and every search uses them.
const restartInterval = 16

// restartPointBytes is about how many bytes a restart point takes.
const restartPointBytes = 128

// parseBlock verifies the checksum of a block and removes it.
func parseBlock(b []byte) (*parsedBlock, error) {
	if len(b) <= checksumSize || binary.LittleEndian.Uint32(b) != crc32.Checksum(b[checksumSize:], castagnoli) {
		return nil, fmt.Errorf("%w: checksum mismatch in a block", ErrDamaged)
	}
	s := &parsedBlock{level: int(b[checksumSize]), entries: b[checksumSize+1:]}
	return s, s.findRestartPoints()
}

// findRestartPoints reads all entries once and records restart points.
func (b *parsedBlock) findRestartPoints() error {
	every := restartInterval
	if b.level > 0 {
		every = 1
	}
	c := cursor{remaining: b.entries}
	var before []byte
	for i := 0; ; i++ {
		at := len(b.entries) - len(c.remaining)
		if !c.next() {
			return c.err
		}
		if i%every == 0 {
			b.restartPoints = append(b.restartPoints, restartPoint{at, before, bytes.Clone(c.key), c.value})
		}
		if (i+1)%every == 0 {
			before = bytes.Clone(c.key)
		}
	}
}

// memoryBytes returns about how many bytes a block takes in memory.
func (b *parsedBlock) memoryBytes() int {
	return len(b.entries) + len(b.restartPoints)*restartPointBytes
}

// searchStart returns the last restart point without a matching entry before it, 0 when there is none.
func (b *parsedBlock) searchStart(q query) int {
	return max(0,
		sort.Search(len(b.restartPoints), func(i int) bool { return q.compare(b.restartPoints[i].key) >= 0 })-1)
}

// cursor iterates over the entries of a block.
type cursor struct {
	remaining  []byte
	key, value []byte // key is overwritten by next
	err        error
}

// next returns false after the last entry, and when the block is damaged.
func (c *cursor) next() bool {
	if c.err != nil || len(c.remaining) == 0 {
		return false
	}
	first := c.key == nil
	n, ok1 := c.readUint()
	rest, ok2 := c.readBytes()
	if !ok1 || !ok2 || n > len(c.key) || n+len(rest) > maxKeyBytes {
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
	if c.value, ok = c.readBytes(); !ok || len(c.value) > maxEntryBytes {
		return c.damaged("an entry is cut off")
	}
	return true
}

func (c *cursor) damaged(what string) bool {
	c.err = fmt.Errorf("%w: in a block %s", ErrDamaged, what)
	return false
}

func (c *cursor) readUint() (int, bool) {
	v, n := binary.Uvarint(c.remaining)
	if n <= 0 || v > maxBlockBytes {
		return 0, false
	}
	c.remaining = c.remaining[n:]
	return int(v), true
}

func (c *cursor) readBytes() ([]byte, bool) {
	n, ok := c.readUint()
	if !ok || n > len(c.remaining) {
		return nil, false
	}
	b := c.remaining[:n:n]
	c.remaining = c.remaining[n:]
	return b, true
}

// blockHandle is the location of a block in the file.
type blockHandle struct{ offset, length int64 }

func (p blockHandle) marshal() []byte {
	return binary.AppendUvarint(binary.AppendUvarint(nil, uint64(p.offset)), uint64(p.length))
}

func parseBlockHandle(b []byte) (blockHandle, bool) {
	at, n := binary.Uvarint(b)
	if n <= 0 {
		return blockHandle{}, false
	}
	length, m := binary.Uvarint(b[n:])
	if m <= 0 || at > 1<<62 || length > maxBlockBytes || length <= checksumSize {
		return blockHandle{}, false
	}
	return blockHandle{int64(at), int64(length)}, true
}
