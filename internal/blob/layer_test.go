package blob

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"
)

// memory is a Source without knowledge of holes.
type memory struct{ *bytes.Reader }

func (m memory) NextData(off int64) (int64, int64, error) { return off, m.Size(), nil }

func encode(t testing.TB, kind Kind, data []byte, workers int) ([]byte, *Index) {
	t.Helper()
	return encodeWith(t, data, EncodeOptions{Kind: kind, Size: int64(len(data)), Workers: workers})
}

func encodeWith(t testing.TB, data []byte, o EncodeOptions) ([]byte, *Index) {
	t.Helper()
	var file bytes.Buffer
	x, err := Encode(context.Background(), memory{bytes.NewReader(data)}, o,
		func(f Frame, _ int64, stored []byte) error {
			if f.Offset != int64(file.Len()) {
				t.Fatalf("frame at %d, file has %d bytes", f.Offset, file.Len())
			}
			file.Write(stored)
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	file.Write(x.IndexAndFooter())
	if int64(file.Len()) != x.FileSize() {
		t.Fatalf("layer file has %d bytes, index says %d", file.Len(), x.FileSize())
	}
	return file.Bytes(), x
}

const text = "the quick brown fox "

// image makes a file with zero blocks, compressible and random runs, and directories; its length need not be whole
// blocks.
func image(rnd *rand.Rand, length int) []byte {
	data := make([]byte, length)
	for off := 0; off < length; {
		n := min((1+rnd.IntN(400))*BlockSize, length-off)
		part := data[off : off+n]
		switch rnd.IntN(4) {
		case 0:
			for p := part; len(p) > 8; p = p[8:] {
				binary.LittleEndian.PutUint64(p, rnd.Uint64())
			}
		case 1:
			copy(part, text)
			for i := len(text); i < n; i *= 2 {
				copy(part[i:], part[:i])
			}
			for at := rnd.IntN(64) * BlockSize; at+BlockSize <= n; at += (1 + rnd.IntN(64)) * BlockSize {
				copy(part[at:], directory(uint32(off+at)))
			}
		}
		off += n
	}
	return data
}

func TestRoundTrip(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, length := range []int{0, 1, 511, BlockSize, BlockSize + 1, MaxFrameSize, MaxFrameSize + 17, 9*MaxFrameSize +
		12345} {
		data := image(rnd, length)
		if length > 0 {
			data[length-1] = 7 // the partial last block counts
		}
		file, x := encode(t, KindDisk, data, 1)
		again, _ := encode(t, KindDisk, data, 3)
		if !bytes.Equal(file, again) {
			t.Fatalf("%d bytes: the layer depends on the number of workers", length)
		}
		l, err := OpenLayer(bytes.NewReader(file), int64(len(file)), x.Digest())
		if err != nil {
			t.Fatal(err)
		}
		c, err := OpenChain(l)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(io.NewSectionReader(c, 0, x.ContentSize()))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, data) {
			t.Fatalf("%d bytes: content differs", length)
		}
		if err := l.Verify(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestZeroBlocksCostNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sparse")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = 3 << 30
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("somewhere"), 1<<30+5); err != nil {
		t.Fatal(err)
	}
	x, err := Encode(context.Background(), FileSource{File: f, Size: size}, EncodeOptions{Size: size},
		func(Frame, int64, []byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if x.FrameCount() != 1 || x.DecodedBytes() != BlockSize || x.FileSize() > 300 {
		t.Fatalf("%d frames, %d live bytes, %d bytes of file", x.FrameCount(), x.DecodedBytes(), x.FileSize())
	}
	for r := range x.Runs(0) {
		if r != (Run{Off: 1 << 30, Len: BlockSize}) {
			t.Fatalf("run %v", r)
		}
	}
}

func TestReadAtAgreesWithFile(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	data := image(rnd, 70*MaxFrameSize+99) // more frames than the cache holds
	file, _ := encode(t, KindDisk, data, 2)
	layer, err := OpenLayer(bytes.NewReader(file), int64(len(file)), Digest{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := OpenChain(layer)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		off := rapid.IntRange(0, len(data)+10).Draw(t, "off")
		buf := make([]byte, rapid.IntRange(0, 3*MaxFrameSize).Draw(t, "len"))
		n, err := l.ReadAt(buf, int64(off))
		want := data[min(off, len(data)):min(off+len(buf), len(data))]
		if n != len(want) || !bytes.Equal(buf[:n], want) {
			t.Fatalf("%d bytes at %d differ", n, off)
		}
		if errors.Is(err, io.EOF) != (n < len(buf) || off >= len(data)) || err != nil && !errors.Is(err, io.EOF) {
			t.Fatalf("error %v with %d of %d bytes", err, n, len(buf))
		}
	})
}

// TestEveryFlippedByteIsSeen damages each byte of a small layer file in turn.
func TestEveryFlippedByteIsSeen(t *testing.T) {
	data := append(bytes.Repeat([]byte("abcdefgh"), 2000), make([]byte, 3*BlockSize)...)
	data = append(data, 1)
	file, x := encode(t, KindFile, data, 1)
	for i := range file {
		bad := bytes.Clone(file)
		bad[i] ^= 0x10
		l, err := OpenLayer(bytes.NewReader(bad), int64(len(bad)), x.Digest())
		if err == nil {
			err = l.Verify(context.Background())
		}
		if !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
	}
	for _, n := range []int{1, FooterSize - 1, FooterSize, FooterSize + 1} {
		if _, err := OpenLayer(bytes.NewReader(file), int64(len(file)-n), Digest{}); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut by %d: %v", n, err)
		}
	}
}

func TestSinkErrorEndsEncoding(t *testing.T) {
	stop := errors.New("stop")
	data := image(rand.New(rand.NewPCG(5, 6)), 40*MaxFrameSize)
	n := 0
	_, err := Encode(context.Background(), memory{bytes.NewReader(data)},
		EncodeOptions{Size: int64(len(data)), Workers: 2}, func(Frame, int64, []byte) error {
			if n++; n == 3 {
				return stop
			}
			return nil
		})
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	_, err = Encode(ctx, memory{bytes.NewReader(data)},
		EncodeOptions{Size: int64(len(data)), Workers: 2}, func(Frame, int64, []byte) error {
			cancel()
			return nil
		})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	short := memory{bytes.NewReader(data[:5*MaxFrameSize])}
	if _, err := Encode(context.Background(), wholeSize{short, int64(len(data))}, EncodeOptions{Size: int64(len(data))},
		func(Frame, int64, []byte) error { return nil }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("a file that shrank: %v", err)
	}
}

// wholeSize is a source that claims more data than it has.
type wholeSize struct {
	memory
	size int64
}

func (w wholeSize) NextData(off int64) (int64, int64, error) { return off, w.size, nil }
