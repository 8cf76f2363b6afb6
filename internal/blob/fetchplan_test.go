package blob

import (
	"slices"
	"testing"
)

// recipe reads chains of indexes from arbitrary bytes.
type recipe []byte

func (r *recipe) next() int {
	if len(*r) == 0 {
		return 0
	}
	b := (*r)[0]
	*r = (*r)[1:]
	return int(b)
}

// chain makes up to six layers of at most 64 blocks. Frames hold nothing: a plan is made from indexes alone.
func (r *recipe) chain(t *testing.T) []*Index {
	var chain []*Index
	for range 1 + r.next()%6 {
		o := EncodeOptions{Kind: KindDisk, Size: int64(r.next()%65)*BlockSize - int64(r.next())}
		o.Size = max(0, o.Size)
		if len(chain) > 0 {
			o.Parent = chain[len(chain)-1].ChainID()
		} else if r.next()%2 == 1 {
			o.Squashes = Digest{1}
		}
		x, err := r.fill(NewBuilder(o), o)
		if err != nil {
			t.Fatal(err)
		}
		chain = append(chain, x)
	}
	return chain
}

// fill adds runs up to the end of the disk or of the recipe.
func (r *recipe) fill(b *Builder, o EncodeOptions) (*Index, error) {
	var runs []Run
	flush := func() {
		if len(runs) > 0 {
			b.Add(Frame{StoredSize: 1, Codec: CodecZstd}, runs)
		}
		runs = nil
	}
	for at := int64(0); len(*r) > 0; {
		op := r.next()
		at += int64(op>>4) * BlockSize
		run := Run{Off: at, Len: min(int64(1+op%4)*BlockSize, o.Size-at)}
		if run.Len <= 1 {
			break
		}
		at += run.Len
		switch kind := op >> 2 % 4; {
		case kind >= 2 && !o.Parent.IsZero():
			b.zeroRuns.add(ZeroRun{run, kind == 3})
		case len(runs) > 0 && runs[len(runs)-1].Off+runs[len(runs)-1].Len == run.Off && kind == 0:
			runs[len(runs)-1].Len += run.Len
		case len(runs) > 0 && runs[len(runs)-1].Off+runs[len(runs)-1].Len == run.Off:
			flush()
			runs = []Run{run}
		default:
			runs = append(runs, run)
		}
	}
	flush()
	return b.Index()
}

// owner returns the layer of a chain that defines a byte, and the position in its frame. It is the reference
// for a plan, computed in the simplest way.
func owner(chain []*Index, off int64) segment {
	for layer, x := range slices.Backward(chain) {
		for i := range x.FrameCount() {
			at := 0
			for run := range x.Runs(i) {
				if off >= run.Off && off < run.Off+run.Len {
					return segment{extent{frame: i, frameOff: at + int(off-run.Off)}, layer}
				}
				at += int(run.Len)
			}
		}
		for z := range x.ZeroRuns() {
			if off >= z.Off && off < z.Off+z.Len {
				return segment{extent{frame: noFrame, discard: z.Discard}, layer}
			}
		}
		if off >= x.ContentSize() {
			return segment{extent{frame: noFrame}, layer}
		}
	}
	return segment{extent{frame: noFrame}, noLayer}
}

// said is a plan's entry for a byte; layer is noLayer without one.
func said(p *FetchPlan, off int64) segment {
	g := segment{extent{frame: noFrame}, noLayer}
	n := 0
	for i := range p.FrameCount() {
		for e := range p.Placements(i) {
			if off >= e.DiskOff && off < e.DiskOff+e.Len {
				layer, frame := p.FramePosition(i)
				g = segment{extent{frame: frame, frameOff: e.FrameOff + int(off-e.DiskOff)}, layer}
				n++
			}
		}
	}
	for z := range p.ZeroRuns() {
		if off >= z.Off && off < z.Off+z.Len {
			g = segment{extent{frame: noFrame, discard: z.Discard}, 1 << 20}
			n++
		}
	}
	if n > 1 {
		g.layer = -2
	}
	return g
}

