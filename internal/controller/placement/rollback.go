package placement

import (
	"context"
	"errors"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const (
	rollbackTimeout  = 30 * time.Second // that a caller waits until the rest of its failed call is terminated
	rollbackInterval = 5 * time.Second  // between the attempts after that
	rollbackLimit    = 15 * time.Minute // after which what cannot be terminated stays, and is logged
	// arrivalTimeout is how long to look for an instance whose creation may still arrive: far longer than
	// a transaction takes in a store that answers.
	arrivalTimeout = 2 * time.Minute
)

// rollBack terminates the instances of a call that failed half-way: some may already be placed. written
// means that they exist, else their creation may arrive later. What cannot be terminated while the
// caller waits is terminated in the background.
func (p *Placer) rollBack(ctx context.Context, drafts []draft, written bool) {
	ctx = context.WithoutCancel(ctx)
	left := p.terminate(ctx, drafts, written)
	if len(left) > 0 {
		go p.retryRollback(ctx, left, written)
	}
}

// retryRollback continues with a rollback until nothing of the call is left, or can arrive.
func (p *Placer) retryRollback(ctx context.Context, drafts []draft, written bool) {
	begun, upToDate := p.db.Now(), time.Time{}
	for len(drafts) > 0 && p.db.Now().Sub(begun) < rollbackLimit {
		select {
		case <-p.o.Stopped:
			return
		case <-time.After(rollbackInterval):
		}
		if errors.Is(p.db.Store.Healthy(), store.ErrClosed) {
			return
		}
		if p.db.UpToDate(ctx) != nil {
			upToDate = time.Time{}
			continue
		}
		if upToDate.IsZero() {
			upToDate = p.db.Now()
		}
		drafts = p.terminate(ctx, drafts, written || p.db.Now().Sub(upToDate) >= arrivalTimeout)
	}
	if len(drafts) > 0 {
		p.db.Log.ErrorContext(ctx, "undoing a failed start failed; terminate its instances",
			"alarm", "rollback_failed", "count", len(drafts), "first", drafts[0].requested.ID)
	}
}

// terminate ends instances and returns those that it could not. They include instances that do not
// exist, unless final is set: then they cannot be created any longer.
func (p *Placer) terminate(ctx context.Context, drafts []draft, final bool) (left []draft) {
	ctx, cancel := context.WithTimeout(ctx, rollbackTimeout)
	defer cancel()
	for _, d := range drafts {
		err := p.discard(ctx, d)
		gone := farm.CodeOf(err) == farm.CodeNotFound
		if err != nil && (!gone || !final) {
			left = append(left, d)
		}
	}
	return left
}

// discard ends what a draft has become. The record of a standby that another start has claimed since is not touched.
func (p *Placer) discard(ctx context.Context, d draft) error {
	if d.standbyRev > 0 {
		return p.o.TerminateClaimed(ctx, p.db.Store, d.requested.ID, d.requested.Claim)
	}
	return p.o.Terminate(ctx, p.db.Store, d.requested.ID)
}
