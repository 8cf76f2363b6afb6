package blob

import (
	"crypto/sha256"
)

// minFrame is the minimum number of index bytes of a frame: it bounds the number of frames that a small index
// may claim.
const minFrame = 1 + 1 + sha256.Size + 1 + 2

// ParseIndex checks an index completely: afterwards every run is in the file, in order and without overlap,
// and every frame within its limits.
func ParseIndex(raw []byte) (*Index, error) {
	if len(raw) > MaxIndex {
		return nil, corrupt("index of %d bytes", len(raw))
	}
	x := &Index{raw: raw, root: sha256.Sum256(raw)}
	p := parser{decoder: decoder{buf: raw}, x: x}
	count := p.header()
	for range count {
		p.frame()
		if p.bad {
			break
		}
	}
	p.zeroRuns()
	if p.bad || p.at != len(raw) {
		return nil, corrupt("index is malformed at byte %d", p.at)
	}
	if !x.disjoint() {
		return nil, corrupt("index has runs that overlap")
	}
	return x, nil
}

type parser struct {
	decoder
	x    *Index
	last int64 // end of the newest data run, in blocks
}

// header reads up to the number of frames, which it returns.
func (p *parser) header() int64 {
	p.upTo(indexVersion, indexVersion)
	p.x.kind = Kind(p.upTo(int64(KindFile), int64(KindState)))
	p.x.size = p.upTo(0, MaxSize)
	switch p.upTo(restsOnZeros, standsForChain) {
	case restsOnParent:
		p.x.parent = p.tip()
	case standsForChain:
		p.x.stands = p.tip()
	}
	count := p.upTo(0, int64(len(p.buf)/minFrame))
	p.x.frames = make([]frameRef, 0, count)
	return count
}

// tip reads the ID of another chain, which only a disk may have.
func (p *parser) tip() Digest {
	r := Digest(p.bytes(len(Digest{})))
	p.bad = p.bad || p.x.kind != KindDisk || r.IsZero()
	return r
}

func (p *parser) frame() {
	ref := frameRef{offset: p.x.data, block: p.last, at: int32(p.at)}
	stored, codec := p.upTo(1, FrameSize), Codec(p.upTo(int64(CodecRaw), int64(CodecZstd)))
	p.bytes(sha256.Size)
	var raw int64
	for i := range p.upTo(1, FrameSize/BlockSize) {
		raw += p.run(i == 0).Len
	}
	fits := codec == CodecRaw && stored == raw || codec == CodecZstd && stored < raw
	if raw > FrameSize || !fits {
		p.bad = true
		return
	}
	ref.raw = int32(raw)
	p.x.frames = append(p.x.frames, ref)
	p.x.data += stored
	p.x.live += raw
}

// run reads a data run. Only the first of a frame may touch the run before it: others would be one run.
func (p *parser) run(first bool) Run {
	low := int64(1)
	if first {
		low = 0
	}
	all := blocks(p.x.size)
	start := p.last + p.upTo(low, all)
	n := p.upTo(1, FrameSize/BlockSize)
	if start+n > all {
		p.bad = true
		return Run{}
	}
	p.last = start + n
	return p.x.run(start, n)
}

func (p *parser) zeroRuns() {
	count := p.upTo(0, int64(len(p.buf)))
	if count > 0 && p.x.parent.IsZero() {
		p.bad = true // without a parent there is nothing to hide
	}
	all, block, before := blocks(p.x.size), int64(0), int64(-1)
	for i := range count {
		if i%zeroGroup == 0 {
			p.x.zeros = append(p.x.zeros, place{at: p.at, count: int(min(count-i, zeroGroup)), block: block})
		}
		gap := p.upTo(0, all)
		n := p.upTo(2, all<<1|1)
		block += gap
		if p.bad || block+n>>1 > all || gap == 0 && before == n&1 {
			p.bad = true
			return
		}
		block, before = block+n>>1, n&1
	}
}

// disjoint reports whether no zero run overlaps a data run. Both lists are in order, so one pass over each
// suffices.
func (x *Index) disjoint() bool {
	if len(x.zeros) == 0 {
		return true
	}
	data := dataWalk{x: x}
	run, more := data.next()
	for z := range x.Zeros() {
		for more && run.end <= z.Off {
			run, more = data.next()
		}
		if more && run.off < z.Off+z.Len {
			return false
		}
	}
	return true
}
