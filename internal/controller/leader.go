package controller

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/periodic"
	"github.com/buildyard/buildyard/internal/store"
)

// leaseSchedule is the name of the lease whose holder is the leader.
const leaseSchedule = "schedule"

// leadRetry is the pause after a lease could not be acquired or used.
const leadRetry = 250 * time.Millisecond

// leaderTerm is the time during which this replica holds the lease. It is the Writer of everything
// that only the leader may write: once another replica holds the lease, no write goes through it,
// however late it arrives.
//
// A write whose outcome stays unknown ends it: only a new leader term can determine the outcome,
// since it makes that write impossible and reads the records again.
type leaderTerm struct {
	fenced store.Writer
	since  time.Time
	over   <-chan struct{} // closed when it has ended, which may be while the lease is still held
	end    context.CancelFunc
}

var _ store.Writer = (*leaderTerm)(nil)

// Commit implements store.Writer. A leader term that has ended writes nothing, even where its lease
// would still allow it: later decisions may rely on capacity that a write of unknown outcome has
// used.
func (r *leaderTerm) Commit(ctx context.Context, changes ...store.Change) error {
	select {
	case <-r.over:
		return store.ErrFenced
	default:
	}
	err := r.fenced.Commit(ctx, changes...)
	if errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrUnknownOutcome) {
		r.end()
	}
	return err
}

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
	if err := c.upToDate(under); err != nil {
		return err
	}
	r := &leaderTerm{fenced: c.store.Under(lease.Fence()), since: c.now(), over: under.Done(), end: end}
	c.placer.begin(r)
	defer c.placer.finish(r)
	var wg sync.WaitGroup
	wg.Go(func() { c.placer.run(under, r) })
	wg.Go(func() { c.runReconciler(under, r) })
	wg.Go(func() { c.events.deliver(under, r) })
	wg.Go(func() { c.macs.run(under, r) })
	wg.Go(func() { periodic.Run(under, c.opts.Chores, c.log) })
	wg.Wait()
	return nil
}

// upToDateTime bounds the wait for the tables.
const upToDateTime = 5 * time.Second

// upToDate returns when the tables show everything that was written before the call.
func (c *Controller) upToDate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, upToDateTime)
	defer cancel()
	return c.store.Barrier(ctx)
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
