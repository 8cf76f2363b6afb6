package controller

import (
	"context"

	"github.com/buildyard/buildyard/internal/farm"
)

// AppendEvents adds events to the log that no change of a record here describes; it does nothing
// while events are off. An error leaves open whether they were written.
func (c *Controller) AppendEvents(ctx context.Context, events ...farm.Event) error {
	if c.events == nil || len(events) == 0 {
		return nil
	}
	return c.store.Store.Commit(ctx, c.events.say(ctx, nil, events...)...)
}
