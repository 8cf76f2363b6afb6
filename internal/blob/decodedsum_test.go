package blob

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
)

// The index has the sum of the decoded bytes of every frame, and a layer with a wrong one is damaged.
func TestDecodedSums(t *testing.T) {
	random := make([]byte, 3<<20) // whole frames of it do not compress
	_, _ = rand.NewChaCha8([32]byte{3}).Read(random)
	data := append(image(rand.New(rand.NewPCG(3, 4)), 9<<20), random...)
	file, x := encodeWith(t, data, EncodeOptions{Kind: KindDisk, Size: int64(len(data)), DecodedSums: true})
	l, codecs := &Layer{src: bytes.NewReader(file), index: x}, map[Codec]int{}
	var room FrameBuffer
	for i := range x.FrameCount() {
		f := x.Frame(i)
		codecs[f.Codec]++
		raw, err := l.ReadFrame(i, &room)
		if sum := SumDecoded(file[f.Offset:f.Offset+int64(f.StoredSize)], NewDecodeBuffer()); sum != f.RawSum {
			t.Errorf("frame %d, codec %d: another sum of its decoded bytes", i, f.Codec)
		}
		if err != nil || CheckDecoded(f, raw) != nil {
			t.Fatalf("frame %d: %v, %v", i, err, CheckDecoded(f, raw))
		}
		wrong := bytes.Clone(raw)
		wrong[len(wrong)/2]++
		if err := CheckDecoded(f, wrong); !errors.Is(err, ErrCorrupt) {
			t.Errorf("another byte in frame %d: %v", i, err)
		}
		if err := CheckDecoded(f, raw[1:]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("frame %d without its first byte: %v", i, err)
		}
		f.Codec = CodecZstd
		if err := CheckDecoded(f, raw); !errors.Is(err, ErrCorrupt) {
			t.Errorf("frame %d without a decoded sum: %v", i, err)
		}
	}
	if codecs[CodecRaw] == 0 || codecs[CodecZstdSummed] == 0 {
		t.Errorf("codecs %v", codecs)
	}
	if err := l.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	if _, plain := encode(t, KindDisk, data, 1); plain.FrameCount() != x.FrameCount() || !readableByOldPrograms(plain) {
		t.Error("a layer without decoded sums has them, or other frames")
	}
	if readableByOldPrograms(x) {
		t.Error("a layer with decoded sums claims to have the form without")
	}
	b := NewBuilder(EncodeOptions{Kind: KindDisk, Size: x.ContentSize()})
	for i := range x.FrameCount() {
		var runs []Run
		for r := range x.Runs(i) {
			runs = append(runs, r)
		}
		f := x.Frame(i)
		f.RawSum[0]++
		b.Add(f, runs)
	}
	lying, err := b.Index()
	if err != nil {
		t.Fatal(err)
	}
	l.index = lying
	if err := l.Verify(context.Background()); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a layer whose index has wrong sums of decoded bytes: %v", err)
	}
}

// readableByOldPrograms reports whether an index has only what programs know that know no decoded sums.
func readableByOldPrograms(x *Index) bool {
	for i := range x.FrameCount() {
		if c := x.Frame(i).Codec; c != CodecRaw && c != CodecZstd {
			return false
		}
	}
	return true
}
