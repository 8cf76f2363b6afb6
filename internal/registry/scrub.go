package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/layout"
)

const (
	scrubFile = "scrub.json"
	// minScrubInterval is the minimum time from the beginning of one round to that of the next: a small store is not
	// read all day.
	minScrubInterval = 7 * 24 * time.Hour
	// scrubSaveInterval is how often the position in a round is saved.
	scrubSaveInterval = 30 * time.Second
	// busyAfterTraffic is how long the scrub stays slower after a push or a pull.
	busyAfterTraffic = 2 * time.Second
)

// scrubState is the content of scrub.json: the position of the scrub, and what it found. Its loss costs one
// round.
type scrubState struct {
	Cursor   string            `json:"cursor,omitempty"` // layer that is verified, in the order of the names
	Frame    int               `json:"frame,omitempty"`  // its next frame
	Passed   bool              `json:"passed,omitempty"` // it is verified: continue behind it
	Began    int64             `json:"began,omitempty"`  // epoch seconds of the round
	Finished int64             `json:"finished,omitempty"`
	Verified int64             `json:"verified,omitempty"` // bytes in the round
	Damaged  map[string]string `json:"damaged,omitempty"`  // layer -> problem
}

// scrubber verifies all layers one after the other.
type scrubber struct {
	fileMu sync.Mutex // held during a write of scrub.json

	mu        sync.Mutex // guards the fields below
	state     scrubState
	savedAt   time.Time
	remaining scrubList // of the round that continues
}

// readScrubState reads the state of the scrub. One that cannot be decoded counts as none.
func readScrubState(dir *layout.Dir) (scrubState, error) {
	var s scrubState
	raw, err := dir.Root().ReadFile(scrubFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	if json.Unmarshal(raw, &s) != nil {
		s = scrubState{}
	}
	return s, nil
}

func (s scrubState) damagedLayers() map[blob.Digest]string {
	out := map[blob.Digest]string{}
	for name, problem := range s.Damaged {
		if root, err := blob.ParseDigest(name); err == nil && problem != "" {
			out[root] = problem
		}
	}
	return out
}

// loadScrub loads what an earlier process found. It drops marks of layers that no longer exist.
func (r *Registry) loadScrub() error {
	state, err := readScrubState(r.dir)
	if err != nil {
		return err
	}
	for root, problem := range state.damagedLayers() {
		if r.storedLayers[root] != nil {
			r.badLayers[root] = problem
		}
	}
	r.scrubber.state = state
	return nil
}

// saveScrub writes the state. A failure loses what was found since the last write, which the next round finds
// again.
func (r *Registry) saveScrub() {
	s := &r.scrubber
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	known := r.damagedLayers()
	s.mu.Lock()
	s.state.Damaged = make(map[string]string, len(known))
	for root, problem := range known {
		s.state.Damaged[root.String()] = problem
	}
	s.savedAt = time.Now()
	raw, err := json.MarshalIndent(s.state, "", " ")
	s.mu.Unlock()
	if err == nil {
		err = r.dir.WriteFile("scrub", scrubFile, append(raw, '\n'))
	}
	if err != nil {
		r.log.Warn("writing the scrub state failed", "error", err)
	}
}

// damagedLayers returns the stored layers that are damaged.
func (r *Registry) damagedLayers() map[blob.Digest]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[blob.Digest]string{}
	for root, problem := range r.badLayers {
		if r.storedLayers[root] != nil {
			out[root] = problem
		}
	}
	return out
}

// recordTraffic records that a push or a pull transfers bytes now.
func (r *Registry) recordTraffic() { r.lastTrafficNanos.Store(time.Now().UnixNano()) }

func (r *Registry) hasTraffic() bool {
	return time.Since(time.Unix(0, r.lastTrafficNanos.Load())) < busyAfterTraffic
}

// runScrub verifies layers until ctx ends, at Options.ScrubRate and slower during pushes and pulls.
func (r *Registry) runScrub(ctx context.Context) {
	for root := range r.damagedLayers() { // a copy may have replaced it
		r.checkLayer(ctx, root, 0, func(int, int) {})
	}
	for ctx.Err() == nil {
		r.scrubber.mu.Lock()
		began := time.Unix(r.scrubber.state.Began, 0)
		if wait := time.Until(began); wait > 0 {
			began = began.Add(-wait) // the clock was ahead
		}
		open := r.scrubber.state.Finished < r.scrubber.state.Began
		r.scrubber.mu.Unlock()
		if !open {
			if sleep(ctx, time.Until(began.Add(minScrubInterval))) != nil {
				return
			}
			r.beginScrubRound()
		}
		r.scrubRound(ctx)
	}
	r.saveScrub()
}

