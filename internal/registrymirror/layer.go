package registrymirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
)

// chunkBytes is the unit in which layers are fetched, in bytes.
const chunkBytes = 4 << 20

// layer is a stored layer file, of which some chunks may be missing.
type layer struct {
	root blob.Digest
	size int64

	// Guarded by the mutex of the store.
	users    int
	file     *os.File // open while there are users
	lastUse  time.Time
	complete bool // verified, and under its final name

	mu       sync.Mutex
	have     []bool
	missing  int
	fetching map[int]chan struct{} // chunk -> closed when its request has ended
}

func newLayer(root blob.Digest, size int64) *layer {
	n := int((size + chunkBytes - 1) / chunkBytes)
	return &layer{root: root, size: size, have: make([]bool, n), missing: n, fetching: map[int]chan struct{}{}}
}

// chunkRange returns the bytes of a chunk.
func (l *layer) chunkRange(chunk int) byteRange {
	off := int64(chunk) * chunkBytes
	return byteRange{off, min(chunkBytes, l.size-off)}
}

// claim reports whether the caller has to fetch a chunk. Otherwise the chunk is there (wait is nil), or is being
// fetched until wait is closed.
func (l *layer) claim(chunk int) (mine bool, wait chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.have[chunk] {
		return false, nil
	}
	if wait = l.fetching[chunk]; wait != nil {
		return false, wait
	}
	l.fetching[chunk] = make(chan struct{})
	return true, nil
}

// settle ends a claim, and reports whether every chunk is there now.
func (l *layer) settle(chunk int, err error) (isWhole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.fetching[chunk])
	delete(l.fetching, chunk)
	if err != nil || l.have[chunk] {
		return false
	}
	l.have[chunk] = true
	l.missing--
	return l.missing == 0
}

// fill fetches a chunk unless it is there, and reports whether it did. One request at a time fetches a chunk; when it
// fails, another one that waits for the chunk tries itself.
func (s *layerStore) fill(ctx context.Context, l *layer, c credential, chunk int) (fetched bool, err error) {
	for {
		mine, wait := l.claim(chunk)
		switch {
		case mine:
			at := l.chunkRange(chunk)
			err := s.fetch(ctx, l.root, c, at, io.NewOffsetWriter(l.file, at.off))
			if l.settle(chunk, err) {
				s.verifyLater(l)
			}
			return true, err
		case wait == nil:
			return fetched, nil
		}
		fetched = true // the origin sends it now
		select {
		case <-wait:
		case <-ctx.Done():
			return fetched, context.Cause(ctx)
		}
	}
}

// layerReader reads a layer for one response.
type layerReader struct {
	ctx        context.Context //nolint:containedctx // of the request that it serves
	store      *layerStore
	layer      *layer
	credential credential
	off        int64
	end        int64 // where the requested range ends, as far as is known
	ahead      int   // chunks before this one are fetched, or being fetched
	fetched    bool  // a byte came from the origin
}

// begin reads where a single range ends; without one, nothing is fetched ahead.
func (r *layerReader) begin(rangeHeader string) {
	var first, last int64
	if n, _ := fmt.Sscanf(rangeHeader, "bytes=%d-%d", &first, &last); n == 2 {
		r.end = last + 1
	}
}

func (r *layerReader) Seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		off += r.off
	case io.SeekEnd:
		off += r.layer.size
	}
	if off < 0 {
		return 0, errors.New("seek before the begin of a layer")
	}
	r.off = off
	return off, nil
}

// Read reads up to the end of a chunk. The next chunk of the range is fetched at the same time.
func (r *layerReader) Read(p []byte) (int, error) {
	if r.off >= r.layer.size {
		return 0, io.EOF
	}
	chunk := int(r.off / chunkBytes)
	if next := r.layer.chunkRange(chunk + 1); r.ahead <= chunk && next.off < min(r.end, r.layer.size) {
		r.store.fillAhead(r.ctx, r.layer, r.credential, chunk+1)
	}
	r.ahead = chunk + 1
	fetched, err := r.store.fill(r.ctx, r.layer, r.credential, chunk)
	r.fetched = r.fetched || fetched
	if err != nil {
		return 0, err
	}
	at := r.layer.chunkRange(chunk)
	read, err := r.layer.file.ReadAt(p[:min(int64(len(p)), at.off+at.n-r.off)], r.off)
	r.off += int64(read)
	if read > 0 {
		return read, nil
	}
	return 0, err
}
