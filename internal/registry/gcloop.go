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

// collectEvery is how often Run collects.
const collectEvery = time.Minute

// keepResult is how long a committed push answers a repeated commit.
const keepResult = time.Hour

// Run collects garbage, scrubs and squashes until ctx ends.
func (r *Registry) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	if r.o.ScrubRate > 0 {
		work.Go(func() { r.runScrub(ctx) })
	}
	work.Go(func() { r.runSquash(ctx) })
	r.keepReserve(ctx)
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := r.collectUnlessPaused(ctx); err != nil && ctx.Err() == nil {
				r.log.Warn("garbage collection failed", "error", err)
			}
			r.keepReserve(ctx)
			r.beside.tidy()
		}
	}
}

// MaxPause bounds a pause of garbage collection, so that a client that pauses it and dies does not block it
// permanently.
const MaxPause = 10 * time.Minute

// Pause keeps Run from collecting anything for a time; 0 ends the pause. It waits for the end of a running
// collection.
func (r *Registry) Pause(length time.Duration) error {
	if length < 0 || length > MaxPause {
		return farm.Invalid("seconds", "must be between 0 and %d seconds", int(MaxPause/time.Second))
	}
	r.pausing.Lock()
	defer r.pausing.Unlock()
	r.pausedUntil = r.o.Now().Add(length)
	return nil
}

// collectUnlessPaused is one round of Run.
func (r *Registry) collectUnlessPaused(ctx context.Context) error {
	r.pausing.Lock()
	defer r.pausing.Unlock()
	if r.o.Now().Before(r.pausedUntil) {
		return nil
	}
	return r.Collect(ctx)
}

// Collect ends idle pushes, moves layer files that nothing has needed for Options.Grace to the trash, and
// removes scan results of contents that no version has. It also removes trash older than Options.TrashKeep.
// Pushes and pulls run concurrently with it.
func (r *Registry) Collect(ctx context.Context) error {
	now := r.o.Now()
	var errs []error
	r.endEmpty(ctx)
	for _, s := range r.idleSessions(now) {
		errs = append(errs, r.expire(ctx, s))
	}
	for _, root := range r.unreferencedLayers(now) {
		errs = append(errs, r.trash(ctx, root, now))
	}
	errs = append(errs, r.dropStaleScans(), r.purge(ctx, now.Add(-r.o.TrashKeep)))
	r.measureTrash()
	return errors.Join(errs...)
}

func (r *Registry) idleSessions(now time.Time) []*session {
	var idle []*session
	for _, s := range r.allSessions() {
		if s.idle(now, r.o.IdlePush) {
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

func (s *session) idle(now time.Time, limit time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		limit = min(limit, keepResult)
	}
	return now.Sub(s.touched) > limit
}

func (r *Registry) expire(ctx context.Context, s *session) error {
	if !s.commit.TryLock() {
		return nil // a commit is running
	}
	defer s.commit.Unlock()
	if s.done() == nil {
		r.log.Info("idle push session ended", "session", s.id, "template", s.target)
	}
	return r.endSession(ctx, s)
}

// unreferencedLayers returns the layers that have been unreferenced for the grace period. The period starts
// when a collection first finds the layer unreferenced, and starts again after it was referenced.
func (r *Registry) unreferencedLayers(now time.Time) []blob.Digest {
	r.mu.Lock()
	defer r.mu.Unlock()
	for root, until := range r.leases {
		if now.After(until) {
			delete(r.leases, root)
		}
	}
	var out []blob.Digest
	for root, l := range r.held {
		switch {
		case r.referencedLocked(root):
			l.unreferencedSince = time.Time{}
		case l.unreferencedSince.IsZero():
			l.unreferencedSince = now
		case now.Sub(l.unreferencedSince) >= r.o.Grace:
			out = append(out, root)
		}
	}
	return out
}

func (r *Registry) referencedLocked(root blob.Digest) bool {
	if r.refs[root] > 0 || r.pins[root] > 0 { // almost always: this is called for all layers
		return true
	}
	_, leased := r.leases[root]
	return leased
}

// trash moves a layer to the trash unless it is referenced by now or already in the trash.
func (r *Registry) trash(ctx context.Context, root blob.Digest, now time.Time) error {
	defer r.roots.lock(root)()
	r.mu.Lock()
	l := r.held[root]
	if l == nil || r.referencedLocked(root) { // another goroutine was faster
		r.mu.Unlock()
		return nil
	}
	delete(r.held, root)
	r.mu.Unlock()
	if err := r.store.Trash(ctx, root, now); err != nil {
		r.mu.Lock()
		r.held[root] = l
		r.mu.Unlock()
		return err
	}
	r.metrics.collected.Inc()
	r.metrics.freed.Add(l.size)
	r.log.Info("unreferenced layer moved to the trash", "layer", root.String())
	return nil
}
