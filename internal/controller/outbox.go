package controller

import (
	"context"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

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
