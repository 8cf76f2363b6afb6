package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// patches is a disk with changes; it implements Changes.
type patches struct {
	*bytes.Reader
	list []Change
}

func (p patches) NextChange(off int64) (Change, bool, error) {
	for _, c := range p.list {
		if c.Off+c.Len > off {
			return c, true, nil
		}
	}
	return Change{}, false, nil
}

// draw makes the next version of a disk: another size, and changed blocks in order.
func draw(t *rapid.T, disk []byte) ([]byte, []Change) {
	size := len(disk)
	if rapid.Bool().Draw(t, "resize") {
		size = rapid.IntRange(0, 40*BlockSize).Draw(t, "size")
	}
	next := make([]byte, size)
	copy(next, disk)
	var list []Change
	for at := 0; at < size; {
		at += rapid.IntRange(0, 12).Draw(t, "gap") * BlockSize
		n := min(rapid.IntRange(1, 5).Draw(t, "blocks")*BlockSize, size-at)
		if n <= 0 {
			break
		}
		c := Change{Off: int64(at), Len: int64(n), Kind: ChangeKind(rapid.IntRange(0, 2).Draw(t, "kind"))}
		part := next[at : at+n]
		clear(part)
		if c.Kind == ChangeData {
			for i := 0; i < n; i += 1 + rapid.IntRange(0, 3).Draw(t, "sparse")*BlockSize {
				part[i] = byte(1 + rapid.IntRange(0, 254).Draw(t, "byte"))
				if i > 2*BlockSize {
					break
				}
			}
		}
		list = append(list, c)
		at += n
	}
	return next, list
}

// sparse is a Source that reports its blocks of zeros as holes.
type sparse struct {
	*bytes.Reader
	disk []byte
}

func (s sparse) NextData(off int64) (start, end int64, err error) {
	hole := func(at int64) bool { return isBlank(s.disk[at:min(at+BlockSize, s.Size())]) }
	for start = off / BlockSize * BlockSize; start < s.Size() && hole(start); start += BlockSize {
	}
	for end = start; end < s.Size() && !hole(end); end += BlockSize {
	}
	return max(start, off), min(end, s.Size()), nil
}

func drawSource(t *rapid.T, disk []byte) Source {
	if rapid.Bool().Draw(t, "holes") {
		return sparse{bytes.NewReader(disk), disk}
	}
	return memory{bytes.NewReader(disk)}
}

