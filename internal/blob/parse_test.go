package blob

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
)

// raw builds indexes that no writer of this package makes.
type raw struct{ b []byte }

func (r *raw) num(v ...uint64) *raw {
	for _, n := range v {
		r.b = binary.AppendUvarint(r.b, n)
	}
	return r
}

func (r *raw) hash(c byte) *raw {
	r.b = append(r.b, bytes.Repeat([]byte{c}, sha256.Size)...)
	return r
}

func TestParseIndexRefusals(t *testing.T) {
	head := func(kind uint64) *raw { return new(raw).num(1, kind, 10*BlockSize, 0) }
	child := func() *raw { return new(raw).num(1, 1, 10*BlockSize, 1).hash(9) }
	stands := func() *raw { return new(raw).num(1, 1, 10*BlockSize, 2).hash(9) }
	frame := func(r *raw) *raw { return r.num(100, 1).hash(5) }
	for name, c := range map[string]struct {
		ok bool
		r  *raw
	}{
		"empty file":            {true, new(raw).num(1, 0, 0, 0, 0, 0)},
		"one frame":             {true, frame(head(1).num(1)).num(1, 2, 3, 0)},
		"two frames that touch": {true, frame(frame(head(1).num(2)).num(1, 0, 1)).num(1, 0, 1, 0)},
		"zero runs of a child":  {true, frame(child().num(1)).num(1, 2, 3).num(3, 0, 2<<1, 3, 1<<1, 0, 1<<1|1)},
		"largest size":          {true, new(raw).num(1, 0, MaxContentSize, 0, 0, 0)},
		"largest frame": {true, new(raw).num(1, 0, MaxFrameSize, 0, 1, MaxFrameSize, 0).hash(5).num(1, 0,
			MaxFrameSize/BlockSize, 0)},
		"larger frame": {false, new(raw).num(1, 0, 2*MaxFrameSize, 0, 1, 100, 1).hash(5).num(2,
			0, MaxFrameSize/BlockSize, 1, 1, 0)},
		"longer run": {false, new(raw).num(1, 0, 2*MaxFrameSize, 0, 1, 100, 1).hash(5).num(1,
			0, MaxFrameSize/BlockSize+1, 0)},
		"run to the end":          {true, frame(head(1).num(1)).num(1, 8, 2, 0)},
		"zero run to the end":     {true, child().num(0, 1, 8, 2<<1)},
		"empty zero run":          {false, child().num(0, 1, 0, 0)},
		"empty discarded run":     {false, child().num(0, 1, 0, 1)},
		"zero run before data":    {true, frame(child().num(1)).num(1, 2, 3).num(1, 0, 2<<1)},
		"zero run behind data":    {true, frame(child().num(1)).num(1, 2, 3).num(1, 5, 1<<1)},
		"hash cut":                {false, &raw{b: head(1).num(1, 100, 1, 5).b}},
		"nothing":                 {false, new(raw)},
		"unknown version":         {false, new(raw).num(2, 0, 0, 0, 0, 0)},
		"unknown kind":            {false, new(raw).num(1, 3, 0, 0, 0, 0)},
		"size over the limit":     {false, new(raw).num(1, 0, MaxContentSize+1, 0, 0, 0)},
		"parent of a file":        {false, new(raw).num(1, 0, 0, 1).hash(1).num(0, 0)},
		"stands for a chain":      {true, frame(stands().num(1)).num(1, 2, 3, 0)},
		"zero parent":             {false, new(raw).num(1, 1, 0, 1).hash(0).num(0, 0)},
		"file stands for a chain": {false, new(raw).num(1, 0, 0, 2).hash(1).num(0, 0)},
		"stands for nothing":      {false, new(raw).num(1, 1, 0, 2).hash(0).num(0, 0)},
		"unknown kind of parent":  {false, new(raw).num(1, 1, 0, 3).hash(1).num(0, 0)},
		"zero run and stands for": {false, stands().num(0, 1, 0, 1<<1)},
		"frames promised":         {false, head(1).num(1, 0)},
		"many frames promised":    {false, head(1).num(1<<40, 0)},
		"empty frame":             {false, head(1).num(1, 0, 1).hash(5).num(1, 0, 1, 0)},
		"stored over the limit":   {false, head(1).num(1, MaxFrameSize+1, 1).hash(5).num(1, 0, 1, 0)},
		"unknown codec":           {false, head(1).num(1, 100, 2).hash(5).num(1, 0, 1, 0)},
		"raw of another length":   {false, head(1).num(1, 100, 0).hash(5).num(1, 0, 1, 0)},
		"zstd that saves nothing": {false, head(1).num(1, BlockSize, 1).hash(5).num(1, 0, 1, 0)},
		"no runs":                 {false, frame(head(1).num(1)).num(0, 0)},
		"runs that touch":         {false, frame(head(1).num(1)).num(2, 0, 1, 0, 1, 0)},
		"run behind the end":      {false, frame(head(1).num(1)).num(1, 8, 3, 0)},
		"gap behind the end":      {false, frame(head(1).num(1)).num(1, 11, 1, 0)},
		"run of no blocks":        {false, frame(head(1).num(1)).num(1, 0, 0, 0)},
		"zero run on zeros":       {false, head(1).num(0, 1, 0, 1<<1)},
		"zero run over data":      {false, frame(child().num(1)).num(1, 2, 3).num(1, 4, 1<<1)},
		"zero run behind the end": {false, child().num(0, 1, 9, 2<<1)},
		"zero runs that touch":    {false, child().num(0, 2, 0, 1<<1, 0, 1<<1)},
		"bytes left over":         {false, head(1).num(0, 0, 0)},
		"number in a long form":   {false, &raw{b: []byte{1, 0, 0x80, 0, 0, 0, 0}}},
	} {
		x, err := ParseIndex(c.r.b)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v is not ErrCorrupt", name, err)
		}
		if err == nil && x.Digest() != Digest(sha256.Sum256(c.r.b)) {
			t.Errorf("%s: wrong root", name)
		}
	}
	if _, err := ParseIndex(make([]byte, MaxIndexSize+1)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("index over the limit: %v", err)
	}
}

