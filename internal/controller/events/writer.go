package events

import (
	"context"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// writer is a Writer whose commits carry an event that does not follow from their records.
type writer struct {
	to    store.Writer
	log   *Log
	event func() farm.Event // called at the commit
}

func (s writer) Commit(ctx context.Context, changes ...store.Change) error {
	return s.to.Commit(ctx, s.log.say(ctx, changes, s.event())...)
}

// With returns a writer whose commits carry an event as well: w itself while events are off. event
// is called at the commit, and its result gets the time of that unless it has one.
func (e *Log) With(w store.Writer, event func() farm.Event) store.Writer {
	if e == nil {
		return w
	}
	return writer{w, e, event}
}

// Append adds events to the log that no change of a record here describes; it does nothing while
// events are off. An error leaves open whether they were written.
func (e *Log) Append(ctx context.Context, events ...farm.Event) error {
	if e == nil || len(events) == 0 {
		return nil
	}
	return e.db.Store.Store.Commit(ctx, e.say(ctx, nil, events...)...)
}
