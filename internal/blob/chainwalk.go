package blob

import (
	"math/bits"
	"slices"
)

// segment is a range of a disk and the layer of its chain that defines its content.
type segment struct {
	extent
	layer int // or noLayer: no layer covers it, so it is zero
}

const noLayer = -1

// hasData reports whether the segment holds bytes of a frame.
func (s segment) hasData() bool { return s.frame != noFrame }

// chainWalk makes one pass over a range of the disk behind a chain of layers. Each extent of each layer is
// visited once, so that a long chain costs little more than the sum of its runs.
type chainWalk struct {
	layerWalks []*layerWalk
	extents    []extent  // of each layer: the next or the entered one
	upcoming   layerHeap // layers whose extent begins behind pos
	active     layerSet  // layers whose extent may cover pos
	pos        int64
	end        int64
}

// newChainWalk starts a walk from off to end. Layers are in the order of the chain, base first.
func newChainWalk(chain []*Index, off, end int64) *chainWalk {
	s := &chainWalk{
		layerWalks: make([]*layerWalk, len(chain)),
		extents:    make([]extent, len(chain)),
		active:     make(layerSet, (len(chain)+63)/64),
		pos:        off, end: end,
	}
	for i, x := range chain {
		s.layerWalks[i] = newLayerWalk(x, off)
		s.advanceLayer(i)
	}
	return s
}

// advanceLayer reads the layer's next extent that ends behind pos.
func (s *chainWalk) advanceLayer(layer int) {
	e, ok := s.layerWalks[layer].next(s.pos)
	if !ok {
		return
	}
	s.extents[layer] = e
	s.upcoming.push(upcomingLayer{e.off, layer})
}

// next returns the next segment; false at the end.
func (s *chainWalk) next() (segment, bool) {
	if s.pos >= s.end {
		return segment{}, false
	}
	s.activateLayers()
	top := s.topLayer()
	g := segment{extent: extent{off: s.pos, end: s.end, frame: noFrame}, layer: top}
	if top != noLayer {
		g.extent = s.extents[top].cutBefore(s.pos)
		g.end = min(g.end, s.end)
	}
	// Lower layers that begin within the segment are hidden; the first higher one ends it.
	for len(s.upcoming) > 0 && s.upcoming[0].startsAt < g.end {
		if s.upcoming[0].layer > top {
			g.end = s.upcoming[0].startsAt
			break
		}
		s.active.add(s.upcoming.pop().layer)
	}
	s.pos = g.end
	return g, true
}

// activateLayers adds the layers whose extents have begun.
func (s *chainWalk) activateLayers() {
	for len(s.upcoming) > 0 && s.upcoming[0].startsAt <= s.pos {
		s.active.add(s.upcoming.pop().layer)
	}
}

// topLayer returns the highest layer whose extent covers pos. An extent that ended is replaced by the layer's next
// one.
func (s *chainWalk) topLayer() int {
	for {
		top := s.active.highest()
		if top == noLayer || s.extents[top].end > s.pos {
			return top
		}
		s.active.remove(top)
		s.advanceLayer(top)
		s.activateLayers()
	}
}

// layerSet is a set of layers, a bit for each.
type layerSet []uint64

func (s layerSet) add(i int)    { s[i/64] |= 1 << (i % 64) }
func (s layerSet) remove(i int) { s[i/64] &^= 1 << (i % 64) }

func (s layerSet) highest() int {
	for i, word := range slices.Backward(s) {
		if word != 0 {
			return i*64 + bits.Len64(word) - 1
		}
	}
	return noLayer
}

// upcomingLayer is a layer that the walk enters at off.
type upcomingLayer struct {
	startsAt int64
	layer    int
}

// layerHeap is a heap of the layers to enter, the nearest first.
type layerHeap []upcomingLayer

func (q *layerHeap) push(e upcomingLayer) {
	h := append(*q, e)
	i := len(h) - 1
	for i > 0 && h[(i-1)/2].startsAt > e.startsAt {
		h[i] = h[(i-1)/2]
		i = (i - 1) / 2
	}
	h[i] = e
	*q = h
}

func (q *layerHeap) pop() upcomingLayer {
	h := *q
	first, e := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	for i := 0; len(h) > 0; {
		child := 2*i + 1
		if child+1 < len(h) && h[child+1].startsAt < h[child].startsAt {
			child++
		}
		if child >= len(h) || h[child].startsAt >= e.startsAt {
			h[i] = e
			break
		}
		h[i] = h[child]
		i = child
	}
	*q = h
	return first
}
