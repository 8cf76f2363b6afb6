package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// TestUncached reads a file with holes and a partial last block past the page cache: from the disk, from the
// cache, aligned and not.
func TestUncached(t *testing.T) {
	rnd := rand.New(rand.NewPCG(21, 22))
	data := image(rnd, 5*MaxFrameSize+777)
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	src, release := FileSource{File: f, Size: int64(len(data))}.Uncached()
	defer release()
	buf := make([]byte, 2*MaxFrameSize)
	for i := range 300 {
		if i%3 == 0 {
			dropCache(t, f)
		}
		off, n := rnd.IntN(len(data)+10), rnd.IntN(len(buf))
		if i%2 == 0 {
			off, n = off/BlockSize*BlockSize, n/BlockSize*BlockSize
		}
		got, err := src.ReadAt(buf[:n], int64(off))
		want := data[min(off, len(data)):min(off+n, len(data))]
		if !bytes.Equal(buf[:got], want) || errors.Is(err, io.EOF) != (got < n) ||
			err != nil && !errors.Is(err, io.EOF) {
			t.Fatalf("%d of %d bytes at %d of %d: %v", got, n, off, len(data), err)
		}
	}
	dropCache(t, f)
	o := EncodeOptions{Kind: KindDisk, Size: int64(len(data))}
	x, err := Encode(context.Background(), src, o, func(Frame, int64, []byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if want := whole(t, data, o).Index(); x.Digest() != want.Digest() {
		t.Fatalf("layer %s of the file, %s of its bytes", x.Digest(), want.Digest())
	}
}

// TestSpansAreAligned holds the memory of the encoder against what reading past the page cache needs.
func TestSpansAreAligned(t *testing.T) {
	s := newRangeBatch()
	if !canReadDirect(s.buf[:batchBytes], 0) || !canReadDirect(make([]byte, batchBytes), BlockSize) {
		t.Fatal("buffers of the encoder are not aligned to blocks")
	}
	if canReadDirect(s.buf[1:BlockSize+1], 0) || canReadDirect(s.buf[:BlockSize], 1) || canReadDirect(s.buf[:1], 0) ||
		canReadDirect(nil, 0) {
		t.Fatal("what the disk would refuse is taken for aligned")
	}
}
