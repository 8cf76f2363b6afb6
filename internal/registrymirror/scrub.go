package registrymirror

import (
	"context"
	"io"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
)

const (
	scrubPause = 24 * time.Hour // between two rounds
	scrubRate  = 32 << 20       // bytes/s
)

// scrub verifies the complete layers, all after the start and then each day, and removes damaged ones. The next request
// fetches them again.
func (s *layerStore) scrub() {
	for {
		for _, root := range s.completeLayers() {
			s.scrubLayer(root)
		}
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(scrubPause):
		}
	}
}

func (s *layerStore) completeLayers() (roots []blob.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for root, l := range s.layers {
		if l.complete {
			roots = append(roots, root)
		}
	}
	return roots
}

func (s *layerStore) scrubLayer(root blob.Digest) {
	l := s.openComplete(root)
	if l == nil {
		return
	}
	defer s.release(l)
	opened, err := blob.OpenLayer(slowReader{s.ctx, l.file}, l.size, root)
	if err == nil {
		err = opened.Verify(s.ctx)
	}
	if err == nil || s.ctx.Err() != nil {
		return
	}
	s.log.Warn("stored layer is damaged; it is removed and fetched again", "layer", root.String(), "error", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(l)
}

// openComplete returns a complete layer, which stays until release; nil when there is none. The order in which layers
// are removed stays as it is.
func (s *layerStore) openComplete(root blob.Digest) *layer {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.layers[root]
	if s.closed || l == nil || !l.complete {
		return nil
	}
	if l.file == nil {
		var err error
		if l.file, err = s.openLocked(l); err != nil {
			s.log.Warn("layer file removed: it cannot be opened", "layer", root.String(), "error", err)
			s.dropLocked(l)
			return nil
		}
	}
	l.users++
	s.uses.Add(1)
	return l
}

// slowReader reads at scrubRate until its context ends.
type slowReader struct {
	ctx context.Context //nolint:containedctx // io.ReaderAt has none
	src io.ReaderAt
}

// ReadAt implements io.ReaderAt.
func (r slowReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.src.ReadAt(p, off)
	select {
	case <-r.ctx.Done():
		return 0, context.Cause(r.ctx)
	case <-time.After(time.Duration(n) * time.Second / scrubRate):
	}
	return n, err //nolint:wrapcheck // callers compare io.EOF
}
