package blob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
)

// Layer reads the frames of a layer file. It may be used from many goroutines. The caller closes the source. A
// Chain reads the file behind it.
type Layer struct {
	src   io.ReaderAt
	index *Index
}

// OpenLayer reads footer and index of a layer file of size bytes. want is the layer that the caller expects;
// the zero Digest accepts any.
func OpenLayer(src io.ReaderAt, size int64, want Digest) (*Layer, error) {
	if size < FooterSize {
		return nil, corrupt("file of %d bytes is not a layer file", size)
	}
	var tail [FooterSize]byte
	if err := readAt(src, tail[:], size-FooterSize); err != nil {
		return nil, fmt.Errorf("read footer: %w", err)
	}
	foot, err := ParseFooter(tail[:], size)
	if err != nil {
		return nil, err
	}
	raw := make([]byte, foot.IndexLength)
	if err := readAt(src, raw, foot.IndexOffset); err != nil {
		return nil, fmt.Errorf("read index: %w", err)
	}
	x, err := ParseIndex(raw)
	if err != nil {
		return nil, err
	}
	if x.digest != foot.Digest || !want.IsZero() && x.digest != want || x.storedBytes != foot.IndexOffset {
		return nil, corrupt("index is not that of the layer")
	}
	return &Layer{src: src, index: x}, nil
}

// Index is the layer's index.
func (l *Layer) Index() *Index { return l.index }

// FrameBuffer is the memory for reading one frame after another. The zero value is ready; one goroutine uses it.
type FrameBuffer struct{ stored, raw []byte }

// ReadFrame reads, verifies and decodes frame i. The bytes stay valid until s is used again.
func (l *Layer) ReadFrame(i int, s *FrameBuffer) ([]byte, error) {
	f := l.index.Frame(i)
	if cap(s.stored) < f.StoredSize {
		s.stored = make([]byte, MaxFrameSize)
	}
	if f.Codec != CodecRaw && cap(s.raw) < f.RawSize {
		s.raw = make([]byte, MaxFrameSize)
	}
	stored := s.stored[:f.StoredSize]
	if err := readAt(l.src, stored, f.Offset); err != nil {
		return nil, fmt.Errorf("read frame at %d: %w", f.Offset, err)
	}
	return DecodeFrame(f, stored, s.raw)
}

// CheckFrame reads frame i and compares both of its sums.
func (l *Layer) CheckFrame(i int, s *FrameBuffer) error {
	raw, err := l.ReadFrame(i, s)
	if f := l.index.Frame(i); err == nil && f.Codec == CodecZstdSummed {
		err = CheckDecoded(f, raw)
	}
	return err
}

// storedFramePool recycles buffers of encoded frames: for random reads they would be most of the garbage.
var storedFramePool = sync.Pool{New: func() any { b := make([]byte, MaxFrameSize); return &b }}

// openFrame reads and verifies frame i. What it decodes, now or later, goes into raw, which is of rawFramePool.
func (l *Layer) openFrame(i int, raw []byte) (*frameBytes, error) {
	f := l.index.Frame(i)
	if f.Codec == CodecRaw { // the stored bytes are the frame
		raw, err := l.ReadFrame(i, &FrameBuffer{stored: raw})
		return &frameBytes{raw: raw}, err
	}
	b := &frameBytes{raw: raw, stored: storedFramePool.Get().(*[]byte)}
	stored := (*b.stored)[:f.StoredSize]
	err := readAt(l.src, stored, f.Offset)
	if err != nil {
		err = fmt.Errorf("read frame at %d: %w", f.Offset, err)
	} else if err = verifyFrame(f, stored); err == nil {
		b.sections = parseSections(stored, f.RawSize)
		b.left = len(b.sections)
	}
	if err == nil && b.sections == nil {
		b.raw, err = decodeVerified(f, stored, raw)
	}
	if b.sections == nil {
		b.releaseStored()
	}
	return b, err
}

// CheckFrames reads and decodes one frame after the other, from the one numbered from, and yields the error of each,
// or nil. It reads a frame only when the next one is requested, so that the caller sets the rate, may continue
// after a damaged frame and knows where to resume later.
func (l *Layer) CheckFrames(from int) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		var s FrameBuffer
		for i := from; i < l.index.FrameCount(); i++ {
			if !yield(i, l.CheckFrame(i, &s)) {
				return
			}
		}
	}
}

// Verify reads every frame and returns the first error.
func (l *Layer) Verify(ctx context.Context) error {
	for _, err := range l.CheckFrames(0) {
		if err := cmp.Or(context.Cause(ctx), err); err != nil {
			return err
		}
	}
	return nil
}

// readAt reads len(p) bytes; an early end of the file is damage.
func readAt(src io.ReaderAt, p []byte, off int64) error {
	n, err := src.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return corrupt("file ends at %d", off+int64(n))
	}
	return err
}
