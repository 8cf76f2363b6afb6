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

// data reports whether the segment holds bytes of a frame.
func (s segment) data() bool { return s.frame != noFrame }

// chainWalk makes one pass over a range of the disk behind a chain of layers. Each extent of each layer is
// visited once, so that a long chain costs little more than the sum of its runs.
type chainWalk struct {
	walks   []*layerWalk
	now     []extent // of each layer: the next or the entered one
	ahead   queue    // layers whose extent begins behind pos
	entered layerSet // layers whose extent may cover pos
	pos     int64
	end     int64
}

// newChainWalk starts a walk from off to end. Layers are in the order of the chain, base first.
func newChainWalk(chain []*Index, off, end int64) *chainWalk {
	s := &chainWalk{
		walks:   make([]*layerWalk, len(chain)),
		now:     make([]extent, len(chain)),
		entered: make(layerSet, (len(chain)+63)/64),
		pos:     off, end: end,
	}
	for i, x := range chain {
		s.walks[i] = walkFrom(x, off)
		s.advance(i)
	}
	return s
}

// advance reads the layer's next extent that ends behind pos.
func (s *chainWalk) advance(layer int) {
	e, ok := s.walks[layer].next(s.pos)
	if !ok {
		return
	}
	s.now[layer] = e
	s.ahead.push(entry{e.off, layer})
}

// next returns the next segment; false at the end.
func (s *chainWalk) next() (segment, bool) {
	if s.pos >= s.end {
		return segment{}, false
	}
	s.enter()
	top := s.top()
	g := segment{extent: extent{off: s.pos, end: s.end, frame: noFrame}, layer: top}
	if top != noLayer {
		g.extent = s.now[top].from(s.pos)
		g.end = min(g.end, s.end)
	}
	// Lower layers that begin within the segment are hidden; the first higher one ends it.
	for len(s.ahead) > 0 && s.ahead[0].off < g.end {
		if s.ahead[0].layer > top {
			g.end = s.ahead[0].off
			break
		}
		s.entered.add(s.ahead.pop().layer)
	}
	s.pos = g.end
	return g, true
}

// enter adds the layers whose extents have begun.
func (s *chainWalk) enter() {
	for len(s.ahead) > 0 && s.ahead[0].off <= s.pos {
		s.entered.add(s.ahead.pop().layer)
	}
}

// top returns the highest layer whose extent covers pos. An extent that ended is replaced by the layer's next
// one.
func (s *chainWalk) top() int {
	for {
		top := s.entered.highest()
		if top == noLayer || s.now[top].end > s.pos {
			return top
		}
		s.entered.remove(top)
		s.advance(top)
		s.enter()
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

// entry is a layer that the walk enters at off.
type entry struct {
	off   int64
	layer int
}

// queue is a heap of the layers to enter, the nearest first.
type queue []entry

func (q *queue) push(e entry) {
	h := append(*q, e)
	i := len(h) - 1
	for i > 0 && h[(i-1)/2].off > e.off {
		h[i] = h[(i-1)/2]
		i = (i - 1) / 2
	}
	h[i] = e
	*q = h
}

func (q *queue) pop() entry {
	h := *q
	first, e := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	for i := 0; len(h) > 0; {
		child := 2*i + 1
		if child+1 < len(h) && h[child+1].off < h[child].off {
			child++
		}
		if child >= len(h) || h[child].off >= e.off {
			h[i] = e
			break
		}
		h[i] = h[child]
		i = child
	}
	*q = h
	return first
}
