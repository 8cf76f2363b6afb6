package controller

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/store"
)

// sweepEvery is how often what seldom changes is looked through.
const sweepEvery = time.Minute

// chores are what is done now and then, whatever happens.
func (k *keeper) chores(ctx context.Context) {
	now := k.c.now()
	sweep := now.Sub(k.swept) >= sweepEvery
	if sweep {
		k.swept = now
	}
	for _, chore := range []struct {
		what string
		due  bool
		do   func(context.Context, store.Writer, time.Time) error
	}{
		{"pending save requests", true, k.c.tidyPending},
		{"the history", !k.c.maintenance(), k.c.tidyHistory},
		{"save requests", !k.c.maintenance() && (k.stale.Swap(false) || sweep), k.c.tidySaves},
		{"errands", !k.c.maintenance() && (k.moved.Swap(false) || sweep), k.c.tidyErrands},
		{"updates of agents", !k.c.maintenance() && (k.renewed() || sweep), k.c.tidyUpdates},
		{"removed nodes", sweep, k.c.tidyRemoved},
		{"released VMs", sweep, k.c.tidyReleased},
		{"nodes of deleted groups", sweep, k.c.tidyGroups},
		{"named requests", sweep, k.c.tidyKept},
		{"results of scans", !k.c.maintenance() && sweep, k.c.tidyScans},
		{"deletions of templates", sweep, k.c.tidyDeletions},
		{"digests of replicas", sweep, k.c.ages.tidy},
		{"figures of the last days", true, k.c.series.keep},
	} {
		if !chore.due {
			continue
		}
		if err := chore.do(ctx, k.w, now); err != nil && ctx.Err() == nil {
			k.c.log.WarnContext(ctx, "could not tidy", "what", chore.what, "error", err)
		}
	}
}

// renewed says whether agents may have to be updated since it was last asked.
func (k *keeper) renewed() bool {
	select {
	case <-k.c.opts.Packages.Changed():
		k.renew.Store(true)
	default:
	}
	return k.renew.Swap(false)
}

// tidyRemoved forgets nodes that were removed long ago.
func (c *Controller) tidyRemoved(ctx context.Context, w store.Writer, now time.Time) error {
	for id, node := range c.tables.Removed.All() {
		if now.Sub(node.At) <= keepRemoved {
			continue
		}
		if err := w.Commit(ctx, store.Delete(c.tables.Removed, id, store.Any)); err != nil {
			return err
		}
	}
	return nil
}
