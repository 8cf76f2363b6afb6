package udif

import (
	"bytes"
	"cmp"
	"compress/bzip2"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/buildyard/buildyard/internal/qcow2"
	"github.com/buildyard/buildyard/internal/scan/disk/chunked"
	"github.com/buildyard/buildyard/internal/scan/lzfse"
)

// Limits on what is read. hdiutil writes chunks of 256 KiB to 1 MiB.
const (
	maxChunks     = 1 << 20
	maxChunkBytes = 8 << 20 // of a compressed chunk, decoded
	storedSlack   = 1 << 16 // bytes by which a compressed chunk may exceed twice its decoded length
	cacheBytes    = 32 << 20
)

// Parts of a block table.
const (
	tableMagic       = "mish"
	tableHeaderBytes = 204
	tableEntryBytes  = 40
)

// Kinds of chunks.
const (
	kindZero    = 0x00000000
	kindRaw     = 0x00000001
	kindIgnore  = 0x00000002 // was not in use; reads as zeros
	kindADC     = 0x80000004
	kindZlib    = 0x80000005
	kindBzip2   = 0x80000006
	kindLZFSE   = 0x80000007
	kindXZ      = 0x80000008
	kindComment = 0x7ffffffe
	kindEnd     = 0xffffffff
)

// decoders decode the kinds of compressed chunks to at most the length of out, and return the number of bytes.
var decoders = map[uint32]func(out, packed []byte) (int, error){
	kindADC: decodeADC, kindZlib: chunked.Inflate, kindBzip2: decodeBzip2, kindLZFSE: lzfse.Decode, kindXZ: decodeXZ,
}

func decodeBzip2(out, packed []byte) (int, error) {
	return chunked.ReadToEnd(bzip2.NewReader(bytes.NewReader(packed)), out)
}

// chunk is a range of the disk.
type chunk struct {
	start, length int64 // on the disk, in bytes
	at            int64 // in the file
	stored        int64 // bytes in the file
	kind          uint32
}

func (c chunk) end() int64 { return c.start + c.length }

// image is a disk.
type image struct {
	file   io.ReaderAt
	size   int64
	chunks []chunk // by their start
	cache  *chunked.Cache[int]
}

var _ chunked.Source = (*image)(nil)

// Open opens the image r of size bytes, which must stay open while it is used.
func Open(r io.ReaderAt, size int64) (qcow2.Layer, error) {
	t, err := readTrailer(r, size)
	if err != nil {
		return nil, err
	}
	tables, err := t.readTables(r)
	if err != nil {
		return nil, err
	}
	i := &image{file: r, size: t.diskBytes, cache: chunked.NewCache[int](cacheBytes)}
	for _, table := range tables {
		if err := i.addTable(table, t.data.at, size); err != nil {
			return nil, err
		}
	}
	if len(i.chunks) == 0 {
		return nil, chunked.Damaged("its block tables have no chunks")
	}
	slices.SortFunc(i.chunks, func(a, b chunk) int { return cmp.Compare(a.start, b.start) })
	for k, c := range i.chunks[1:] {
		if c.start < i.chunks[k].end() {
			return nil, chunked.Damaged("two of its chunks overlap at %d", c.start)
		}
	}
	return chunked.Disk{Source: i}, nil
}

// addTable adds the chunks of a block table. Their bytes are behind data, in a file of size bytes.
func (i *image) addTable(table []byte, data, size int64) error {
	if len(table) < tableHeaderBytes || string(table[:4]) != tableMagic {
		return chunked.Damaged("a block table of %d bytes has no header", len(table))
	}
	be := binary.BigEndian
	first, count, offset := be.Uint64(table[8:]), be.Uint64(table[16:]), be.Uint64(table[24:])
	n, entries := int64(be.Uint32(table[200:])), table[tableHeaderBytes:]
	sectors := uint64(i.size / sectorBytes)
	switch {
	case n > int64(len(entries)/tableEntryBytes) || n > int64(maxChunks-len(i.chunks)):
		return chunked.Damaged("a block table of %d bytes has %d chunks", len(table), n)
	case first > sectors || count > sectors-first:
		return chunked.Damaged("a block table is for %d sectors at %d of %d", count, first, sectors)
	case offset > uint64(size-data):
		return chunked.Damaged("the data of a block table is at %d of a file of %d bytes", offset, size)
	}
	i.chunks = slices.Grow(i.chunks, int(n))
	for k := range n {
		e := entries[k*tableEntryBytes:]
		kind := be.Uint32(e)
		if kind == kindEnd {
			break
		}
		at, length := be.Uint64(e[8:]), be.Uint64(e[16:])
		if kind == kindComment || length == 0 {
			continue
		}
		if at > count || length > count-at {
			return chunked.Damaged("a chunk has %d sectors at %d of a part of %d", length, at, count)
		}
		c := chunk{start: int64(first+at) * sectorBytes, length: int64(length) * sectorBytes, kind: kind}
		if err := c.setStored(be.Uint64(e[24:]), be.Uint64(e[32:]), data+int64(offset), size); err != nil {
			return err
		}
		i.chunks = append(i.chunks, c)
	}
	return nil
}

