package qcow2_test

import (
	"bytes"
	"testing"

	"github.com/buildyard/buildyard/internal/qcow2"
)

// piece is a layer that holds one range of a disk.
type piece struct {
	size int64
	data []byte // at off
	off  int64
}

func (p piece) Size() int64 { return p.size }

func (p piece) NextRange(off int64) (qcow2.Range, bool, error) {
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

func (p piece) ReadAt(b []byte, off int64) (int, error) {
	return copy(b, p.data[off-p.off:]), nil
}

// TestShorterBackingFileHidesLowerLayers: behind the end of a layer in the middle there are zeros, whatever the lowest
// layer holds there.
func TestShorterBackingFileHidesLowerLayers(t *testing.T) {
	lowest := piece{size: 12288, off: 2048, data: bytes.Repeat([]byte("x"), 8192)}
	stack := qcow2.Stack(lowest, piece{size: 4096}, piece{size: 16384})
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
