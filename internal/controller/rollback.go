package controller

import (
	"context"
	"errors"
	"time"

	"github.com/buildyard/buildyard/internal/controller/placement"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const (
	rollBackTime  = 30 * time.Second // that a caller waits until the rest of its failed call is ended
	rollBackPause = 5 * time.Second  // between the attempts after that
	rollBackLimit = 15 * time.Minute // after which what cannot be ended stays, and is logged
	// lateTime is how long to look for an instance whose creation may still arrive: far longer than
	// a transaction takes in a store that answers.
	lateTime = 2 * time.Minute
)

// rollBack ends the instances of a call that failed half-way. It terminates them, since some may
// already be placed. written means that they exist, else their creation may arrive later. What
// cannot be ended while the caller waits is ended in the background.
func (c *Controller) rollBack(ctx context.Context, drafts []placement.Draft, written bool) {
	ctx = context.WithoutCancel(ctx)
	left := c.endDrafts(ctx, drafts, written)
	if len(left) > 0 {
		go c.rollBackLater(ctx, left, written)
	}
}

// rollBackLater continues with a rollback until nothing of the call is left, or can arrive.
func (c *Controller) rollBackLater(ctx context.Context, drafts []placement.Draft, written bool) {
	begun, answered := c.now(), time.Time{}
	for len(drafts) > 0 && c.now().Sub(begun) < rollBackLimit {
		select {
		case <-c.stopped:
			return
		case <-time.After(rollBackPause):
		}
		if errors.Is(c.store.Healthy(), store.ErrClosed) {
			return
		}
		if c.db.UpToDate(ctx) != nil {
			answered = time.Time{}
			continue
		}
		if answered.IsZero() {
			answered = c.now()
		}
		drafts = c.endDrafts(ctx, drafts, written || c.now().Sub(answered) >= lateTime)
	}
	if len(drafts) > 0 {
		c.log.ErrorContext(ctx, "undoing a failed start failed; terminate its instances",
			"alarm", "rollback_failed", "count", len(drafts), "first", drafts[0].Asked.ID)
	}
}

// endDrafts terminates instances and returns those that it could not. They include instances that
// do not exist, unless final is set: then they cannot be created any longer.
func (c *Controller) endDrafts(ctx context.Context, drafts []placement.Draft, final bool) (left []placement.Draft) {
	ctx, cancel := context.WithTimeout(ctx, rollBackTime)
	defer cancel()
	for _, d := range drafts {
		err := c.end(ctx, c.store, d.Asked.ID)
		gone := farm.CodeOf(err) == farm.CodeNotFound
		if err != nil && (!gone || !final) {
			left = append(left, d)
		}
	}
	return left
}
