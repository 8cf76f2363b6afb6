package blob

import (
	"crypto/sha256"
)

// minFrameIndexBytes is the minimum number of index bytes of a frame: it bounds the number of frames that a small index
// may claim.
const minFrameIndexBytes = 1 + 1 + sha256.Size + 1 + 2

// ParseIndex checks an index completely: afterwards every run is in the file, in order and without overlap,
// and every frame within its limits.
func ParseIndex(raw []byte) (*Index, error) {
	if len(raw) > MaxIndexSize {
		return nil, corrupt("index of %d bytes", len(raw))
	}
	x := &Index{encoded: raw, digest: sha256.Sum256(raw)}
	p := indexParser{indexDecoder: indexDecoder{buf: raw}, index: x}
	count := p.parseHeader()
	for range count {
		p.parseFrame()
		if p.failed {
			break
		}
	}
	p.parseZeroRuns()
	if p.failed || p.pos != len(raw) {
		return nil, corrupt("index is malformed at byte %d", p.pos)
	}
	if !x.zeroRunsDisjoint() {
		return nil, corrupt("index has runs that overlap")
	}
	return x, nil
}

type indexParser struct {
	indexDecoder
	index    *Index
	endBlock int64 // end of the newest data run, in blocks
}

// parseHeader reads up to the number of frames, which it returns.
func (p *indexParser) parseHeader() int64 {
	p.uvarintInRange(indexVersion, indexVersion)
	p.index.kind = Kind(p.uvarintInRange(int64(KindFile), int64(KindState)))
	p.index.contentSize = p.uvarintInRange(0, MaxContentSize)
	switch p.uvarintInRange(parentNone, parentSquashes) {
	case parentChainID:
		p.index.parent = p.chainID()
	case parentSquashes:
		p.index.squashes = p.chainID()
	}
	count := p.uvarintInRange(0, int64(len(p.buf)/minFrameIndexBytes))
	p.index.frames = make([]compactFrame, 0, count)
	return count
}

// chainID reads the ID of another chain, which only a disk may have.
func (p *indexParser) chainID() Digest {
	r := Digest(p.bytes(len(Digest{})))
	p.failed = p.failed || p.index.kind != KindDisk || r.IsZero()
	return r
}

func (p *indexParser) parseFrame() {
	ref := compactFrame{offset: p.index.storedBytes, baseBlock: p.endBlock, encodedOffset: int32(p.pos)}
	stored, codec := p.uvarintInRange(1, MaxFrameSize), Codec(p.uvarintInRange(int64(CodecRaw), int64(CodecZstdSummed)))
	p.sums(codec)
	var raw int64
	for i := range p.uvarintInRange(1, MaxFrameSize/BlockSize) {
		raw += p.parseRun(i == 0).Len
	}
	fits := codec == CodecRaw && stored == raw || codec != CodecRaw && stored < raw
	if raw > MaxFrameSize || !fits {
		p.failed = true
		return
	}
	ref.rawSize = int32(raw)
	p.index.frames = append(p.index.frames, ref)
	p.index.storedBytes += stored
	p.index.decodedBytes += raw
}

// parseRun reads a data run. Only the first of a frame may touch the run before it: others would be one run.
func (p *indexParser) parseRun(first bool) Run {
	low := int64(1)
	if first {
		low = 0
	}
	all := blockCount(p.index.contentSize)
	start := p.endBlock + p.uvarintInRange(low, all)
	n := p.uvarintInRange(1, MaxFrameSize/BlockSize)
	if start+n > all {
		p.failed = true
		return Run{}
	}
	p.endBlock = start + n
	return p.index.toByteRun(start, n)
}

func (p *indexParser) parseZeroRuns() {
	count := p.uvarintInRange(0, int64(len(p.buf)))
	if count > 0 && p.index.parent.IsZero() {
		p.failed = true // without a parent there is nothing to hide
	}
	all, block, before := blockCount(p.index.contentSize), int64(0), int64(-1)
	for i := range count {
		if i%zeroRunGroupSize == 0 {
			p.index.zeroRunGroups = append(p.index.zeroRunGroups,
				runListPosition{encodedOffset: p.pos, runCount: int(min(count-i, zeroRunGroupSize)), baseBlock: block})
		}
		gap := p.uvarintInRange(0, all)
		n := p.uvarintInRange(2, all<<1|1)
		block += gap
		if p.failed || block+n>>1 > all || gap == 0 && before == n&1 {
			p.failed = true
			return
		}
		block, before = block+n>>1, n&1
	}
}

// zeroRunsDisjoint reports whether no zero run overlaps a data run. Both lists are in order, so one pass over each
// suffices.
func (x *Index) zeroRunsDisjoint() bool {
	if len(x.zeroRunGroups) == 0 {
		return true
	}
	data := dataWalk{index: x}
	run, more := data.next()
	for z := range x.ZeroRuns() {
		for more && run.end <= z.Off {
			run, more = data.next()
		}
		if more && run.off < z.Off+z.Len {
			return false
		}
	}
	return true
}
