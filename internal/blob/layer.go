package blob

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// cacheFrames is the number of decoded frames that a Layer keeps for ReadAt: at most 48 MiB.
const cacheFrames = 48

// Layer reads a layer file. It may be used from many goroutines; whoever opened the source closes it.
type Layer struct {
	src   io.ReaderAt
	index *Index

	mu    sync.Mutex // guards the fields below
	cache map[int][]byte
	ring  []int // frames in the cache, in the order of their arrival
	next  int   // place in ring that is given up next
}

// OpenLayer reads footer and index of a layer file of size bytes. want is the layer that the caller expects;
// the zero Root takes any.
func OpenLayer(src io.ReaderAt, size int64, want Root) (*Layer, error) {
	if size < FooterSize {
		return nil, corrupt("file of %d bytes is no layer file", size)
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
	if x.root != foot.Root || !want.IsZero() && x.root != want || x.data != foot.IndexOffset {
		return nil, corrupt("index is not that of the layer")
	}
	return &Layer{src: src, index: x, cache: map[int][]byte{}}, nil
}

// Index is the layer's index.
func (l *Layer) Index() *Index { return l.index }

// ReadFrame reads, verifies and decodes frame i. buf is used when its capacity suffices.
func (l *Layer) ReadFrame(i int, buf []byte) ([]byte, error) {
	f := l.index.frames[i]
	stored := make([]byte, f.Stored)
	if err := readAt(l.src, stored, f.Offset); err != nil {
		return nil, fmt.Errorf("read frame at %d: %w", f.Offset, err)
	}
	return Unpack(f, stored, buf)
}

// Verify reads every frame.
func (l *Layer) Verify(ctx context.Context) error {
	buf := make([]byte, 0, FrameSize)
	for i := range l.index.frames {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if _, err := l.ReadFrame(i, buf); err != nil {
			return err
		}
	}
	return nil
}

// ReadAt reads the file behind a layer that rests on zeros. A layer with a parent is refused: its chain has
// to be read.
func (l *Layer) ReadAt(p []byte, off int64) (int, error) {
	if !l.index.parent.IsZero() {
		return 0, fmt.Errorf("layer %s rests on another layer", l.index.root)
	}
	if off < 0 {
		return 0, fmt.Errorf("read at %d", off)
	}
	if off >= l.index.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), l.index.size-off))
	clear(p[:n])
	for i := max(0, l.index.find(off)); i < l.index.Len(); i++ {
		done, err := l.copyFrame(i, p[:n], off)
		if err != nil {
			return 0, err
		}
		if done {
			break
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// copyFrame copies what frame i holds of the range of p at off; done says that it reaches behind the range.
func (l *Layer) copyFrame(i int, p []byte, off int64) (done bool, err error) {
	var raw []byte
	at, end := int64(0), off+int64(len(p))
	for r := range l.index.Runs(i) {
		if r.Off >= end {
			return true, nil
		}
		if r.Off+r.Len > off {
			if raw == nil {
				if raw, err = l.cached(i); err != nil {
					return false, err
				}
			}
			from, to := max(r.Off, off), min(r.Off+r.Len, end)
			copy(p[from-off:to-off], raw[at+from-r.Off:])
		}
		at += r.Len
	}
	return false, nil
}

// cached gives a decoded frame. Two readers of one frame may both decode it; that is cheaper than to let
// readers of other frames wait.
func (l *Layer) cached(i int) ([]byte, error) {
	l.mu.Lock()
	raw, ok := l.cache[i]
	l.mu.Unlock()
	if ok {
		return raw, nil
	}
	raw, err := l.ReadFrame(i, nil)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.cache[i]; ok {
		return raw, nil
	}
	if len(l.ring) < cacheFrames {
		l.ring = append(l.ring, i)
	} else {
		delete(l.cache, l.ring[l.next])
		l.ring[l.next] = i
		l.next = (l.next + 1) % cacheFrames
	}
	l.cache[i] = raw
	return raw, nil
}

var _ io.ReaderAt = (*Layer)(nil)

// readAt reads len(p) bytes; an early end of the file is damage.
func readAt(src io.ReaderAt, p []byte, off int64) error {
	n, err := src.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		return corrupt("file ends at %d", off+int64(n))
	}
	return err
}
