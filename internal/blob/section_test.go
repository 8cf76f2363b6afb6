package blob

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"
)

// directory makes a block of a directory of ext4 whose inodes begin with a number.
func directory(first uint32) []byte {
	block := make([]byte, BlockSize)
	entry := func(at, n int, inode uint32, kind byte, name string) {
		binary.LittleEndian.PutUint32(block[at:], inode)
		binary.LittleEndian.PutUint16(block[at+4:], uint16(n))
		block[at+6], block[at+7] = byte(len(name)), kind
		copy(block[at+8:], name)
	}
	const entries, end = 60, BlockSize - extTailBytes
	for i := range entries {
		n := 32
		if i == entries-1 {
			n = end - i*n
		}
		entry(i*32, n, first|1+uint32(i), 1, fmt.Sprintf("file-%d", i))
	}
	entry(end, extTailBytes, 0, extTailType, "")
	return block
}

// prose makes text that compresses as source code does.
func prose(seed uint64, length int) []byte {
	rnd := rand.New(rand.NewPCG(seed, 7))
	words := make([]string, 3000)
	for i := range words {
		words[i] = fmt.Sprintf("%x", rnd.Uint64()>>rnd.IntN(56))
	}
	var b bytes.Buffer
	for b.Len() < length {
		b.WriteString(words[min(rnd.IntN(len(words)), rnd.IntN(len(words)))])
		b.WriteByte(' ')
	}
	return b.Bytes()[:length]
}

// decodedBytes counts the bytes of the cached frames that were decoded.
func (c *FrameCache) decodedBytes() (n int) {
	for e := c.lru.Front(); e != nil; e = e.Next() {
		f, begin := e.Value.(*cachedFrame), 0
		if f.sections == nil {
			n += len(f.raw)
		}
		for i, s := range f.sections {
			if f.decoded[i] {
				n += s.end - begin
			}
			begin = s.end
		}
	}
	return n
}

// TestDirectoriesAreDecodedAlone: reading the directories of a disk decodes little else, and programs that know no
// sections read the same bytes.
func TestDirectoriesAreDecodedAlone(t *testing.T) {
	const size, stride = 16 << 20, 400 << 10
	data, dirs := prose(1, size), []int64(nil)
	for off := int64(0); off < size; off += stride {
		for _, at := range []int64{off, off + BlockSize, off + 5*BlockSize} {
			copy(data[at:], directory(uint32(at)))
			dirs = append(dirs, at)
		}
	}
	file, x := encode(t, KindDisk, data, 1)
	if other, _ := encode(t, KindDisk, data, 4); !bytes.Equal(file, other) {
		t.Error("the layer depends on the number of workers")
	}
	c, err := OpenChain(&Layer{src: bytes.NewReader(file), index: x})
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, BlockSize)
	for _, at := range dirs {
		if _, err := c.ReadAt(buf, at); err != nil || !bytes.Equal(buf, data[at:at+BlockSize]) {
			t.Fatalf("directory at %d: %v", at, err)
		}
	}
	decoded := c.frameCache.decodedBytes()
	t.Logf("decoded %d KiB for %d KiB of directories in %d frames", decoded>>10, len(dirs)*BlockSize>>10,
		c.frameCache.lru.Len())
	if want := size / 12; decoded > want || c.frameCache.lru.Len() != size/MaxFrameSize {
		t.Errorf("decoded %d bytes of %d frames, want at most %d", decoded, c.frameCache.lru.Len(), want)
	}
	all := make([]byte, size)
	if _, err := c.ReadAt(all, 0); err != nil || !bytes.Equal(all, data) {
		t.Errorf("the disk differs: %v", err)
	}
	for e := c.frameCache.lru.Front(); e != nil; e = e.Next() {
		if e.Value.(*cachedFrame).stored != nil {
			t.Error("the stored bytes of a decoded frame are kept")
		}
	}
	old, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(MaxFrameSize))
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	for i := range x.FrameCount() {
		f := x.Frame(i)
		raw, err := old.DecodeAll(file[f.Offset:f.Offset+int64(f.StoredSize)], make([]byte, 0, f.RawSize))
		if at := int64(i) * MaxFrameSize; err != nil || !bytes.Equal(raw, data[at:at+int64(len(raw))]) ||
			len(raw) != f.RawSize {
			t.Errorf("frame %d as a whole: %v", i, err)
		}
	}
}