func TestZeroRuns(t *testing.T) {
	r := new(raw).num(1, 1, 10*BlockSize-1, 1).hash(9).num(0, 3, 0, 2<<1, 3, 1<<1, 0, 4<<1|1)
	x, err := ParseIndex(r.b)
	if err != nil {
		t.Fatal(err)
	}
	want := []ZeroRun{
		{Run{0, 2 * BlockSize}, false},
		{Run{5 * BlockSize, BlockSize}, false},
		{Run{6 * BlockSize, 4*BlockSize - 1}, true},
	}
	var got []ZeroRun
	for z := range x.ZeroRuns() {
		got = append(got, z)
	}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Fatalf("got %v", got)
	}
}

func FuzzParseIndex(f *testing.F) {
	_, x := encode(f, KindDisk, append(make([]byte, BlockSize), "data"...), 1)
	f.Add(x.Encoded())
	f.Add(new(raw).num(1, 1, 10*BlockSize, 1).hash(9).num(1, 100, 1).hash(5).num(1, 2, 3).num(3, 0, 2<<1, 3, 1<<1, 0,
		1<<1|1).b)
	f.Add(new(raw).num(1, 1, 10*BlockSize, 2).hash(9).num(0, 0).b)
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := ParseIndex(b)
		if err != nil {
			return
		}
		var end, data int64
		for i := range x.FrameCount() {
			frame := x.Frame(i)
			if frame.Offset != data || frame.StoredSize < 1 || frame.StoredSize > MaxFrameSize ||
				frame.RawSize > MaxFrameSize {
				t.Fatalf("frame %+v", frame)
			}
			data += int64(frame.StoredSize)
			var sum int64
			for r := range x.Runs(i) {
				if r.Len < 1 || r.Off < end || r.Off+r.Len > x.ContentSize() || r.Off%BlockSize != 0 {
					t.Fatalf("run %+v behind %d", r, end)
				}
				end = r.Off + r.Len
				sum += r.Len
			}
			if sum != int64(frame.RawSize) {
				t.Fatalf("runs of %d bytes, frame of %d", sum, frame.RawSize)
			}
		}
		end = 0
		for z := range x.ZeroRuns() {
			if z.Len < 1 || z.Off < end || z.Off+z.Len > x.ContentSize() {
				t.Fatalf("zero run %+v behind %d", z, end)
			}
			end = z.Off + z.Len
		}
		if again := rebuilt(t, x); !bytes.Equal(again.Encoded(), b) {
			t.Fatalf("two indexes say the same:\n%x\n%x", b, again.Encoded())
		}
	})
}

