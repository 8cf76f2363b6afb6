package qcow2

import (
	"errors"
	"io"
	"slices"
)

// stack is several layers, the lowest first.
type stack struct {
	layers []Layer
}

var _ rangeStepper = stack{}

// Stack puts layers on each other, the lowest first, at least one. The size is that of the highest;
// after the end of a lower one, layers further down do not show through: the disk is zero there, as
// in QEMU. Ranges without content in all layers are Absent.
func Stack(layers ...Layer) Layer {
	return stack{layers: layers}
}

func (s stack) Size() int64 { return s.layers[len(s.layers)-1].Size() }

// rangeStepper is a layer that returns ranges as its tables have them. Looking for the longest one in
// each layer of a stack, again for each range of the others, would cost the square of their number.
type rangeStepper interface {
	Layer
	tableRange(off int64) (Range, error) // off is within the disk
}

// tableRangeOf returns a range that begins at off, which is within the disk.
func tableRangeOf(l Layer, off int64) (Range, error) {
	if s, is := l.(rangeStepper); is {
		return s.tableRange(off)
	}
	r, ok, err := l.NextRange(off)
	if err == nil && (!ok || r.Off != off || r.Len <= 0) {
		err = errors.New("qcow2: a layer of the chain does not cover the whole disk")
	}
	return r, err
}

// mergeSteps merges consecutive steps of one kind.
func mergeSteps(l rangeStepper, off int64) (Range, bool, error) {
	if off < 0 || off >= l.Size() {
		return Range{}, false, nil
	}
	r, err := l.tableRange(off)
	for err == nil && r.End() < l.Size() {
		next, later := l.tableRange(r.End())
		if later != nil || next.Kind != r.Kind {
			break // the error is returned for a request of that range
		}
		r.Len += next.Len
	}
	return r, err == nil, err
}

// layerAt returns the range at off of one kind, and its layer.
func (s stack) layerAt(off int64) (Range, Layer, error) {
	r := Range{Off: off, Len: s.Size() - off}
	for _, l := range slices.Backward(s.layers) {
		if off >= l.Size() {
			r.Kind = Zero
			return r, l, nil
		}
		next, err := tableRangeOf(l, off)
		if err != nil {
			return r, nil, err
		}
		r.Len = min(r.Len, next.Len)
		if next.Kind != Absent {
			r.Kind = next.Kind
			return r, l, nil
		}
	}
	return r, nil, nil
}

func (s stack) NextRange(off int64) (Range, bool, error) { return mergeSteps(s, off) }

func (s stack) tableRange(off int64) (Range, error) {
	r, _, err := s.layerAt(off)
	return r, err
}

// NextData returns the next range at or after off with data; start == end means that there is none.
func (s stack) NextData(off int64) (start, end int64, err error) { return NextData(s, off) }

func (s stack) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("qcow2: negative offset")
	}
	n := 0
	for n < len(p) && off < s.Size() {
		r, from, err := s.layerAt(off)
		if err != nil {
			return n, err
		}
		part := p[n:min(int64(len(p)), int64(n)+r.Len)]
		if r.Kind == Data {
			got, err := from.ReadAt(part, off)
			if err != nil && !(errors.Is(err, io.EOF) && got == len(part)) {
				return n + got, err
			}
		} else {
			clear(part)
		}
		n += len(part)
		off += int64(len(part))
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// SparseDisk is a disk that knows its holes, such as a raw file: a blob.Source.
type SparseDisk interface {
	io.ReaderAt
	// NextData returns the next range at or after off that may contain anything but zeros; start ==
	// end means there is none.
	NextData(off int64) (start, end int64, err error)
}

// rawLayer is a raw disk as the lowest layer of a stack.
type rawLayer struct {
	SparseDisk
	size int64
}

// RawLayer returns a layer of a raw disk of size bytes. No range of it is Absent.
func RawLayer(d SparseDisk, size int64) Layer { return rawLayer{SparseDisk: d, size: size} }

func (f rawLayer) Size() int64 { return f.size }

func (f rawLayer) NextRange(off int64) (Range, bool, error) {
	if off < 0 || off >= f.size {
		return Range{}, false, nil
	}
	start, end, err := f.NextData(off)
	start, end = max(start, off), min(end, f.size)
	switch {
	case err != nil:
		return Range{}, false, err
	case start >= end:
		return Range{Off: off, Len: f.size - off, Kind: Zero}, true, nil
	case start > off:
		return Range{Off: off, Len: start - off, Kind: Zero}, true, nil
	}
	return Range{Off: off, Len: end - off, Kind: Data}, true, nil
}
