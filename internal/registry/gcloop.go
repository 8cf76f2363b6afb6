package registry

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
)

// gcInterval is how often Run collects.
const gcInterval = time.Minute

// resultRetention is how long a committed push answers a repeated commit.
const resultRetention = time.Hour

// Run collects garbage, scrubs and squashes until ctx ends.
func (r *Registry) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	if r.opts.ScrubRate > 0 {
		work.Go(func() { r.runScrub(ctx) })
	}
	work.Go(func() { r.runSquash(ctx) })
	r.maintainReserve(ctx)
	tick := time.NewTicker(gcInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := r.gcUnlessPaused(ctx); err != nil && ctx.Err() == nil {
				r.log.Warn("garbage collection failed", "error", err)
			}
			r.maintainReserve(ctx)
			r.aux.pruneLogs()
		}
	}
}

// MaxGCPause bounds a pause of garbage collection, so that a client that pauses it and dies does not block it
// permanently.
const MaxGCPause = 10 * time.Minute

// PauseGC keeps Run from collecting anything for a time; 0 ends the pause. It waits for the end of a running
// collection.
func (r *Registry) PauseGC(length time.Duration) error {
	if length < 0 || length > MaxGCPause {
		return farm.Invalid("seconds", "must be between 0 and %d seconds", int(MaxGCPause/time.Second))
	}
	r.gcMu.Lock()
	defer r.gcMu.Unlock()
	r.gcPausedUntil = r.opts.Now().Add(length)
	return nil
}

// gcUnlessPaused is one round of Run.
func (r *Registry) gcUnlessPaused(ctx context.Context) error {
	r.gcMu.Lock()
	defer r.gcMu.Unlock()
	if r.opts.Now().Before(r.gcPausedUntil) {
		return nil
	}
	return r.CollectGarbage(ctx)
}

// CollectGarbage ends idle pushes, moves layer files that nothing has needed for Options.Grace to the trash, and
// removes scan results of contents that no version has. It also removes trash older than Options.TrashRetention.
// Pushes and pulls run concurrently with it.
func (r *Registry) CollectGarbage(ctx context.Context) error {
	now := r.opts.Now()
	var errs []error
	r.expireEmptyPushes(ctx)
	for _, s := range r.idleSessions(now) {
		errs = append(errs, r.expireSession(ctx, s))
	}
	for _, root := range r.unreferencedLayers(now) {
		errs = append(errs, r.trashLayer(ctx, root, now))
	}
	errs = append(errs, r.removeStaleScans(), r.purgeTrash(ctx, now.Add(-r.opts.TrashRetention)))
	r.measureTrash()
	return errors.Join(errs...)
}

func (r *Registry) idleSessions(now time.Time) []*session {
	var idle []*session
	for _, s := range r.allSessions() {
		if s.isIdle(now, r.opts.IdlePushTimeout) {
			idle = append(idle, s)
		}
	}
	return idle
}

func (r *Registry) allSessions() []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.sessions))
}

func (s *session) isIdle(now time.Time, limit time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		limit = min(limit, resultRetention)
	}
	return now.Sub(s.lastUsed) > limit
}

func (r *Registry) expireSession(ctx context.Context, s *session) error {
	if !s.commitMu.TryLock() {
		return nil // a commit is running
	}
	defer s.commitMu.Unlock()
	if s.committedResult() == nil {
		r.log.Info("idle push session ended", "session", s.id, "template", s.templateID)
	}
	return r.endSession(ctx, s)
}

// unreferencedLayers returns the layers that have been unreferenced for the grace period. The period starts
// when a collection first finds the layer unreferenced, and starts again after it was referenced.
func (r *Registry) unreferencedLayers(now time.Time) []blob.Digest {
	r.mu.Lock()
	defer r.mu.Unlock()
	for root, until := range r.leasedUntil {
		if now.After(until) {
			delete(r.leasedUntil, root)
		}
	}
	var out []blob.Digest
	for root, l := range r.storedLayers {
		switch {
		case r.isReferencedLocked(root):
			l.unreferencedSince = time.Time{}
		case l.unreferencedSince.IsZero():
			l.unreferencedSince = now
		case now.Sub(l.unreferencedSince) >= r.opts.GCGrace:
			out = append(out, root)
		}
	}
	return out
}

func (r *Registry) isReferencedLocked(root blob.Digest) bool {
	if r.layerRefs[root] > 0 || r.layerPins[root] > 0 { // almost always: this is called for all layers
		return true
	}
	_, leased := r.leasedUntil[root]
	return leased
}

// trashLayer moves a layer to the trash unless it is referenced by now or already in the trash.
func (r *Registry) trashLayer(ctx context.Context, root blob.Digest, now time.Time) error {
	defer r.layerMutexes.lock(root)()
	r.mu.Lock()
	l := r.storedLayers[root]
	if l == nil || r.isReferencedLocked(root) { // another goroutine was faster
		r.mu.Unlock()
		return nil
	}
	delete(r.storedLayers, root)
	r.mu.Unlock()
	if err := r.store.Trash(ctx, root, now); err != nil {
		r.mu.Lock()
		r.storedLayers[root] = l
		r.mu.Unlock()
		return err
	}
	r.metrics.gcLayers.Inc()
	r.metrics.gcBytes.Add(l.size)
	r.log.Info("unreferenced layer moved to the trash", "layer", root.String())
	return nil
}
