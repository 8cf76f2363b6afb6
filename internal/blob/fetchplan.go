package blob

import (
	"fmt"
	"iter"
)

// MaxChainLayers is the most layers that a chain may have.
const MaxChainLayers = 128

// FramePlacement describes where a range of a decoded frame belongs: the Len bytes at At are those at Off of
// the disk.
type FramePlacement struct {
	DiskOff, Len int64
	FrameOff     int
}

// FetchPlan describes what must be fetched of a chain of layers to build its disk: only frames that still hold a
// live block. It is immutable, and equal chains have equal plans.
type FetchPlan struct {
	diskSize   int64
	frames     []plannedFrame
	placements [][]compactPlacement // of each layer, those of a frame contiguous
	zeroRuns   []ZeroRun
	fetchBytes int64
}

type plannedFrame struct{ layer, frame, firstPlacement, placementCount int32 }

// compactPlacement is a FramePlacement in less memory: no placement is longer than a frame.
type compactPlacement struct {
	diskOff       int64
	len, frameOff int32
}

// NewFetchPlan plans for a chain, base first. The content of its first held layers exists already.
func NewFetchPlan(chain []*Index, held int) (*FetchPlan, error) {
	if err := checkChain(chain); err != nil {
		return nil, err
	}
	if held < 0 || held > len(chain) {
		return nil, fmt.Errorf("invalid number of cached layers %d for a chain of %d", held, len(chain))
	}
	p := &FetchPlan{diskSize: chain[len(chain)-1].contentSize, placements: make([][]compactPlacement, len(chain))}
	frames := make([][]plannedFrame, len(chain))
	below := &localDataWalk{walk: newChainWalk(chain[:held], 0, localChainSize(chain, held))}
	for s, all := newChainWalk(chain, 0, p.diskSize), true; all; {
		var g segment
		if g, all = s.next(); !all || g.layer < held {
			continue
		}
		if !g.hasData() {
			p.addZeros(below, g)
			continue
		}
		p.addPlacement(frames, g)
	}
	for layer, list := range frames {
		for _, f := range list {
			p.fetchBytes += int64(chain[layer].Frame(int(f.frame)).StoredSize)
		}
		p.frames = append(p.frames, list...)
	}
	return p, nil
}

func localChainSize(chain []*Index, held int) int64 {
	if held == 0 {
		return 0
	}
	return chain[held-1].contentSize
}

// checkChain reports an error if the layers do not fit on each other.
func checkChain(chain []*Index) error {
	switch {
	case len(chain) == 0:
		return fmt.Errorf("a layer chain requires at least one layer")
	case len(chain) > MaxChainLayers:
		return fmt.Errorf("layer chain has %d layers: want at most %d", len(chain), MaxChainLayers)
	case !chain[0].parent.IsZero():
		return fmt.Errorf("layer %s has a parent layer that is missing in the chain", chain[0].digest)
	}
	for i, x := range chain[1:] {
		if x.parent.IsZero() || x.parent != chain[i].ChainID() {
			return fmt.Errorf("layer %s does not have layer %s as its parent layer", x.digest, chain[i].digest)
		}
	}
	return nil
}

// addPlacement appends the placement of a data segment.
func (p *FetchPlan) addPlacement(frames [][]plannedFrame, g segment) {
	n := int32(g.end - g.off)
	list := frames[g.layer]
	if k := len(list) - 1; k < 0 || list[k].frame != int32(g.frame) {
		list = append(list,
			plannedFrame{
				layer: int32(g.layer), frame: int32(g.frame), firstPlacement: int32(len(p.placements[g.layer])),
			})
		frames[g.layer] = list
	}
	list[len(list)-1].placementCount++
	p.placements[g.layer] = append(p.placements[g.layer],
		compactPlacement{diskOff: g.off, len: n, frameOff: int32(g.frameOff)})
}

// addZeros appends the parts of a zero range that are not zero in the existing content.
func (p *FetchPlan) addZeros(held *localDataWalk, g segment) {
	for r := range held.dataRanges(g.off, g.end) {
		k := len(p.zeroRuns) - 1
		if k >= 0 && p.zeroRuns[k].Off+p.zeroRuns[k].Len == r.Off && p.zeroRuns[k].Discard == g.discard {
			p.zeroRuns[k].Len += r.Len
			continue
		}
		p.zeroRuns = append(p.zeroRuns, ZeroRun{r, g.discard})
	}
}

// DiskSize is the number of bytes of the disk.
func (p *FetchPlan) DiskSize() int64 { return p.diskSize }

// FrameCount is the number of frames to be fetched.
func (p *FetchPlan) FrameCount() int { return len(p.frames) }

// FramePosition returns the position of frame i of the plan in the chain. Frames are in the order of the layers and, in
// each layer, of its file.
func (p *FetchPlan) FramePosition(i int) (layer, frame int) {
	return int(p.frames[i].layer), int(p.frames[i].frame)
}

// Placements returns the placements of frame i of the plan, in the order of both frame and disk.
func (p *FetchPlan) Placements(i int) iter.Seq[FramePlacement] {
	return func(yield func(FramePlacement) bool) {
		f := p.frames[i]
		for _, e := range p.placements[f.layer][f.firstPlacement : f.firstPlacement+f.placementCount] {
			if !yield(FramePlacement{DiskOff: e.diskOff, Len: int64(e.len), FrameOff: int(e.frameOff)}) {
				return
			}
		}
	}
}

// ZeroRuns returns, in order, the ranges that must be zeroed: the existing content, cut or extended with zeros to
// Size, has other data there.
func (p *FetchPlan) ZeroRuns() iter.Seq[ZeroRun] {
	return func(yield func(ZeroRun) bool) {
		for _, z := range p.zeroRuns {
			if !yield(z) {
				return
			}
		}
	}
}

// FetchBytes is the number of stored bytes of all frames of the plan.
func (p *FetchPlan) FetchBytes() int64 { return p.fetchBytes }

// LiveFrameBytes is the number of stored bytes of all frames of a chain that still hold a live block: Bytes of its
// plan, which may take eight times the memory of the indexes.
func LiveFrameBytes(chain []*Index) (sum int64, err error) {
	if err := checkChain(chain); err != nil {
		return 0, err
	}
	at := make([]int, len(chain)) // the last counted frame of each layer, plus 1; frames come in order
	s := newChainWalk(chain, 0, chain[len(chain)-1].contentSize)
	for g, more := s.next(); more; g, more = s.next() {
		if g.hasData() && at[g.layer] != g.frame+1 {
			at[g.layer] = g.frame + 1
			sum += int64(chain[g.layer].Frame(g.frame).StoredSize)
		}
	}
	return sum, nil
}

// localDataWalk walks the data of the existing layers, in step with the walk over the whole chain.
type localDataWalk struct {
	walk       *chainWalk
	current    segment
	hasCurrent bool
}

// dataRanges returns the ranges between off and end that hold data; off never goes back.
func (b *localDataWalk) dataRanges(off, end int64) iter.Seq[Run] {
	return func(yield func(Run) bool) {
		for {
			for b.current.end <= off || !b.current.hasData() {
				if b.current, b.hasCurrent = b.walk.next(); !b.hasCurrent {
					return
				}
			}
			if b.current.off >= end {
				return
			}
			from := max(b.current.off, off)
			to := min(b.current.end, end)
			if !yield(Run{Off: from, Len: to - from}) || to == end {
				return
			}
			off = to
		}
	}
}