// layerFile collects what an encoding makes.
func layerFile(t tester, encode func(FrameSink) (*Index, error)) *Layer {
	t.Helper()
	var file bytes.Buffer
	x, err := encode(func(_ Frame, _ int64, stored []byte) error {
		file.Write(stored)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	file.Write(x.IndexAndFooter())
	l, err := OpenLayer(bytes.NewReader(file.Bytes()), int64(file.Len()), x.Digest())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func whole(t tester, disk []byte, o EncodeOptions) *Layer {
	o.Kind, o.Size = KindDisk, int64(len(disk))
	return layerFile(t, func(s FrameSink) (*Index, error) {
		return Encode(context.Background(), memory{bytes.NewReader(disk)}, o, s)
	})
}

func changed(t tester, src Changes, size int, parent Digest) *Layer {
	return layerFile(t, func(s FrameSink) (*Index, error) {
		return EncodeChanges(context.Background(), src,
			EncodeOptions{Kind: KindDisk, Size: int64(size), Parent: parent}, s)
	})
}

// content reads a whole chain.
func content(t tester, layers []*Layer) []byte {
	t.Helper()
	c, err := OpenChain(layers...)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(io.NewSectionReader(c, 0, c.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// apply changes existing content like a pull does.
func apply(t tester, layers []*Layer, there []byte, held int) ([]byte, *FetchPlan) {
	t.Helper()
	p, err := NewFetchPlan(indexes(layers), held)
	if err != nil {
		t.Fatal(err)
	}
	disk := make([]byte, p.DiskSize())
	copy(disk, there)
	for z := range p.ZeroRuns() {
		if first, end := z.Off/BlockSize*BlockSize,
			min(blockCount(z.Off+z.Len)*BlockSize, int64(len(there))); isBlank(there[first:end]) {
			t.Fatalf("%+v is zero already", z)
		}
		clear(disk[z.Off : z.Off+z.Len])
	}
	var s FrameBuffer
	var stored int64
	for i := range p.FrameCount() {
		layer, frame := p.FramePosition(i)
		if layer < held {
			t.Fatalf("frame of layer %d, %d are there", layer, held)
		}
		raw, err := layers[layer].ReadFrame(frame, &s)
		if err != nil {
			t.Fatal(err)
		}
		n := int64(0)
		for e := range p.Placements(i) {
			copy(disk[e.DiskOff:e.DiskOff+e.Len], raw[e.FrameOff:])
			n += e.Len
		}
		if n == 0 {
			t.Fatalf("frame %d of layer %d is planned and not needed", frame, layer)
		}
		stored += int64(layers[layer].Index().Frame(frame).StoredSize)
	}
	if stored != p.FetchBytes() {
		t.Fatalf("%d bytes stored, the plan says %d", stored, p.FetchBytes())
	}
	return disk, p
}

func indexes(layers []*Layer) []*Index {
	list := make([]*Index, len(layers))
	for i, l := range layers {
		list[i] = l.Index()
	}
	return list
}

func isBlank(p []byte) bool { return len(bytes.Trim(p, "\x00")) == 0 }

// TestChain compares chains of random changes and sizes with plain byte slices: the results of ReadAt, of pulls
// onto every existing content, and of squashes.
func TestChain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		disk, _ := draw(t, nil)
		disks := [][]byte{nil, disk}
		layers := []*Layer{whole(t, disk, EncodeOptions{})}
		for range rapid.IntRange(0, 6).Draw(t, "layers") {
			parent := layers[len(layers)-1].Index().ChainID()
			next, list := draw(t, disk)
			if rapid.Bool().Draw(t, "compare") {
				src := Compare(drawSource(t, next), drawSource(t, disk), int64(len(next)))
				layers = append(layers, changed(t, src, len(next), parent))
			} else {
				layers = append(layers, changed(t, patches{bytes.NewReader(next), list}, len(next), parent))
			}
			disk = next
			disks = append(disks, disk)
		}
		checkReads(t, layers, disk)
		for held := range disks {
			if got, _ := apply(t, layers, disks[held], held); !bytes.Equal(got, disk) {
				t.Fatalf("with %d of %d layers there another disk is made", held, len(layers))
			}
		}
		one := consolidated(t, layers)
		if !bytes.Equal(content(t, []*Layer{one}), disk) {
			t.Fatal("the layer that stands for the chain holds another disk")
		}
		if want := whole(t, disk,
			EncodeOptions{Squashes: one.Index().ChainID()}); want.Index().Digest() != one.Index().Digest() {
			t.Fatal("the layer that stands for the chain is another than that of its disk")
		}
		next, list := draw(t, disk)
		above := changed(t, patches{bytes.NewReader(next), list}, len(next), layers[len(layers)-1].Index().ChainID())
		if !bytes.Equal(content(t, []*Layer{one, above}), next) {
			t.Fatal("a layer on the one that stands for the chain makes another disk")
		}
	})
}

// consolidated makes one layer of a chain.
func consolidated(t tester, layers []*Layer) *Layer {
	c, err := OpenChain(layers...)
	if err != nil {
		t.Fatal(err)
	}
	l := layerFile(t, func(s FrameSink) (*Index, error) {
		return Encode(context.Background(), c, EncodeOptions{Kind: KindDisk, Size: c.Size(), Squashes: c.ChainID()}, s)
	})
	if l.Index().ChainID() != c.ChainID() || l.Index().Digest() == c.ChainID() {
		t.Fatal("the layer does not stand for the chain")
	}
	return l
}

func checkReads(t *rapid.T, layers []*Layer, disk []byte) {
	c, err := OpenChain(layers...)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		off := rapid.IntRange(0, len(disk)+10).Draw(t, "off")
		buf := bytes.Repeat([]byte{0xee}, rapid.IntRange(0, len(disk)+10).Draw(t, "len"))
		n, err := c.ReadAt(buf, int64(off))
		want := disk[min(off, len(disk)):min(off+len(buf), len(disk))]
		if n != len(want) || !bytes.Equal(buf[:n], want) {
			t.Fatalf("%d bytes at %d differ", len(want), off)
		}
		if errors.Is(err, io.EOF) != (n < len(buf) || off >= len(disk)) || err != nil && !errors.Is(err, io.EOF) {
			t.Fatalf("error %v with %d of %d bytes", err, n, len(buf))
		}
		checkNextData(t, c, disk, int64(off))
	}
}

// checkNextData verifies that only zeros are between off and the returned range.
func checkNextData(t *rapid.T, c *Chain, disk []byte, off int64) {
	start, end, err := c.NextData(off)
	if err != nil {
		t.Fatal(err)
	}
	if off < int64(len(disk)) && (start < off || end < start || end > int64(len(disk)) || !isBlank(disk[off:start])) {
		t.Fatalf("data behind %d is said to be from %d to %d of %d", off, start, end, len(disk))
	}
}

func TestChainMustFit(t *testing.T) {
	disk := image(rand.New(rand.NewPCG(7, 8)), 3*BlockSize)
	base := whole(t, disk, EncodeOptions{})
	child := func(parent Digest) *Layer {
		return changed(t, Compare(memory{bytes.NewReader(disk)}, memory{bytes.NewReader(disk[:BlockSize])},
			int64(len(disk))), len(disk), parent)
	}
	long := []*Layer{base}
	for len(long) <= MaxChainLayers {
		long = append(long, child(long[len(long)-1].Index().ChainID()))
	}
	for name, c := range map[string]struct {
		ok    bool
		chain []*Layer
	}{
		"base":               {true, []*Layer{base}},
		"child on its base":  {true, long[:2]},
		"as long as allowed": {true, long[:MaxChainLayers]},
		"none":               {false, nil},
		"too long":           {false, long},
		"without its base":   {false, long[1:2]},
		"parent layer":       {false, []*Layer{base, child(Digest{1})}},
		"two bases":          {false, []*Layer{base, base}},
		"one left out":       {false, []*Layer{base, long[2]}},
	} {
		_, err := OpenChain(c.chain...)
		if (err == nil) != c.ok {
			t.Errorf("%s: chain: %v", name, err)
		}
		if _, err = NewFetchPlan(indexes(c.chain), 0); (err == nil) != c.ok {
			t.Errorf("%s: plan: %v", name, err)
		}
	}
	for _, held := range []int{-1, 3} {
		if _, err := NewFetchPlan(indexes(long[:2]), held); err == nil {
			t.Errorf("plan with %d of 2 layers there", held)
		}
	}
}
