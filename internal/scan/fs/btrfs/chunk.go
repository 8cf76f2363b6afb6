package btrfs

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
)

const (
	keySize      = 17
	chunkSize    = 48 // before the stripes
	stripeSize   = 32
	maxCopies    = 2
	maxChunks    = 1 << 17
	chunkTree    = 3
	chunkObjects = 256 // object of all chunks
	profileDUP   = 0x20
)

// profiles are the bits of the types of chunks that spread them over devices, and others that are not read.
var profiles = []struct {
	bit  uint64
	name string
}{
	{0x8, "RAID0"},
	{0x10, "RAID1"},
	{0x40, "RAID10"},
	{0x80, "RAID5"},
	{0x100, "RAID6"},
	{0x200, "RAID1C3"},
	{0x400, "RAID1C4"},
}

// chunk is a range of logical addresses.
type chunk struct {
	start, length uint64
	copies        int
	offsets       [maxCopies]int64 // on the device, in bytes
}

// chunkMap has the chunks in the order of their addresses.
type chunkMap []chunk

// parseChunk reads a chunk at a logical address, and returns how many bytes it has.
func (s *superblock) parseChunk(start uint64, b []byte) (chunk, int, error) {
	if len(b) < chunkSize+stripeSize {
		return chunk{}, 0, damaged("the chunk at %d has %d bytes", start, len(b))
	}
	c := chunk{start: start, length: le.Uint64(b), copies: int(le.Uint16(b[44:]))}
	kind, size := le.Uint64(b[24:]), chunkSize+c.copies*stripeSize
	for _, p := range profiles {
		if kind&p.bit != 0 {
			return c, 0, fmt.Errorf("%w: %s, and only chunks with one or two copies on one device are read",
				ErrUnsupported, p.name)
		}
	}
	want := 1
	if kind&profileDUP != 0 {
		want = 2
	}
	aligned := uint64(s.sectorSize - 1)
	switch {
	case c.copies != want:
		return c, 0, damaged("the chunk at %d has %d copies instead of %d", start, c.copies, want)
	case size > len(b):
		return c, 0, damaged("the chunk at %d has %d bytes of %d", start, len(b), size)
	case c.length == 0 || c.length > 1<<62 || start > 1<<62 || (start|c.length)&aligned != 0:
		return c, 0, damaged("the chunk at %d has the length %d", start, c.length)
	}
	for k := range c.copies {
		stripe := b[chunkSize+k*stripeSize:]
		offset := le.Uint64(stripe[8:])
		if device := le.Uint64(stripe); device != s.device {
			return c, 0, fmt.Errorf("%w: the chunk at %d is on device %d, and this is device %d", ErrUnsupported, start,
				device, s.device)
		}
		if offset > 1<<62 || offset&aligned != 0 {
			return c, 0, damaged("the chunk at %d is at byte %d of the device", start, offset)
		}
		c.offsets[k] = int64(offset)
	}
	return c, size, nil
}

// newChunkMap sorts chunks, which must not overlap.
func newChunkMap(list []chunk) (chunkMap, error) {
	slices.SortFunc(list, func(a, b chunk) int { return cmp.Compare(a.start, b.start) })
	for k := 1; k < len(list); k++ {
		if list[k-1].start+list[k-1].length > list[k].start {
			return nil, damaged("the chunks at %d and %d overlap", list[k-1].start, list[k].start)
		}
	}
	return list, nil
}

// systemChunkMap returns the chunks in the superblock, which have the chunk tree.
func (s *superblock) systemChunkMap() (chunkMap, error) {
	var list []chunk
	for b := s.systemChunks[:s.systemChunksLength]; len(b) > 0; {
		if len(b) < keySize {
			return nil, damaged("a chunk of %d bytes in its superblock", len(b))
		}
		k := parseKey(b)
		if k.kind != kindChunk {
			return nil, damaged("an item of type %d in the chunks of its superblock", k.kind)
		}
		c, size, err := s.parseChunk(k.offset, b[keySize:])
		if err != nil {
			return nil, err
		}
		list = append(list, c)
		b = b[keySize+size:]
	}
	return newChunkMap(list)
}

// find returns the offsets on the device of all copies of a number of bytes.
func (m chunkMap) find(address, count uint64) (offsets [maxCopies]int64, copies int, err error) {
	k := sort.Search(len(m), func(k int) bool { return m[k].start > address }) - 1
	if k < 0 || address-m[k].start >= m[k].length || count > m[k].length-(address-m[k].start) {
		return offsets, 0, damaged("it refers to the logical address %d, which is in no chunk", address)
	}
	c := m[k]
	for i := range c.copies {
		offsets[i] = c.offsets[i] + int64(address-c.start)
	}
	return offsets, c.copies, nil
}

// readChunks reads the chunk tree through the chunks that are in the superblock.
func (d *device) readChunks() error {
	var err error
	if d.chunks, err = d.superblock.systemChunkMap(); err != nil {
		return err
	}
	var list []chunk
	c, err := d.seek(d.superblock.chunks, key{chunkObjects, kindChunk, 0})
	for ; err == nil && c.valid(); err = c.next() {
		k := c.key()
		if k.object != chunkObjects || k.kind != kindChunk {
			break
		}
		if len(list) == maxChunks {
			return fmt.Errorf("%w: more than %d chunks", ErrUnsupported, maxChunks)
		}
		one, _, err := d.superblock.parseChunk(k.offset, c.data())
		if err != nil {
			return err
		}
		list = append(list, one)
	}
	if err != nil {
		return fmt.Errorf("chunk tree: %w", err)
	}
	d.chunks, err = newChunkMap(list)
	return err
}
