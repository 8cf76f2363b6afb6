package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

// longChain makes a chain of layers of many frames and zero runs, and the disks behind them.
func longChain(t tester, layers int) (chain []*Layer, disks [][]byte) {
	rnd := rand.New(rand.NewPCG(41, 42))
	disk := image(rnd, 12*MaxFrameSize+321)
	chain, disks = []*Layer{whole(t, disk, EncodeOptions{})}, [][]byte{nil, disk}
	for i := 1; i < layers; i++ {
		next := scatter(disk, 30)
		for off := i % 5 * BlockSize; off < len(next); off += (3 + rnd.IntN(6)) * BlockSize {
			clear(next[off:min(off+BlockSize, len(next))])
		}
		src := Compare(memory{bytes.NewReader(next)}, memory{bytes.NewReader(disk)}, int64(len(next)))
		chain = append(chain, changed(t, src, len(next), chain[i-1].Index().ChainID()))
		disk = next
		disks = append(disks, disk)
	}
	return chain, disks
}

// TestLongChain is TestChain in large: many frames, more zero runs than a group has, many readers.
func TestLongChain(t *testing.T) {
	layers, disks := longChain(t, 12)
	disk := disks[len(disks)-1]
	if n := len(layers[5].index.zeroRunGroups); n < 2 {
		t.Fatalf("%d groups of zero runs", n)
	}
	for _, held := range []int{0, 1, 6, 12} {
		if got, _ := apply(t, layers, disks[held], held); !bytes.Equal(got, disk) {
			t.Fatalf("with %d layers there another disk is made", held)
		}
	}
	c, err := OpenChain(layers...)
	if err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for i := range 4 {
		readers.Go(func() {
			rnd := rand.New(rand.NewPCG(43, uint64(i)))
			buf := make([]byte, 100_000)
			for off := int64(0); off < c.Size(); off += rnd.Int64N(200_000) - 30_000 {
				off = max(0, off)
				n, err := c.ReadAt(buf, off)
				if !bytes.Equal(buf[:n], disk[off:off+int64(n)]) || err != nil && !errors.Is(err, io.EOF) {
					t.Errorf("%d bytes at %d: %v", n, off, err)
					return
				}
			}
		})
	}
	readers.Wait()
	if got := content(t, []*Layer{consolidated(t, layers)}); !bytes.Equal(got, disk) {
		t.Fatal("the layer that stands for the chain holds another disk")
	}
	if err := c.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// counted counts the bytes that are read and damages the byte at bad.
type counted struct {
	io.ReaderAt
	n   int
	bad int64
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(p, off)
	c.n += n
	if c.bad >= off && c.bad < off+int64(n) {
		p[c.bad-off] ^= 1
	}
	return n, err
}

func TestCheckGoesFrameByFrame(t *testing.T) {
	l := whole(t, image(rand.New(rand.NewPCG(51, 52)), 20*MaxFrameSize), EncodeOptions{})
	x := l.Index()
	if x.FrameCount() < 5 {
		t.Fatalf("%d frames", x.FrameCount())
	}
	src := &counted{ReaderAt: l.src, bad: x.Frame(2).Offset + 3}
	l = &Layer{src: src, index: x}
	var seen, damaged []int
	for i, err := range l.CheckFrames(1) {
		seen = append(seen, i)
		if err != nil {
			damaged = append(damaged, i)
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
		}
		if want := x.Frame(i).Offset + int64(x.Frame(i).StoredSize) - x.Frame(1).Offset; int64(src.n) != want {
			t.Fatalf("%d bytes read for %d", src.n, want)
		}
		if i == 3 {
			break
		}
	}
	if len(seen) != 3 || seen[0] != 1 || len(damaged) != 1 || damaged[0] != 2 {
		t.Fatalf("frames %v, damaged %v", seen, damaged)
	}
	if err := l.Verify(t.Context()); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("verify: %v", err)
	}
	c, err := OpenChain(l)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Verify(t.Context()); !errors.Is(err, ErrCorrupt) ||
		!strings.Contains(err.Error(), x.Digest().String()) {
		t.Fatalf("verify of the chain: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Verify(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("verify that was ended: %v", err)
	}
}

// TestDamageIsReadAgain damages a frame for a time: a reader that comes later must get it.
func TestDamageIsReadAgain(t *testing.T) {
	disk := image(rand.New(rand.NewPCG(53, 54)), 3*MaxFrameSize)
	l := whole(t, disk, EncodeOptions{})
	src := &counted{ReaderAt: l.src, bad: 5}
	c, err := OpenChain(&Layer{src: src, index: l.Index()})
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, len(disk))
	if _, err := c.ReadAt(buf, 0); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
	src.bad = -1
	if _, err := c.ReadAt(buf, 0); err != nil || !bytes.Equal(buf, disk) {
		t.Fatal(err)
	}
}

// TestFrameInUseStays: the memory of a frame that a reader uses is not reused.
func TestFrameInUseStays(t *testing.T) {
	c := NewFrameCache(2)
	fill := func(with byte) func([]byte) (*frameBytes, error) {
		return func(buf []byte) (*frameBytes, error) { return &frameBytes{raw: append(buf[:0], with)}, nil }
	}
	held, err := c.get(frameKey{Digest{}, 0}, fill(7))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		f, err := c.get(frameKey{Digest{}, i + 1}, fill(9))
		if err != nil || f.raw[0] != 9 {
			t.Fatal(err)
		}
		c.release(f)
	}
	if held.raw[0] != 7 {
		t.Fatal("a frame in use was written over")
	}
	c.release(held)
}

// TestFrameCacheIsBounded holds the cache against its limit and its order.
func TestFrameCacheIsBounded(t *testing.T) {
	c := NewFrameCache(3)
	loads := 0
	get := func(i int) {
		f, err := c.get(frameKey{Digest{}, i},
			func(buf []byte) (*frameBytes, error) {
				loads++
				return &frameBytes{raw: append(buf[:0], byte(i))}, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		c.release(f)
	}
	for _, i := range []int{1, 2, 3, 1, 4, 1, 3, 2} { // 4 puts out 2, and 2 puts out 4
		get(i)
	}
	if loads != 5 || c.lru.Len() != 3 || len(c.byKey) != 3 {
		t.Fatalf("%d loads, %d and %d kept", loads, c.lru.Len(), len(c.byKey))
	}
}
