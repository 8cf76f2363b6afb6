package registrymirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
)

// Names of the files of a layer, after its digest.
const (
	wholeSuffix  = ".layer"
	partSuffix   = ".part"
	chunksSuffix = ".chunks" // which chunks of the part are there; written by an orderly end alone
)

// maxLayerBytes bounds the memory for the chunks of a layer.
const maxLayerBytes = 16 << 40

// fetchFunc writes a part of a layer.
type fetchFunc func(ctx context.Context, root blob.Digest, c credential, at byteRange, to io.Writer) error

// layerStore is the directory of the layer files.
type layerStore struct {
	dir      *os.Root
	maxBytes int64
	fetch    fetchFunc
	now      func() time.Time
	log      *slog.Logger

	ctx    context.Context //nolint:containedctx // of the work in the background, until close
	cancel context.CancelFunc
	uses   sync.WaitGroup // of layers, by requests and by what fetches ahead and verifies

	mu     sync.Mutex
	closed bool // no layer is acquired any longer
	layers map[blob.Digest]*layer
	bytes  int64 // size of all, as if they were complete
}

func openLayerStore(o Options, fetch fetchFunc) (*layerStore, error) {
	if err := os.MkdirAll(o.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("create the directory of the mirror: %w", err)
	}
	dir, err := os.OpenRoot(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open the directory of the mirror: %w", err)
	}
	s := &layerStore{
		dir: dir, maxBytes: o.MaxBytes, fetch: fetch, now: o.Now, log: o.Logger, layers: map[blob.Digest]*layer{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.load(); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	s.verifyLoaded()
	s.uses.Go(s.scrub)
	return s, nil
}

// verifyLoaded verifies layers of which everything was there when the mirror ended.
func (s *layerStore) verifyLoaded() {
	for root, l := range maps.Clone(s.layers) {
		if l.complete || l.missing > 0 {
			continue
		}
		if held, err := s.acquire(root, l.size); err == nil {
			s.verifyLater(held)
			s.release(held)
		}
	}
}

// load lists the files in the directory, and removes those that are of no use.
func (s *layerStore) load() error {
	entries, err := fs.ReadDir(s.dir.FS(), ".")
	if err != nil {
		return fmt.Errorf("list the directory of the mirror: %w", err)
	}
	for _, e := range entries {
		name, suffix, _ := strings.Cut(e.Name(), ".")
		root, err := blob.ParseDigest(name)
		info, statErr := e.Info()
		if err != nil || statErr != nil || !info.Mode().IsRegular() {
			continue // not a file of the mirror
		}
		var l *layer
		switch "." + suffix {
		case wholeSuffix:
			l = newLayer(root, info.Size())
			l.complete, l.missing = true, 0
			for i := range l.have {
				l.have[i] = true
			}
		case partSuffix:
			if l = s.loadPart(root); l == nil {
				_ = s.dir.Remove(e.Name())
			}
		}
		if l != nil && (s.layers[root] == nil || l.complete) {
			l.lastUse = info.ModTime()
			s.layers[root] = l
			s.bytes += l.size
		}
	}
	return nil
}

// partChunks is the content of a chunksSuffix file.
type partChunks struct {
	Size   int64 `json:"size"`
	Chunks []int `json:"chunks"`
}

// loadPart returns an incomplete layer that was closed orderly; nil: there is none. The list of its chunks is removed:
// after a crash it would be older than the file.
func (s *layerStore) loadPart(root blob.Digest) *layer {
	name := root.String() + chunksSuffix
	text, err := s.dir.ReadFile(name)
	_ = s.dir.Remove(name)
	var p partChunks
	if err != nil || json.Unmarshal(text, &p) != nil || p.Size <= 0 || p.Size > maxLayerBytes {
		return nil
	}
	l := newLayer(root, p.Size)
	for _, chunk := range p.Chunks {
		if chunk < 0 || chunk >= len(l.have) {
			return nil
		}
		if !l.have[chunk] {
			l.have[chunk] = true
			l.missing--
		}
	}
	return l
}

func (s *layerStore) size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

func (s *layerStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.layers)
}

// acquire returns a layer, which stays until release. It makes room by removing those that were not used for longest.
func (s *layerStore) acquire(root blob.Digest, size int64) (*layer, error) {
	if size <= 0 || size > maxLayerBytes {
		return nil, fmt.Errorf("a layer of %d bytes cannot be stored", size)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.layers[root]
	if s.closed {
		return nil, errors.New("the mirror ends")
	}
	if l != nil && l.size != size {
		if l.users > 0 {
			return nil, fmt.Errorf("layer %s has %d bytes here and %d at the registry", root, l.size, size)
		}
		s.log.Warn("stored layer has a wrong size; it is removed and fetched again", "layer", root.String(), "bytes",
			l.size, "registry_bytes", size)
		s.dropLocked(l)
		l = nil
	}
	if l == nil {
		if err := s.makeRoomLocked(size); err != nil {
			return nil, err
		}
		l = newLayer(root, size)
	}
	if l.file == nil {
		var err error
		if l.file, err = s.openLocked(l); err != nil {
			return nil, err
		}
	}
	if s.layers[root] == nil {
		s.layers[root] = l
		s.bytes += size
	}
	l.users++
	s.uses.Add(1)
	l.lastUse = s.now()
	return l, nil
}

func (s *layerStore) openLocked(l *layer) (*os.File, error) {
	if l.complete {
		return s.dir.Open(l.root.String() + wholeSuffix)
	}
	return s.dir.OpenFile(l.root.String()+partSuffix, os.O_CREATE|os.O_RDWR, 0o640)
}

func (s *layerStore) makeRoomLocked(size int64) error {
	for s.maxBytes > 0 && s.bytes+size > s.maxBytes {
		var oldest *layer
		for _, l := range s.layers {
			if l.users == 0 && (oldest == nil || l.lastUse.Before(oldest.lastUse)) {
				oldest = l
			}
		}
		if oldest == nil {
			return fmt.Errorf("a layer of %d bytes does not fit next to those in use: the mirror may store %d "+
				"bytes; raise its --max-size", size, s.maxBytes)
		}
		s.dropLocked(oldest)
	}
	return nil
}

// dropLocked forgets a layer and removes its file.
func (s *layerStore) dropLocked(l *layer) {
	if s.layers[l.root] != l {
		return
	}
	delete(s.layers, l.root)
	s.bytes -= l.size
	suffix := partSuffix
	if l.complete {
		suffix = wholeSuffix
	}
	if err := s.dir.Remove(l.root.String() + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("layer file not removed", "layer", l.root.String(), "error", err)
	}
}

// release ends a use of a layer.
func (s *layerStore) release(l *layer) {
	defer s.uses.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.users--; l.users > 0 {
		return
	}
	if err := l.file.Close(); err != nil {
		s.log.Warn("layer file not closed", "layer", l.root.String(), "error", err)
	}
	l.file = nil
	if l.complete && s.layers[l.root] == l {
		_ = s.dir.Chtimes(l.root.String()+wholeSuffix, l.lastUse, l.lastUse) // for the order after a restart
	}
}

// hold is another use of a layer that is in use.
func (s *layerStore) hold(l *layer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.users++
	s.uses.Add(1)
}

// fillAhead fetches a chunk in the background.
func (s *layerStore) fillAhead(ctx context.Context, l *layer, c credential, chunk int) {
	s.hold(l)
	go func() {
		defer s.release(l)
		_, _ = s.fill(ctx, l, c, chunk) // the request that needs it reports the error
	}()
}

// verifyLater verifies a layer whose chunks are all there, and gives its file the final name. A damaged one is removed.
func (s *layerStore) verifyLater(l *layer) {
	s.hold(l)
	go func() {
		defer s.release(l)
		err := s.verify(l)
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case s.ctx.Err() != nil: // it is verified after the next start
		case err == nil && s.layers[l.root] == l:
			name := l.root.String()
			if err = s.dir.Rename(name+partSuffix, name+wholeSuffix); err == nil {
				l.complete = true
				return
			}
			fallthrough
		case err != nil:
			s.log.Warn("layer removed: it is damaged, or cannot be stored", "layer", l.root.String(), "error", err)
			s.dropLocked(l)
		}
	}()
}

func (s *layerStore) verify(l *layer) error {
	opened, err := blob.OpenLayer(l.file, l.size, l.root)
	if err != nil {
		return err
	}
	return errors.Join(opened.Verify(s.ctx), l.file.Sync())
}

// close waits until no layer is used, and records the chunks of incomplete ones. Requests must have ended, or end soon.
func (s *layerStore) close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.uses.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, l := range s.layers {
		if !l.complete {
			errs = append(errs, s.recordChunks(l))
		}
	}
	return errors.Join(append(errs, s.dir.Close())...)
}

func (s *layerStore) recordChunks(l *layer) error {
	f, err := s.dir.OpenFile(l.root.String()+partSuffix, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	p := partChunks{Size: l.size}
	for chunk, isThere := range l.have {
		if isThere {
			p.Chunks = append(p.Chunks, chunk)
		}
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return s.dir.WriteFile(l.root.String()+chunksSuffix, text, 0o640)
}
