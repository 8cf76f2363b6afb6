package election

import (
	"context"
	"errors"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/store"
)

// Lease is the name of the lease whose holder is the leader.
const Lease = "schedule"

const (
	retryDelay    = 250 * time.Millisecond // after a lease could not be acquired or used
	resignTimeout = 2 * time.Second        // of the release of the lease; one that is not released expires
	checkInterval = time.Second            // of the store of a leader
)

// maxFailedChecks is how many successive checks must find the store out of order before a leader term
// ends: a replica that does not see the writes of others must not decide for them.
const maxFailedChecks = 5

// Run waits for the lease, calls lead with a term for as long as it holds the lease, and waits again,
// until the context ends; then it releases the lease immediately. lead returns when its context ends.
func Run(ctx context.Context, db record.DB, lead func(ctx context.Context, term *record.Term)) {
	for ctx.Err() == nil {
		lease, err := db.Store.Campaign(ctx, Lease)
		if err == nil {
			err = runTerm(ctx, db, lease, lead)
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		db.Log.WarnContext(ctx, "leader election failed", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryDelay):
		}
	}
}

// runTerm calls lead until the lease is lost, and releases the lease immediately when ctx ends. First
// it reads the records up to the moment at which the lease was won: no write of an earlier leader is
// missing then, and none can follow.
func runTerm(
	ctx context.Context, db record.DB, lease store.Lease, lead func(context.Context, *record.Term),
) (err error) {
	termCtx, end := context.WithCancel(ctx)
	defer func() { err = errors.Join(err, resign(ctx, lease)) }()
	defer end()
	go watch(termCtx, db, lease, end)
	if err := db.UpToDate(termCtx); err != nil {
		return err
	}
	lead(termCtx, record.NewTerm(db.Store.WithFence(lease.Fence()), db.Now(), termCtx.Done(), end))
	return nil
}

// watch ends a leader term whose lease is lost, or whose replica no longer sees the writes of others.
func watch(ctx context.Context, db record.DB, lease store.Lease, end context.CancelFunc) {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for failed := 0; failed < maxFailedChecks; {
		select {
		case <-ctx.Done():
			return
		case <-lease.Lost():
			end()
			return
		case <-ticker.C:
		}
		if db.Store.WatchHealthy() == nil {
			failed = 0
		} else {
			failed++
		}
	}
	end()
}

func resign(ctx context.Context, lease store.Lease) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignTimeout)
	defer cancel()
	return lease.Resign(ctx)
}
