package controller

import (
	"context"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// recorder is the store as the use cases see it: what they commit carries the events that
// it makes, in the same transaction. While events are off it is the store and nothing else.
type recorder struct {
	*store.Store
	events *eventLog // nil: off
}

var _ store.Writer = recorder{}

// Commit implements store.Writer.
func (r recorder) Commit(ctx context.Context, changes ...store.Change) error {
	if r.events == nil {
		return r.Store.Commit(ctx, changes...)
	}
	return r.Store.Commit(ctx, r.events.join(ctx, changes)...)
}

// Under is Store.Under, with events.
func (r recorder) Under(fence store.Fence) store.Writer {
	if r.events == nil {
		return r.Store.Under(fence)
	}
	return recorded{r.Store.Under(fence), r.events}
}

// Limits leaves room for one record of events in each commit.
func (r recorder) Limits() store.Limits {
	limits := r.Store.Limits()
	if r.events != nil {
		limits.Ops--
	}
	return limits
}

// recorded is a writer whose commits carry their events.
type recorded struct {
	to     store.Writer
	events *eventLog
}

func (r recorded) Commit(ctx context.Context, changes ...store.Change) error {
	return r.to.Commit(ctx, r.events.join(ctx, changes)...)
}

// saying is a writer whose commits carry an event that their records do not tell of.
type saying struct {
	to     store.Writer
	events *eventLog
	event  func() farm.Event // asked when it commits
}

func (s saying) Commit(ctx context.Context, changes ...store.Change) error {
	return s.to.Commit(ctx, s.events.say(ctx, changes, s.event())...)
}

// with gives a writer whose commits carry an event as well: w itself while events are off.
// The event is asked for when it commits, and gets the time of that unless it has one.
func (e *eventLog) with(w store.Writer, event func() farm.Event) store.Writer {
	if e == nil {
		return w
	}
	return saying{w, e, event}
}