// setStored sets where the bytes of a chunk are: n of them at an offset behind data, in a file of size bytes.
func (c *chunk) setStored(at, n uint64, data, size int64) error {
	if c.isZero() {
		return nil
	}
	if at > uint64(size-data) || n > uint64(size-data)-at {
		return chunked.Damaged("a chunk has %d bytes at %d of a file of %d", n, at, size)
	}
	c.at, c.stored = data+int64(at), int64(n)
	switch {
	case c.kind == kindRaw:
		if c.stored != c.length {
			return chunked.Damaged("a stored chunk has %d bytes instead of %d", c.stored, c.length)
		}
	case decoders[c.kind] == nil:
		return fmt.Errorf("its chunks of kind %#x cannot be read", c.kind)
	case c.length > maxChunkBytes || c.stored == 0 || c.stored > 2*c.length+storedSlack:
		return chunked.Damaged("a compressed chunk has %d bytes for %d", c.stored, c.length)
	}
	return nil
}

func (c *chunk) isZero() bool { return c.kind == kindZero || c.kind == kindIgnore }

// Size returns the size of the disk in bytes.
func (i *image) Size() int64 { return i.size }

// find returns the index of the last chunk that starts at or before off; -1 if all are behind.
func (i *image) find(off int64) int {
	return sort.Search(len(i.chunks), func(k int) bool { return i.chunks[k].start > off }) - 1
}

// Range returns the chunk at off, or the range of Data without a chunk, which cannot be read.
func (i *image) Range(off int64) (qcow2.Range, error) {
	k := i.find(off)
	r := qcow2.Range{Off: off, Kind: qcow2.Data}
	if k >= 0 && off < i.chunks[k].end() {
		r.Len = i.chunks[k].end() - off
		if i.chunks[k].isZero() {
			r.Kind = qcow2.Zero
		}
		return r, nil
	}
	r.Len = i.size - off
	if k+1 < len(i.chunks) {
		r.Len = i.chunks[k+1].start - off
	}
	return r, nil
}

// ReadRange reads from a chunk.
func (i *image) ReadRange(p []byte, off int64) error {
	k := i.find(off)
	if k < 0 || off >= i.chunks[k].end() {
		return chunked.Damaged("sector %d is in no chunk", off/sectorBytes)
	}
	c := i.chunks[k]
	if c.kind == kindRaw {
		return chunked.ReadFull(i.file, p, c.at+off-c.start, "a chunk")
	}
	data, err := i.cache.Get(k, func() ([]byte, error) { return c.decode(i.file) })
	if err == nil {
		copy(p, data[off-c.start:])
	}
	return err
}

// decode decodes a compressed chunk, which must have exactly its length.
func (c chunk) decode(file io.ReaderAt) ([]byte, error) {
	packed, out := make([]byte, c.stored), make([]byte, c.length)
	if err := chunked.ReadFull(file, packed, c.at, "a chunk"); err != nil {
		return nil, err
	}
	n, err := decoders[c.kind](out, packed)
	if err != nil {
		return nil, chunked.Damaged("the chunk of sector %d: %v", c.start/sectorBytes, err)
	}
	if int64(n) != c.length {
		return nil, chunked.Damaged("the chunk of sector %d has %d bytes instead of %d", c.start/sectorBytes, n,
			c.length)
	}
	return out, nil
}
