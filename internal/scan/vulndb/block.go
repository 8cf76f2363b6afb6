package vulndb

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sort"

	"github.com/klauspost/compress/zstd"
)

const (
	targetBlockBytes = 8 << 10 // of its entries, at which a block is closed
	// descriptionBlockBytes is that of descriptions: they are most of a file, and few are read.
	descriptionBlockBytes = 32 << 10
	maxEntryBytes         = 1 << 20 // bytes of the value of an entry
	maxKeyBytes           = 1 << 10
	maxBlockBytes         = targetBlockBytes + maxEntryBytes + maxKeyBytes + 64
	maxTreeHeight         = 8
)

// blockBuilder is one block of a tree: sorted entries, each key encoded by its difference from the one
// before it. A leaf has records; every other block names the blocks below it by their first keys.
// In the file a CRC-32C precedes it.
//
//	level   byte, 0 of a leaf; compressedBlock is added to it where the rest is a frame of Zstandard
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

// compressedBlock marks the level of a block whose entries are compressed, from schema 2 on.
const compressedBlock = 0x80

// finish returns the bytes for the file and empties the block. Leaves are compressed where that makes them smaller; the
// few blocks above them are read for every search.
func (b *blockBuilder) finish(z *zstd.Encoder) []byte {
	out := make([]byte, checksumSize, checksumSize+1+len(b.entries))
	out = append(out, byte(b.level))
	if b.level == 0 {
		out[checksumSize] |= compressedBlock
		out = z.EncodeAll(b.entries, out)
	}
	if b.level > 0 || len(out) >= checksumSize+1+len(b.entries) {
		out = append(append(out[:checksumSize], byte(b.level)), b.entries...)
	}
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

// newBlockEncoder returns what compresses blocks. Its results do not depend on what it compressed before.
func newBlockEncoder() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithWindowSize(maxEntryBytes))
}

// newBlockDecoder returns what decompresses blocks, to maxBlockBytes at most. It is safe for concurrent use.
func newBlockDecoder() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxBlockBytes), zstd.WithDecoderLowmem(true))
}

// parseBlock verifies the checksum of a block and removes it.
func parseBlock(b []byte, z *zstd.Decoder) (*parsedBlock, error) {
	if len(b) <= checksumSize || binary.LittleEndian.Uint32(b) != crc32.Checksum(b[checksumSize:], castagnoli) {
		return nil, fmt.Errorf("%w: checksum mismatch in a block", ErrDamaged)
	}
	s := &parsedBlock{level: int(b[checksumSize] &^ compressedBlock), entries: b[checksumSize+1:]}
	if b[checksumSize]&compressedBlock != 0 {
		var err error
		if s.entries, err = z.DecodeAll(s.entries, nil); err != nil {
			return nil, fmt.Errorf("%w: decompress a block: %w", ErrDamaged, err)
		}
	}
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
