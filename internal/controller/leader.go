package controller

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/store"
)

// leaseSchedule is the name of the lease whose holder is the leader.
const leaseSchedule = "schedule"

// leadRetry is the pause after a lease could not be acquired or used.
const leadRetry = 250 * time.Millisecond

// campaign waits for the lease, does the leader's work for as long as it holds it, and waits again.
func (c *Controller) campaign(ctx context.Context) {
	for ctx.Err() == nil {
		lease, err := c.store.Campaign(ctx, leaseSchedule)
		if err == nil {
			err = c.runTerm(ctx, lease)
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		c.log.WarnContext(ctx, "leader election failed", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(leadRetry):
		}
	}
}

// runTerm does the leader's work until the lease is lost, and releases the lease immediately when
// ctx ends. First it reads the records up to the moment at which the lease was won: no placement of
// an earlier leader is missing then, and none can follow.
func (c *Controller) runTerm(ctx context.Context, lease store.Lease) (err error) {
	under, end := context.WithCancel(ctx)
	defer func() { err = errors.Join(err, c.resign(ctx, lease)) }()
	defer end()
	go c.guard(under, lease, end)
	if err := c.db.UpToDate(under); err != nil {
		return err
	}
	r := record.NewTerm(c.store.WithFence(lease.Fence()), c.now(), under.Done(), end)
	c.placer.Begin(r)
	defer c.placer.Finish(r)
	var wg sync.WaitGroup
	for _, p := range c.wiring() {
		if p.lead != nil {
			wg.Go(func() { p.lead(under, r) })
		}
	}
	wg.Wait()
	return nil
}

// blindAfter is how many successive checks must find the store out of order before a leader term
// ends: a replica that does not see the writes of others must not decide for them.
const blindAfter = 5

// guard ends a leader term whose lease is lost, or whose replica no longer sees the writes of
// others.
func (c *Controller) guard(ctx context.Context, lease store.Lease, end context.CancelFunc) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for blind := 0; blind < blindAfter; {
		select {
		case <-ctx.Done():
			return
		case <-lease.Lost():
			end()
			return
		case <-tick.C:
		}
		if c.store.Following() == nil {
			blind = 0
		} else {
			blind++
		}
	}
	end()
}

// resignTime bounds the release of the lease; a lease that cannot be released expires.
const resignTime = 2 * time.Second

func (c *Controller) resign(ctx context.Context, lease store.Lease) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignTime)
	defer cancel()
	return lease.Resign(ctx)
}