func (r *Registry) beginScrubRound() {
	r.scrubber.mu.Lock()
	defer r.scrubber.mu.Unlock()
	r.scrubber.remaining = scrubList{}
	s := &r.scrubber.state
	s.Cursor, s.Frame, s.Passed, s.Verified, s.Began = "", 0, false, 0, time.Now().Unix()
}

// scrubRound resumes a round and completes it.
func (r *Registry) scrubRound(ctx context.Context) {
	for ctx.Err() == nil {
		root, frame, ok := r.nextToScrub()
		if !ok {
			r.scrubber.mu.Lock()
			s := &r.scrubber.state
			s.Cursor, s.Frame, s.Passed, s.Finished = "", 0, false, max(time.Now().Unix(), s.Began)
			verified := s.Verified
			r.scrubber.mu.Unlock()
			r.saveScrub()
			r.log.Info("scrub round finished: all layers verified", "bytes", verified, "damaged",
				len(r.damagedLayers()))
			return
		}
		if r.checkLayer(ctx, root, frame, r.recordScrubbed) {
			r.scrubber.mu.Lock()
			r.scrubber.state.Passed = true
			r.scrubber.mu.Unlock()
		}
	}
}

// nextToScrub moves the cursor to the next layer, or returns the position within one.
func (r *Registry) nextToScrub() (root blob.Digest, frame int, ok bool) {
	r.scrubber.mu.Lock()
	defer r.scrubber.mu.Unlock()
	s := &r.scrubber.state
	root, ok = r.scrubber.remaining.nextFrom(s.Cursor, s.Passed, r.sortedLayers)
	if !ok {
		return root, 0, false
	}
	if name := root.String(); name != s.Cursor || s.Passed {
		s.Cursor, s.Frame, s.Passed = name, 0, false
	}
	return root, s.Frame, true
}

// sortedLayers lists the stored layers in the order of their names.
func (r *Registry) sortedLayers() []blob.Digest {
	r.mu.Lock()
	roots := slices.Collect(maps.Keys(r.storedLayers))
	r.mu.Unlock()
	slices.SortFunc(roots, func(a, b blob.Digest) int { return bytes.Compare(a[:], b[:]) })
	return roots
}

// scrubList is the rest of a scrub round. It is listed once: layers added since then were verified on arrival.
type scrubList struct {
	layers []blob.Digest
	listed bool
}

// nextFrom returns the first layer at a cursor, or behind it if the layer at the cursor is done.
func (l *scrubList) nextFrom(cursor string, passed bool, list func() []blob.Digest) (blob.Digest, bool) {
	if !l.listed {
		l.layers, l.listed = list(), true
	}
	for len(l.layers) > 0 {
		if name := l.layers[0].String(); name > cursor || name == cursor && !passed {
			return l.layers[0], true
		}
		l.layers = l.layers[1:]
	}
	*l = scrubList{}
	return blob.Digest{}, false
}

// checkLayer verifies one layer from a frame on and sets or clears its damage mark. note is called after each
// frame with the next one and the bytes read. It returns false if the context ended before.
func (r *Registry) checkLayer(ctx context.Context, root blob.Digest, first int, note func(next, n int)) bool {
	err := r.verifyLayer(ctx, root, first, note)
	switch {
	case context.Cause(ctx) != nil:
		return false
	case errors.Is(err, fs.ErrNotExist): // collected since then
	case isDamage(err):
		r.markDamaged(root, damageText(err))
	case err != nil:
		r.log.Warn("verifying a layer failed", "layer", root.String(), "error", err)
	case first == 0:
		r.clearDamage(root)
	}
	return true
}

func (r *Registry) verifyLayer(ctx context.Context, root blob.Digest, first int, note func(next, n int)) error {
	f, err := r.store.Open(ctx, root)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	layer, err := blob.OpenLayer(f, st.Size(), root)
	if err != nil {
		return err
	}
	p := &rateLimiter{rate: r.opts.ScrubRate, busy: r.hasTraffic, onFrame: func(i int) {
		note(i+1, layer.Index().Frame(i).StoredSize)
	}}
	return verifyFrames(ctx, f, layer, first, p)
}

// recordScrubbed records a verified frame.
func (r *Registry) recordScrubbed(next, n int) {
	s := &r.scrubber
	s.mu.Lock()
	s.state.Frame = next
	s.state.Verified += int64(n)
	due := time.Since(s.savedAt) > scrubSaveInterval
	s.mu.Unlock()
	if due {
		r.saveScrub()
	}
}

// scrubStatus returns the progress of the scrub.
func (r *Registry) scrubStatus() api.ScrubState {
	damaged := len(r.damagedLayers())
	r.scrubber.mu.Lock()
	defer r.scrubber.mu.Unlock()
	s := &r.scrubber.state
	return api.ScrubState{
		Rate: r.opts.ScrubRate, Verified: s.Verified, Began: s.Began, Finished: s.Finished,
		Damaged: damaged,
	}
}
