package blob

import (
	"context"
	"fmt"
	"io"
)

const (
	// minCachedFrames is the minimum number of frames that a Chain caches; NewFrameCache has their memory.
	minCachedFrames = 48
	// extraCachedFrames is how many frames a long chain caches in addition to one per layer, which sequential reads
	// need.
	extraCachedFrames = 16

	// maxGapAsData is the largest gap that NextData reports as data: reading it costs less than finding its end.
	maxGapAsData = 64 << 10
	// maxDataRange is the maximum range that NextData looks ahead.
	maxDataRange = 64 << 20
)

// Chain reads the file behind a chain of layers. It may be used from many goroutines. The caller closes the
// sources of the layers.
type Chain struct {
	layers     []*Layer
	indexes    []*Index
	frameCache *FrameCache
	segments   segmentCache
}

// OpenChain opens a chain of layers, base first.
func OpenChain(layers ...*Layer) (*Chain, error) {
	return NewFrameCache(max(minCachedFrames, len(layers)+extraCachedFrames)).OpenChain(layers...)
}

// OpenChain is OpenChain with frames that other chains share.
func (c *FrameCache) OpenChain(layers ...*Layer) (*Chain, error) {
	chain := make([]*Index, len(layers))
	for i, l := range layers {
		chain[i] = l.index
	}
	if err := checkChain(chain); err != nil {
		return nil, err
	}
	return &Chain{layers: layers, indexes: chain, frameCache: c}, nil
}

// Size is the number of bytes of the file.
func (c *Chain) Size() int64 { return c.topIndex().contentSize }

// ChainID names the content.
func (c *Chain) ChainID() Digest { return c.topIndex().ChainID() }

func (c *Chain) topIndex() *Index { return c.indexes[len(c.indexes)-1] }

// ReadAt reads the file. It reads only frames that hold a byte of the range, and decodes only such sections of them.
func (c *Chain) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("negative offset %d", off)
	}
	if off >= c.Size() {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), c.Size()-off))
	at := make([]*cachedFrame, len(c.layers)) // the next range of a layer is mostly in the same frame
	defer func() {
		for _, f := range at {
			c.frameCache.release(f)
		}
	}()
	for g := range c.segments.segmentsIn(c.indexes, off, off+int64(n)) {
		dst := p[g.off-off : g.end-off]
		if !g.hasData() {
			clear(dst)
			continue
		}
		if last := at[g.layer]; last == nil || last.key.frame != g.frame {
			f, err := c.loadFrame(g.layer, g.frame)
			if err != nil {
				return 0, err
			}
			c.frameCache.release(last)
			at[g.layer] = f
		}
		if err := at[g.layer].readAt(dst, g.frameOff); err != nil {
			return 0, fmt.Errorf("layer %s: %w", c.indexes[g.layer].digest, err)
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (c *Chain) loadFrame(layer, frame int) (*cachedFrame, error) {
	x := c.indexes[layer]
	return c.frameCache.get(frameKey{x.digest, frame}, func(buf []byte) (*frameBytes, error) {
		b, err := c.layers[layer].openFrame(frame, buf)
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", x.digest, err)
		}
		return b, nil
	})
}

// NextData returns the next range that layers hold data of. Small gaps count as data.
func (c *Chain) NextData(off int64) (start, end int64, err error) {
	start, end = c.Size(), c.Size()
	s := newChainWalk(c.indexes, max(0, off), c.Size())
	found := false
	for g, more := s.next(); more; g, more = s.next() {
		switch {
		case g.hasData() && !found:
			start, end, found = g.off, g.end, true
		case g.hasData():
			end = g.end
		case found && g.end-end > maxGapAsData:
			return start, end, nil
		}
		if found && end-start >= maxDataRange {
			return start, end, nil
		}
	}
	return start, end, nil
}

// Verify reads every frame of every layer and returns the first error.
func (c *Chain) Verify(ctx context.Context) error {
	for _, l := range c.layers {
		if err := l.Verify(ctx); err != nil {
			return fmt.Errorf("layer %s: %w", l.index.digest, err)
		}
	}
	return nil
}

var (
	_ io.ReaderAt = (*Chain)(nil)
	_ Source      = (*Chain)(nil)
)
