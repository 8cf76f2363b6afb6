package reconcile

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// Rule is an action on an instance that is due at some time.
type Rule struct {
	Name string // why, for the log; "" is not logged
	// Pauses: maintenance mode delays it, since no caller has requested it.
	Pauses bool
	// When returns the time from which it is due; zero: never, as the record is now.
	When func(i *farm.Instance) time.Time
	// Do returns the record afterwards; nil: it goes into the history.
	Do func(i *farm.Instance, now time.Time) *farm.Instance
}

// Job is a periodic task of the leader. It receives the leader term as its only writer, so that it
// can write nothing without the fence.
type Job struct {
	Name string
	Due  bool
	Do   func(ctx context.Context, term *record.Term, now time.Time) error
}
