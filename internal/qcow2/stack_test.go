package qcow2_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/buildyard/buildyard/internal/qcow2"
)

// mapping is a layer with one range of a disk.
type mapping struct {
	size int64
	data []byte // at off
	off  int64
}

func (p mapping) Size() int64 { return p.size }

func (p mapping) NextRange(off int64) (qcow2.Range, bool, error) {
	end := p.off + int64(len(p.data))
	switch {
	case off >= p.size:
		return qcow2.Range{}, false, nil
	case off < p.off:
		return qcow2.Range{Off: off, Len: p.off - off, Kind: qcow2.Absent}, true, nil
	case off < end:
		return qcow2.Range{Off: off, Len: end - off, Kind: qcow2.Data}, true, nil
	}
	return qcow2.Range{Off: off, Len: p.size - off, Kind: qcow2.Absent}, true, nil
}

func (p mapping) ReadAt(b []byte, off int64) (int, error) {
	return copy(b, p.data[off-p.off:]), nil
}

// TestShorterBackingFileHidesLowerLayers: after the end of a layer in the middle there are zeros,
// whatever the lowest layer has there.
func TestShorterBackingFileHidesLowerLayers(t *testing.T) {
	lowest := mapping{size: 12288, off: 2048, data: bytes.Repeat([]byte("x"), 8192)}
	stack := qcow2.Stack(lowest, mapping{size: 4096}, mapping{size: 16384})
	want := make([]byte, 16384)
	copy(want[2048:], bytes.Repeat([]byte("x"), 2048)) // up to the end of the middle one
	got := make([]byte, 16384)
	if _, err := stack.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the disk is another one, %v", err)
	}
	if start, end, err := qcow2.NextData(stack, 0); start != 2048 || end != 4096 || err != nil {
		t.Errorf("first data from %d to %d, %v", start, end, err)
	}
	if start, end, err := qcow2.NextData(stack, 4096); start != end || err != nil {
		t.Errorf("data from %d to %d behind the end of the middle layer, %v", start, end, err)
	}
}

// layer is one that returns the given values.
type layer struct {
	r    qcow2.Range
	ok   bool
	err  error
	read func(p []byte, off int64) (int, error)
}

func (l layer) Size() int64                                      { return 4096 }
func (l layer) NextRange(int64) (qcow2.Range, bool, error)       { return l.r, l.ok, l.err }
func (l layer) ReadAt(p []byte, off int64) (n int, err error)    { return l.read(p, off) }
func (l layer) NextData(off int64) (start, end int64, err error) { return off, 4096, l.err }

// A stack returns the errors of its layers, and refuses invalid ranges from them.
func TestStackOfFaultyLayers(t *testing.T) {
	data := qcow2.Range{Len: 4096, Kind: qcow2.Data}
	for name, l := range map[string]layer{
		"an error":       {err: errFaulty},
		"nothing":        {},
		"another place":  {r: qcow2.Range{Off: 1, Len: 10}, ok: true},
		"an empty range": {r: qcow2.Range{Kind: qcow2.Zero}, ok: true},
		"an error of data": {r: data, ok: true, read: func(p []byte, _ int64) (int, error) {
			return len(p),
				errFaulty
		}},
		"half of the data": {r: data, ok: true, read: func(p []byte, _ int64) (int, error) {
			return len(p) / 2,
				io.EOF
		}},
	} {
		s := qcow2.Stack(l)
		p := make([]byte, 4096)
		n, err := s.ReadAt(p, 0)
		if err == nil || l.err != nil && !errors.Is(err, l.err) {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
		if _, ok, err := s.NextRange(0); ok != (l.read != nil) || ok != (err == nil) {
			t.Errorf("%s: a range: %v, %v", name, ok, err)
		}
	}
	s := qcow2.Stack(layer{r: data, ok: true, read: func(p []byte, _ int64) (int, error) { return len(p), io.EOF }})
	if n, err := s.ReadAt(make([]byte, 4096), 0); n != 4096 || err != nil {
		t.Errorf("all of the data and its end: %d, %v", n, err)
	}
	// An error after a range is returned for a request of that range.
	s = qcow2.Stack(qcow2.Stack(layer{r: qcow2.Range{Len: 512}, ok: true}))
	if r, ok, err := s.NextRange(0); r.Len != 512 || !ok || err != nil {
		t.Errorf("%+v, %v, %v", r, ok, err)
	}
	if _, _, err := s.NextRange(512); err == nil {
		t.Error("the error behind the range is not told")
	}
}

// A raw disk is zero where it has holes, up to its size.
func TestFlat(t *testing.T) {
	b := make([]byte, 5*64<<10)
	copy(b[64<<10+100:], "data")
	copy(b[4*64<<10:], "more")
	f := qcow2.RawLayer(sparse{bytes.NewReader(b)}, int64(len(b))-512)
	want := []qcow2.Range{
		{Len: 64 << 10, Kind: qcow2.Zero},
		{Off: 64 << 10, Len: 64 << 10, Kind: qcow2.Data},
		{Off: 128 << 10, Len: 128 << 10, Kind: qcow2.Zero},
		{Off: 256 << 10, Len: 64<<10 - 512, Kind: qcow2.Data},
	}
	if got := rangesOf(t, f); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	short := qcow2.RawLayer(sparse{bytes.NewReader(b)}, 200<<10)
	if got := rangesOf(t, short); len(got) != 3 ||
		got[2] != (qcow2.Range{Off: 128 << 10, Len: 72 << 10, Kind: qcow2.Zero}) {
		t.Errorf("got %v", got)
	}
	exact := qcow2.RawLayer(sparse{bytes.NewReader(b)}, 64<<10)
	if got := rangesOf(t, exact); len(got) != 1 || got[0].Kind != qcow2.Zero {
		t.Errorf("got %v", got)
	}
	for _, off := range []int64{-1, f.Size()} {
		if r, ok, err := f.NextRange(off); ok || err != nil {
			t.Errorf("the range at %d: %+v, %v", off, r, err)
		}
	}
	if _, ok, err := qcow2.RawLayer(layer{err: errFaulty}, 4096).NextRange(0); ok || !errors.Is(err, errFaulty) {
		t.Errorf("%v, %v", ok, err)
	}
	checkReads(t, qcow2.Stack(f))
	p := bytes.Repeat([]byte{1}, 200)
	if n, err := qcow2.Stack(f).ReadAt(p, 64<<10-50); n != 200 || err != nil ||
		!bytes.Equal(p[:150], make([]byte, 150)) || string(p[150:154]) != "data" {
		t.Errorf("%d, %v, %q", n, err, p)
	}
}