// TestIndexMemory parses an index of frames that are as small as they can be.
func TestIndexMemory(t *testing.T) {
	const n = 50_000
	b := NewBuilder(EncodeOptions{Kind: KindDisk, Size: 2 * n * BlockSize})
	for i := range int64(n) {
		b.Add(Frame{StoredSize: 1, Codec: CodecZstd}, []Run{{2 * i * BlockSize, BlockSize}})
	}
	x, err := b.Index()
	if err != nil {
		t.Fatal(err)
	}
	got := allocated(func() { _, err = ParseIndex(x.Encoded()) })
	if err != nil {
		t.Fatal(err)
	}
	if got > uint64(len(x.Encoded())) {
		t.Fatalf("%d bytes beside the %d of the index", got, len(x.Encoded()))
	}
}

// rebuilt makes an index again from its content.
func rebuilt(t *testing.T, x *Index) *Index {
	b := NewBuilder(EncodeOptions{Kind: x.Kind(), Size: x.ContentSize(), Parent: x.Parent(), Squashes: x.Squashes()})
	for i := range x.FrameCount() {
		b.Add(x.Frame(i), slices.Collect(x.Runs(i)))
	}
	for z := range x.ZeroRuns() {
		b.zeroRuns.add(z)
	}
	again, err := b.Index()
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func FuzzOpenLayer(f *testing.F) {
	file, _ := encode(f, KindDisk, append(make([]byte, BlockSize), bytes.Repeat([]byte("data"), 3000)...), 1)
	f.Add(file)
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := OpenLayer(bytes.NewReader(b), int64(len(b)), Digest{})
		if err != nil {
			return
		}
		c, err := OpenChain(l)
		if err != nil {
			if l.Index().Parent().IsZero() {
				t.Fatal(err)
			}
			return
		}
		buf := make([]byte, 3*BlockSize)
		if n, err := c.ReadAt(buf, BlockSize/2); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, ErrCorrupt) {
			t.Fatalf("read of %d bytes: %v", n, err)
		}
	})
}

func FuzzPartReader(f *testing.F) {
	body := []byte("frame")
	f.Add(append(PartHeader([]PartFrame{{StoredSize: len(body), Sum: sha256.Sum256(body)}}), body...))
	f.Add(PartHeader([]PartFrame{{StoredSize: 1 << 20}, {StoredSize: 1}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := NewPartReader(bytes.NewReader(b))
		if err != nil {
			return
		}
		out, err := io.ReadAll(p)
		if err == nil && int64(len(out)) != p.DataBytes() {
			t.Fatalf("%d bytes of %d without an error", len(out), p.DataBytes())
		}
		var at int
		for _, frame := range p.Frames() {
			if at+frame.StoredSize > len(out) {
				break
			}
			if sha256.Sum256(out[at:at+frame.StoredSize]) != frame.Sum {
				t.Fatal("bytes given out that were not verified")
			}
			at += frame.StoredSize
		}
		if at != len(out) {
			t.Fatalf("%d bytes of a frame that is not whole", len(out)-at)
		}
	})
}

func FuzzParseFooter(f *testing.F) {
	f.Add(Footer{IndexOffset: 10, IndexLength: 20}.appendTo(nil), int64(10+20+FooterSize))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		foot, err := ParseFooter(b, size)
		if err == nil &&
			(foot.IndexOffset < 0 || foot.IndexLength < 1 || foot.IndexOffset+foot.IndexLength+FooterSize != size) {
			t.Fatalf("footer %+v of %d bytes", foot, size)
		}
	})
}
