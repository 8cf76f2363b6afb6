package store

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// minBarrierInterval is the shortest time between two read-index rounds; a caller after a pause never waits for it.
const minBarrierInterval = time.Millisecond

// barrierBatcher shares one request to the backend among all callers that came before it was sent.
type barrierBatcher struct {
	mu        sync.Mutex
	nextRound *barrierRound // not sent yet; later callers join
	running   bool          // a goroutine serves rounds
	lastSent  time.Time     // when the last request was sent
}

type barrierRound struct {
	done chan struct{}
	rev  int64
	err  error
}

// AppliedRevision returns the revision up to which the tables have every write of any process, and
// a channel that is closed when it has grown. Records of later revisions may already be in the
// tables, in any order.
func (s *Store) AppliedRevision() (rev int64, moved <-chan struct{}) {
	rev, _, moved = s.model.watchProgress()
	return rev, moved
}

// WaitDelivered returns when the subscribers have received everything that the tables showed before
// the call: they receive it a moment later.
func (s *Store) WaitDelivered(ctx context.Context) error {
	return s.model.dispatcher.waitDelivered(ctx)
}

// Barrier returns when the tables show everything that any process had committed before the call.
// It is needed before a read only where several processes write; a single process always sees its
// own writes.
func (s *Store) Barrier(ctx context.Context) error {
	round := s.joinBarrier()
	select {
	case <-round.done:
	case <-ctx.Done():
		return fmt.Errorf("barrier: %w", context.Cause(ctx))
	}
	if round.err != nil {
		return fmt.Errorf("barrier: %w", round.err)
	}
	return s.waitApplied(ctx, round.rev)
}

// WaitConsistent returns when every table shows what any of them showed before the call: the
// records of one revision become visible table by table.
func (s *Store) WaitConsistent() { s.model.waitPublished() }

func (s *Store) joinBarrier() *barrierRound {
	b := &s.barrier
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.nextRound == nil {
		b.nextRound = &barrierRound{done: make(chan struct{})}
	}
	round := b.nextRound
	if !b.running {
		b.running = s.goUnlessClosed(s.serveBarriers)
	}
	if !b.running {
		b.nextRound, round.err = nil, ErrClosed
		close(round.done)
	}
	return round
}

func (s *Store) goUnlessClosed(fn func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.tasks.Go(fn)
	}
	return !s.closed
}

// serveBarriers serves round after round and ends when no caller waits.
func (s *Store) serveBarriers() {
	b := &s.barrier
	for {
		b.mu.Lock()
		wait := minBarrierInterval - time.Since(b.lastSent)
		b.mu.Unlock()
		if wait > 0 {
			time.Sleep(wait)
		}
		b.mu.Lock()
		round := b.nextRound
		b.nextRound, b.running, b.lastSent = nil, round != nil, time.Now()
		b.mu.Unlock()
		if round == nil {
			return
		}
		round.rev, round.err = s.backendBarrier(s.ctx)
		close(round.done)
	}
}

// waitApplied waits until the watch has passed rev. A watch without events has to be asked for its
// progress, and does not answer while it is catching up: it is asked again.
func (s *Store) waitApplied(ctx context.Context, rev int64) error {
	const again = 20 * time.Millisecond
	for {
		watched, _, moved := s.model.watchProgress()
		if watched >= rev {
			return nil
		}
		timer := time.NewTimer(again)
		select {
		case <-moved:
		case <-timer.C:
			if _, err := s.backendBarrier(ctx); err != nil {
				return fmt.Errorf("barrier: %w", err)
			}
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("wait for the commit at revision %d (this replica has applied %d): %w", rev, watched,
				context.Cause(ctx))
		}
		timer.Stop()
	}
}
