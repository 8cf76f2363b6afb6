package blob

import (
	"fmt"
	"iter"
)

// MaxChain is the most layers that a chain may have.
const MaxChain = 128

// FramePlacement describes where a range of a decoded frame belongs: the Len bytes at At are those at Off of
// the disk.
type FramePlacement struct {
	Off, Len int64
	At       int
}

// Plan describes what must be fetched of a chain of layers to build its disk: only frames that still hold a
// live block. It is immutable, and equal chains have equal plans.
type Plan struct {
	size   int64
	frames []planFrame
	pieces [][]planPiece // of each layer, those of a frame contiguous
	zeros  []ZeroRun
	stored int64
}

type planFrame struct{ layer, frame, first, count int32 }

// planPiece is a FramePlacement in less memory: no placement is longer than a frame.
type planPiece struct {
	off     int64
	len, at int32
}

// NewPlan plans for a chain, base first. The content of its first held layers exists already.
func NewPlan(chain []*Index, held int) (*Plan, error) {
	if err := checkChain(chain); err != nil {
		return nil, err
	}
	if held < 0 || held > len(chain) {
		return nil, fmt.Errorf("invalid number of cached layers %d for a chain of %d", held, len(chain))
	}
	p := &Plan{size: chain[len(chain)-1].size, pieces: make([][]planPiece, len(chain))}
	frames := make([][]planFrame, len(chain))
	below := &parentData{sweep: newChainWalk(chain[:held], 0, localSize(chain, held))}
	for s, all := newChainWalk(chain, 0, p.size), true; all; {
		var g segment
		if g, all = s.next(); !all || g.layer < held {
			continue
		}
		if !g.data() {
			p.hide(below, g)
			continue
		}
		p.add(frames, g)
	}
	for layer, list := range frames {
		for _, f := range list {
			p.stored += int64(chain[layer].Frame(int(f.frame)).Stored)
		}
		p.frames = append(p.frames, list...)
	}
	return p, nil
}

func localSize(chain []*Index, held int) int64 {
	if held == 0 {
		return 0
	}
	return chain[held-1].size
}

// checkChain reports an error if the layers do not fit on each other.
func checkChain(chain []*Index) error {
	switch {
	case len(chain) == 0:
		return fmt.Errorf("a layer chain requires at least one layer")
	case len(chain) > MaxChain:
		return fmt.Errorf("layer chain has %d layers: want at most %d", len(chain), MaxChain)
	case !chain[0].parent.IsZero():
		return fmt.Errorf("layer %s has a parent layer that is missing in the chain", chain[0].root)
	}
	for i, x := range chain[1:] {
		if x.parent.IsZero() || x.parent != chain[i].ChainID() {
			return fmt.Errorf("layer %s does not have layer %s as its parent layer", x.root, chain[i].root)
		}
	}
	return nil
}

// add appends the placement of a data segment.
func (p *Plan) add(frames [][]planFrame, g segment) {
	n := int32(g.end - g.off)
	list := frames[g.layer]
	if k := len(list) - 1; k < 0 || list[k].frame != int32(g.frame) {
		list = append(list,
			planFrame{layer: int32(g.layer), frame: int32(g.frame), first: int32(len(p.pieces[g.layer]))})
		frames[g.layer] = list
	}
	list[len(list)-1].count++
	p.pieces[g.layer] = append(p.pieces[g.layer], planPiece{off: g.off, len: n, at: int32(g.at)})
}

// hide appends the parts of a zero range that are not zero in the existing content.
func (p *Plan) hide(held *parentData, g segment) {
	for r := range held.data(g.off, g.end) {
		k := len(p.zeros) - 1
		if k >= 0 && p.zeros[k].Off+p.zeros[k].Len == r.Off && p.zeros[k].Discard == g.discard {
			p.zeros[k].Len += r.Len
			continue
		}
		p.zeros = append(p.zeros, ZeroRun{r, g.discard})
	}
}

// Size is the number of bytes of the disk.
func (p *Plan) Size() int64 { return p.size }

// Len is the number of frames to be fetched.
func (p *Plan) Len() int { return len(p.frames) }

// Frame returns the position of frame i of the plan in the chain. Frames are in the order of the layers and, in
// each layer, of its file.
func (p *Plan) Frame(i int) (layer, frame int) {
	return int(p.frames[i].layer), int(p.frames[i].frame)
}

// Pieces returns the placements of frame i of the plan, in the order of both frame and disk.
func (p *Plan) Pieces(i int) iter.Seq[FramePlacement] {
	return func(yield func(FramePlacement) bool) {
		f := p.frames[i]
		for _, e := range p.pieces[f.layer][f.first : f.first+f.count] {
			if !yield(FramePlacement{Off: e.off, Len: int64(e.len), At: int(e.at)}) {
				return
			}
		}
	}
}

// Zeros returns, in order, the ranges that must be zeroed: the existing content, cut or extended with zeros to
// Size, has other data there.
func (p *Plan) Zeros() iter.Seq[ZeroRun] {
	return func(yield func(ZeroRun) bool) {
		for _, z := range p.zeros {
			if !yield(z) {
				return
			}
		}
	}
}

// Bytes is the number of stored bytes of all frames of the plan.
func (p *Plan) Bytes() int64 { return p.stored }

// LiveFrameBytes is the number of stored bytes of all frames of a chain that still hold a live block: Bytes of its
// plan, which may take eight times the memory of the indexes.
func LiveFrameBytes(chain []*Index) (sum int64, err error) {
	if err := checkChain(chain); err != nil {
		return 0, err
	}
	at := make([]int, len(chain)) // the last counted frame of each layer, plus 1; frames come in order
	s := newChainWalk(chain, 0, chain[len(chain)-1].size)
	for g, more := s.next(); more; g, more = s.next() {
		if g.data() && at[g.layer] != g.frame+1 {
			at[g.layer] = g.frame + 1
			sum += int64(chain[g.layer].Frame(g.frame).Stored)
		}
	}
	return sum, nil
}

// parentData walks the data of the existing layers, in step with the walk over the whole chain.
type parentData struct {
	sweep *chainWalk
	cur   segment
	more  bool
}

// data returns the ranges between off and end that hold data; off never goes back.
func (b *parentData) data(off, end int64) iter.Seq[Run] {
	return func(yield func(Run) bool) {
		for {
			for b.cur.end <= off || !b.cur.data() {
				if b.cur, b.more = b.sweep.next(); !b.more {
					return
				}
			}
			if b.cur.off >= end {
				return
			}
			from := max(b.cur.off, off)
			to := min(b.cur.end, end)
			if !yield(Run{Off: from, Len: to - from}) || to == end {
				return
			}
			off = to
		}
	}
}