// FuzzPlan holds the plans of arbitrary chains against owner, at all places where something can begin or end.
func FuzzPlan(f *testing.F) {
	f.Add([]byte{3, 20, 0, 0, 3, 2, 19, 18, 20, 5, 64, 7, 30, 0, 11, 22, 33, 44, 55, 66, 77, 88, 99})
	f.Add([]byte{5, 64, 255, 1, 3, 3, 3, 3, 3, 3, 9, 1, 8, 8, 8, 8, 64, 0, 12, 12, 12, 12, 200, 100})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := recipe(b)
		chain := r.chain(t)
		var places []int64
		for _, x := range chain {
			places = append(places, x.ContentSize()-1, x.ContentSize(), x.ContentSize()+1)
		}
		for i := range int64(65) {
			places = append(places, i*BlockSize, i*BlockSize+1, i*BlockSize-1)
		}
		size := chain[len(chain)-1].ContentSize()
		for held := range len(chain) + 1 {
			p, err := NewFetchPlan(chain, held)
			if err != nil {
				t.Fatal(err)
			}
			if seen, err := LiveFrameBytes(chain); held == 0 && (seen != p.FetchBytes() || err != nil) {
				t.Fatalf("%d bytes are seen, %v, the plan has %d", seen, err, p.FetchBytes())
			}
			for _, off := range places {
				if off < 0 || off >= size {
					continue
				}
				want := owner(chain, off)
				there := off < localChainSize(chain, held) && owner(chain[:held], off).hasData()
				if want.layer < held || !want.hasData() && !there {
					want = segment{extent{frame: noFrame}, noLayer}
				} else if !want.hasData() {
					want.layer = 1 << 20
				}
				if got := said(p, off); got != want {
					t.Fatalf("%d of %d layers there, byte %d: the plan says %+v instead of %+v", held, len(chain), off,
						got, want)
				}
			}
		}
	})
}

// TestSeenBytes: it takes no memory per placement, of which an index has several in a few bytes.
func TestSeenBytes(t *testing.T) {
	chain := []*Index{scattered(t, 20_000, EncodeOptions{}, 1)}
	chain = append(chain, scattered(t, 5_000, EncodeOptions{Parent: chain[0].ChainID()}, 2))
	p, err := NewFetchPlan(chain, 0)
	if err != nil {
		t.Fatal(err)
	}
	took := testing.Benchmark(func(b *testing.B) {
		for range b.N {
			if seen, err := LiveFrameBytes(chain); seen != p.FetchBytes() || err != nil {
				b.Fatalf("%d bytes are seen, %v, the plan has %d", seen, err, p.FetchBytes())
			}
		}
	}).AllocedBytesPerOp()
	if took == 0 || took > int64(len(chain[0].Encoded()))/4 {
		t.Errorf("%d bytes of memory for an index of %d bytes", took, len(chain[0].Encoded()))
	}
	if _, err := LiveFrameBytes(chain[1:]); err == nil {
		t.Error("a chain without its base")
	}
}

// TestPlanIsOrdered checks the guarantees for readers of plans.
func TestPlanIsOrdered(t *testing.T) {
	chain := []*Index{scattered(t, 20_000, EncodeOptions{}, 1)}
	for i := range 3 {
		chain = append(chain, scattered(t, 5_000, EncodeOptions{Parent: chain[i].ChainID()}, uint64(i)+2))
	}
	p, err := NewFetchPlan(chain, 0)
	if err != nil {
		t.Fatal(err)
	}
	if p.DiskSize() != chain[3].ContentSize() {
		t.Fatalf("size %d", p.DiskSize())
	}
	last := [2]int{-1, -1}
	for i := range p.FrameCount() {
		layer, frame := p.FramePosition(i)
		if slices.Compare([]int{layer, frame}, last[:]) <= 0 {
			t.Fatalf("frame %d of layer %d behind %v", frame, layer, last)
		}
		last = [2]int{layer, frame}
		end, at := int64(-1), -1
		for e := range p.Placements(i) {
			if e.DiskOff < end || e.FrameOff <= at || e.Len < 1 ||
				e.FrameOff+int(e.Len) > chain[layer].Frame(frame).RawSize {
				t.Fatalf("piece %+v of frame %d of layer %d", e, frame, layer)
			}
			end, at = e.DiskOff+e.Len, e.FrameOff
		}
	}
}

// TestPlanSeparatesZerosFromDiscards: adjacent ranges stay separate, and ranges that are zero already are left out.
func TestPlanSeparatesZerosFromDiscards(t *testing.T) {
	build := func(o EncodeOptions, runs []Run, zeros ...ZeroRun) *Index {
		o.Kind, o.Size = KindDisk, 8*BlockSize
		b := NewBuilder(o)
		if runs != nil {
			b.Add(Frame{StoredSize: 1, Codec: CodecZstd}, runs)
		}
		for _, z := range zeros {
			b.zeroRuns.add(z)
		}
		x, err := b.Index()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	base := build(EncodeOptions{}, []Run{{BlockSize, 4 * BlockSize}})
	zero, back := ZeroRun{Run{0, 3 * BlockSize}, false}, ZeroRun{Run{3 * BlockSize, 5 * BlockSize}, true}
	p, err := NewFetchPlan([]*Index{base, build(EncodeOptions{Parent: base.ChainID()}, nil, zero, back)}, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := []ZeroRun{{Run{BlockSize, 2 * BlockSize}, false}, {Run{3 * BlockSize, 2 * BlockSize}, true}}
	if got := slices.Collect(p.ZeroRuns()); !slices.Equal(got, want) {
		t.Fatalf("%v instead of %v", got, want)
	}
}
