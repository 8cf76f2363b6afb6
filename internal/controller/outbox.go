package controller

import (
	"context"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// outboxStore is the store for the use cases: their commits carry the resulting events in the same
// transaction. While events are off it only forwards to the store.
type outboxStore struct {
	*store.Store
	events *eventLog // nil: off
}

var _ store.Writer = outboxStore{}

// Commit implements store.Writer.
func (r outboxStore) Commit(ctx context.Context, changes ...store.Change) error {
	if r.events == nil {
		return r.Store.Commit(ctx, changes...)
	}
	return r.Store.Commit(ctx, r.events.join(ctx, changes)...)
}

// Under is Store.Under, with events.
func (r outboxStore) Under(fence store.Fence) store.Writer {
	if r.events == nil {
		return r.Store.WithFence(fence)
	}
	return outboxWriter{r.Store.WithFence(fence), r.events}
}

// Limits reserves one change of each commit for a record of events.
func (r outboxStore) Limits() store.Limits {
	limits := r.Store.Limits()
	if r.events != nil {
		limits.Ops--
	}
	return limits
}

// outboxWriter is a writer whose commits carry their events.
type outboxWriter struct {
	to     store.Writer
	events *eventLog
}

func (r outboxWriter) Commit(ctx context.Context, changes ...store.Change) error {
	return r.to.Commit(ctx, r.events.join(ctx, changes)...)
}

// eventWriter is a writer whose commits carry an event that does not follow from their records.
type eventWriter struct {
	to     store.Writer
	events *eventLog
	event  func() farm.Event // called at the commit
}

func (s eventWriter) Commit(ctx context.Context, changes ...store.Change) error {
	return s.to.Commit(ctx, s.events.say(ctx, changes, s.event())...)
}

// with returns a writer whose commits carry an event as well: w itself while events are off. event
// is called at the commit, and its result gets the time of that unless it has one.
func (e *eventLog) with(w store.Writer, event func() farm.Event) store.Writer {
	if e == nil {
		return w
	}
	return eventWriter{w, e, event}
}
