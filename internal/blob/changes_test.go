package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var errTest = errors.New("test")

// broken is a Source or Changes with an error at one offset.
type broken struct {
	memory
	data, read, change error
}

func (b broken) NextData(off int64) (int64, int64, error) { return off, b.Size(), b.data }

func (b broken) ReadAt(p []byte, off int64) (int, error) {
	if b.read != nil {
		return 0, b.read
	}
	return b.memory.ReadAt(p, off)
}

func (b broken) NextChange(off int64) (Change, bool, error) {
	return Change{Off: off, Len: b.Size() - off}, off < b.Size(), b.change
}

func TestEncodeRefuses(t *testing.T) {
	const size = 4 * BlockSize
	disk := memory{bytes.NewReader(bytes.Repeat([]byte("x"), size))}
	opts := EncodeOptions{Kind: KindDisk, Size: size, Parent: Digest{1}}
	list := func(c ...Change) Changes { return patches{disk.Reader, c} }
	for name, c := range map[string]struct {
		src  Changes
		want string
	}{
		"change in a block":       {list(Change{Off: 1, Len: BlockSize}), "invalid change"},
		"part of a block":         {list(Change{Off: 0, Len: 1}), "invalid change"},
		"behind the end":          {list(Change{Off: 3 * BlockSize, Len: 2 * BlockSize}), "invalid change"},
		"before the begin":        {list(Change{Off: -BlockSize, Len: 2 * BlockSize}), "invalid change"},
		"of no known kind":        {list(Change{Off: 0, Len: BlockSize, Kind: 3}), "invalid change"},
		"changes cannot be found": {broken{memory: disk, change: errTest}, "find changes: test"},
		"disk cannot be read":     {broken{memory: disk, read: errTest}, "read at 0: test"},
		"data cannot be found":    {Compare(broken{memory: disk, data: errTest}, disk, size), "find data: test"},
		"data of the parent": {
			Compare(disk, broken{memory: disk, data: errTest}, size), "parent: find data: test",
		},
		"parent cannot be read": {
			Compare(disk, broken{memory: disk, read: errTest}, size), "read parent at 0: test",
		},
		"disk that shrank": {Compare(wholeSize{memory{bytes.NewReader(nil)}, size}, disk,
			size), io.ErrUnexpectedEOF.Error()},
		"comparison of other sizes": {Compare(disk, disk, size-1), "Compare was called with a disk size of"},
	} {
		_, err := EncodeChanges(context.Background(), c.src, opts, discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, o := range map[string]EncodeOptions{
		"no parent":           {Kind: KindDisk, Size: size},
		"file with a parent":  {Kind: KindFile, Size: size, Parent: Digest{1}},
		"stands for another":  {Kind: KindDisk, Size: size, Parent: Digest{1}, Squashes: Digest{2}},
		"larger than allowed": {Kind: KindDisk, Size: MaxContentSize + 1, Parent: Digest{1}},
	} {
		if _, err := EncodeChanges(context.Background(), list(), o, discard); err == nil {
			t.Errorf("changes, %s: no error", name)
		}
	}
	for name, o := range map[string]EncodeOptions{
		"parent":                {Kind: KindDisk, Size: size, Parent: Digest{1}},
		"state that stands for": {Kind: KindState, Size: size, Squashes: Digest{1}},
		"negative size":         {Kind: KindDisk, Size: -1},
	} {
		if _, err := Encode(context.Background(), disk, o, discard); err == nil {
			t.Errorf("whole file, %s: no error", name)
		}
	}
}

// TestBackwardRangesEnd sees to it that a source that goes backward cannot keep an encoder indefinitely.
func TestBackwardRangesEnd(t *testing.T) {
	src := backward{memory{bytes.NewReader(make([]byte, 4*MaxFrameSize))}}
	o := EncodeOptions{Kind: KindDisk, Size: src.Size()}
	if _, err := Encode(context.Background(), src, o, discard); err == nil ||
		!strings.Contains(err.Error(), "is before offset") {
		t.Fatal(err)
	}
	o.Parent = Digest{1}
	if _, err := EncodeChanges(context.Background(), src, o, discard); err == nil ||
		!strings.Contains(err.Error(), "invalid change") {
		t.Fatal(err)
	}
}

// TestChangesMayOverlap: only the part of a change behind the previous one counts.
func TestChangesMayOverlap(t *testing.T) {
	disk := bytes.Repeat([]byte("disk"), 2*BlockSize)
	list := []Change{{Off: 0, Len: 3 * BlockSize}, {Off: BlockSize, Len: 4 * BlockSize, Kind: ChangeDiscard}}
	x := changed(t, patches{bytes.NewReader(disk), list}, len(disk), Digest{1}).Index()
	zeros := slices.Collect(x.ZeroRuns())
	if x.DecodedBytes() != 3*BlockSize || len(zeros) != 1 ||
		zeros[0] != (ZeroRun{Run{3 * BlockSize, 2 * BlockSize}, true}) {
		t.Fatalf("%d bytes of data, zero runs %v", x.DecodedBytes(), zeros)
	}
}

// TestCompareWithSmallerParent compares with a parent that ends where the disk continues as before.
func TestCompareWithSmallerParent(t *testing.T) {
	disk := bytes.Repeat([]byte("x"), 9*batchBytes)
	old := disk[:3*batchBytes+5]
	layers := []*Layer{whole(t, old, EncodeOptions{})}
	src := Compare(memory{bytes.NewReader(disk)}, memory{bytes.NewReader(old)}, int64(len(disk)))
	layers = append(layers, layerFile(t, func(s FrameSink) (*Index, error) {
		o := EncodeOptions{Kind: KindDisk, Size: int64(len(disk)), Parent: layers[0].Index().ChainID(), Workers: 1}
		return EncodeChanges(context.Background(), struct{ Changes }{src}, o, s)
	}))
	if !bytes.Equal(content(t, layers), disk) {
		t.Fatal("another disk is made")
	}
}

type backward struct{ memory }

func (backward) NextChange(int64) (Change, bool, error) { return Change{Len: BlockSize}, true, nil }

func (backward) NextData(int64) (int64, int64, error) { return 0, BlockSize, nil }

// TestCompareForAnyReader compares step by step and with the readers of the encoder.
func TestCompareForAnyReader(t *testing.T) {
	old := image(rand.New(rand.NewPCG(31, 32)), 6*MaxFrameSize+5)
	disk := append(scatter(old, 20), image(rand.New(rand.NewPCG(33, 34)), MaxFrameSize)...)
	clear(disk[MaxFrameSize : 2*MaxFrameSize])
	compare := func() Changes {
		return Compare(memory{bytes.NewReader(disk)}, memory{bytes.NewReader(old)}, int64(len(disk)))
	}
	fast := changed(t, compare(), len(disk), Digest{1}).Index()
	slow := changed(t, struct{ Changes }{compare()}, len(disk), Digest{1}).Index()
	if fast.Digest() != slow.Digest() {
		t.Fatalf("layers %s and %s of the same difference", fast.Digest(), slow.Digest())
	}
	for i := range fast.FrameCount() {
		for r := range fast.Runs(i) {
			for off := r.Off; off < r.Off+r.Len; off += BlockSize {
				end := min(off+BlockSize, int64(len(disk)))
				if end <= int64(len(old)) && bytes.Equal(disk[off:end], old[off:end]) || isBlank(disk[off:end]) {
					t.Fatalf("block at %d did not change, or is zero", off)
				}
			}
		}
	}
	if zeros := slices.Collect(fast.ZeroRuns()); len(zeros) == 0 {
		t.Fatal("no zero runs")
	}
}

// TestEncodeMemory compares the allocations of an encoding with the limit in its comment.
func TestEncodeMemory(t *testing.T) {
	old := image(rand.New(rand.NewPCG(35, 36)), 96*MaxFrameSize)
	src := memory{bytes.NewReader(scatter(old, 50))}
	o := EncodeOptions{Kind: KindDisk, Size: int64(len(old)), Workers: 2, Parent: Digest{1}}
	run := func() {
		if _, err := EncodeChanges(context.Background(), Compare(src, memory{bytes.NewReader(old)}, o.Size), o,
			discard); err != nil {
			t.Fatal(err)
		}
	}
	run()                             // the coders are made once
	const limit = (2*4 + 2 + 2) << 20 // of workers, of all, and of the index and its input
	if n := allocated(run); n > limit {
		t.Fatalf("%d bytes for a disk of %d, at most %d are allowed", n, len(old), limit)
	}
}

// allocated returns the bytes that run allocates, whether they are kept or not.
func allocated(run func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