// TestSectionsOfManyReaders: readers of the same frames, of which few are cached, get the bytes of the disk.
func TestSectionsOfManyReaders(t *testing.T) {
	const size, readers = 6 << 20, 8
	data := prose(8, size)
	for off := 0; off < size; off += 200 << 10 {
		copy(data[off:], directory(uint32(off)))
	}
	file, x := encode(t, KindDisk, data, 1)
	c, err := NewFrameCache(2).OpenChain(&Layer{src: bytes.NewReader(file), index: x})
	if err != nil {
		t.Fatal(err)
	}
	var group errgroup.Group
	for n := range readers {
		group.Go(func() error {
			rnd := rand.New(rand.NewPCG(9, uint64(n)))
			buf := make([]byte, 300<<10)
			for range 60 {
				p, off := buf[:1+rnd.IntN(len(buf))], rnd.Int64N(size-int64(len(buf)))
				_, err := c.ReadAt(p, off)
				if err == nil && !bytes.Equal(p, data[off:off+int64(len(p))]) {
					err = errors.New("other bytes")
				}
				if err != nil {
					return fmt.Errorf("read %d bytes at %d: %w", len(p), off, err)
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestSectionEnds: sections are few, in whole blocks, and blocks of metadata are not with long content.
func TestSectionEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		blocks := rapid.IntRange(0, MaxFrameSize/BlockSize).Draw(t, "blocks")
		raw := make([]byte, blocks*BlockSize, (blocks+1)*BlockSize)
		if blocks < MaxFrameSize/BlockSize {
			raw = raw[:len(raw)+rapid.IntRange(0, BlockSize-1).Draw(t, "rest")]
		}
		every := rapid.IntRange(1, 40).Draw(t, "every")
		metadata := make([]bool, blocks+1)
		for k := rapid.IntRange(0, 80).Draw(t, "first"); k < blocks; k += rapid.IntRange(1, every).Draw(t, "gap") {
			metadata[k] = true
			copy(raw[k*BlockSize:], directory(uint32(k)))
		}
		begin := 0
		ends := sectionEnds(raw)
		if len(ends)+1 > maxSections {
			t.Fatalf("%d sections", len(ends)+1)
		}
		if len(ends) == 0 {
			return
		}
		for i, end := range append(ends, len(raw)) {
			if end <= begin || end%BlockSize != 0 && end != len(raw) {
				t.Fatalf("sections end at %d", ends)
			}
			in := metadata[begin/BlockSize : (end+BlockSize-1)/BlockSize]
			gap, longest := 0, 0
			for _, is := range in {
				if gap++; is {
					gap = 0
				}
				longest = max(longest, gap)
			}
			if slices.Contains(in, true) && longest > maxSectionGap+1 {
				t.Fatalf("section %d has metadata, and %d blocks without", i, longest)
			}
			begin = end
		}
	})
}

// zframe makes a zstd frame.
func zframe(t testing.TB, data []byte, o ...zstd.EOption) []byte {
	t.Helper()
	enc, err := zstd.NewWriter(nil, append([]zstd.EOption{zstd.WithEncoderCRC(false)}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	return enc.EncodeAll(data, nil)
}

// TestParseSections: what is not simply several zstd frames is decoded as a whole.
func TestParseSections(t *testing.T) {
	data := prose(2, 5*BlockSize)
	one := zframe(t, data)
	skippable := append([]byte{0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0}, "skip"...)
	repeated := zframe(t, make([]byte, len(data)))
	for name, c := range map[string]struct {
		stored  []byte
		decoded int
		want    int
	}{
		"one":           {one, len(data), 0},
		"two":           {slices.Concat(one, one), 2 * len(data), 2},
		"repeated byte": {slices.Concat(repeated, one), 2 * len(data), 2},
		"most":          {bytes.Repeat(one, maxSections), maxSections * len(data), maxSections},
		"too many":      {bytes.Repeat(one, maxSections+1), (maxSections + 1) * len(data), 0},
		"shorter":       {slices.Concat(one, one), 2*len(data) + 1, 0},
		"longer":        {slices.Concat(one, one), 2*len(data) - 1, 0},
		"skippable":     {slices.Concat(one, skippable, one), 2 * len(data), 0},
		"checksum":      {slices.Concat(one, zframe(t, data, zstd.WithEncoderCRC(true))), 2 * len(data), 0},
		"empty":         {slices.Concat(one, zframe(t, nil, zstd.WithZeroFrames(true)), one), 2 * len(data), 0},
		"cut":           {slices.Concat(one, one[:len(one)-1]), 2 * len(data), 0},
		"cut header":    {slices.Concat(one, one[:5]), 2 * len(data), 0},
		"something":     {slices.Concat(one, []byte("more")), 2 * len(data), 0},
		"nothing":       {nil, 0, 0},
	} {
		if got := parseSections(c.stored, c.decoded); len(got) != c.want {
			t.Errorf("%s: %d sections, want %d", name, len(got), c.want)
		}
	}
}

// TestDamagedSection: sections decode to the same bytes as the whole frame, or the frame does not decode.
func TestDamagedSection(t *testing.T) {
	data := prose(3, 40*BlockSize)
	stored := slices.Concat(zframe(t, data[:9*BlockSize]), zframe(t, data[9*BlockSize:12*BlockSize]),
		zframe(t, data[12*BlockSize:]))
	rnd := rand.New(rand.NewPCG(4, 5))
	var refused int
	for range 300 {
		damaged := bytes.Clone(stored)
		for range rnd.IntN(3) {
			damaged[rnd.IntN(len(damaged))] ^= byte(1 << rnd.IntN(8))
		}
		f := Frame{RawSize: len(data), Codec: CodecZstd}
		whole, wholeErr := decodeVerified(f, damaged, nil)
		pooled := append(make([]byte, 0, MaxFrameSize), damaged...) // it goes to storedFramePool
		b := frameBytes{
			raw: make([]byte, rawFrameBytes), stored: &pooled, sections: parseSections(damaged, len(data)),
		}
		b.left = len(b.sections)
		if b.sections == nil {
			continue
		}
		got := make([]byte, len(data))
		err := b.readAt(got, 0)
		if (err == nil) != (wholeErr == nil) || err == nil && !bytes.Equal(got, whole) {
			t.Fatalf("sections: %v, whole frame: %v", err, wholeErr)
		}
		if err != nil {
			refused++
			if !strings.Contains(err.Error(), "section") {
				t.Fatal(err)
			}
		}
	}
	if refused == 0 {
		t.Error("no damaged section was refused")
	}
}

// TestIsMetadata tells blocks of file systems from others.
func TestIsMetadata(t *testing.T) {
	node := func(kind, subtype uint32, flags, level uint16, records uint32) []byte {
		block := make([]byte, BlockSize)
		binary.LittleEndian.PutUint32(block[24:], kind)
		binary.LittleEndian.PutUint32(block[28:], subtype)
		binary.LittleEndian.PutUint16(block[32:], flags)
		binary.LittleEndian.PutUint16(block[34:], level)
		binary.LittleEndian.PutUint32(block[36:], records)
		return block
	}
	edited := func(at int, value byte) []byte {
		block := directory(1 << 20)
		block[at] = value
		return block
	}
	for name, c := range map[string]struct {
		block []byte
		want  bool
	}{
		"directory":              {directory(1 << 20), true},
		"directory, entry freed": {edited(2, 0), true},
		"name too long":          {edited(6, 200), false},
		"entry too short":        {edited(4, 4), false},
		"entry not aligned":      {edited(4, 34), false},
		"unknown type of file":   {edited(7, 9), false},
		"no name":                {edited(6, 0), false},
		"entry past the end":     {edited(5, 0xff), false},
		"zeros":                  {make([]byte, BlockSize), false},
		"text":                   {prose(6, BlockSize), false},
		"leaf of files":          {node(apfsNode, apfsFSTree, 2, 0, 30), true},
		"root of files":          {node(apfsRoot, apfsFSTree, 1, 2, 30), true},
		"object map":             {node(0x40000000|apfsRoot, apfsOmap, 1, 2, 30), true},
		"ephemeral":              {node(0x80000000|apfsNode, apfsFSTree, 2, 0, 30), false},
		"another object":         {node(0xd, apfsFSTree, 2, 0, 30), false},
		"another tree":           {node(apfsNode, 0x10, 2, 0, 30), false},
		"no records":             {node(apfsNode, apfsFSTree, 2, 0, 0), false},
		"too many records":       {node(apfsNode, apfsFSTree, 2, 0, 1025), false},
		"too high":               {node(apfsNode, apfsFSTree, 0, 16, 3), false},
		"unknown flags":          {node(apfsNode, apfsFSTree, 8, 0, 3), false},
	} {
		if got := isMetadata(c.block); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
