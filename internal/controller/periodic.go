package controller

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/store"
)

// sweepEvery is how often everything that seldom changes is checked.
const sweepEvery = time.Minute

// leaderJob is a periodic task of the leader. It receives the leader term as its only writer, so
// that it can write nothing without the fence.
type leaderJob struct {
	what string
	due  bool
	do   func(context.Context, *record.Term, time.Time) error
}

// chores runs the leader's periodic jobs that are due.
func (k *reconciler) chores(ctx context.Context) {
	now := k.c.now()
	sweep := now.Sub(k.swept) >= sweepEvery
	if sweep {
		k.swept = now
	}
	for _, job := range k.jobs(sweep) {
		if !job.due {
			continue
		}
		if err := job.do(ctx, k.w, now); err != nil && ctx.Err() == nil {
			k.c.log.WarnContext(ctx, "prune failed", "what", job.what, "error", err)
		}
	}
}

// jobs returns the tasks; with sweep also those that are seldom due.
func (k *reconciler) jobs(sweep bool) []leaderJob {
	working := !k.c.maintenance()
	return []leaderJob{
		{"pending save requests", true, k.c.tidyPending},
		{"the history", working, k.c.tidyHistory},
		{"save requests", working && (k.stale.Swap(false) || sweep), k.c.tidySaves},
		{"scripts of starts", k.loose.Swap(false) || sweep, k.c.tidyScripts},
		{"errands", working && (k.moved.Swap(false) || sweep), k.c.tidyCacheJobs},
		{"updates of agents", working && (k.renewed() || sweep), k.c.tidyUpdates},
		{"removed nodes", sweep, k.c.tidyRemoved},
		{"released VMs", sweep, k.c.tidyReleased},
		{"nodes of deleted groups", sweep, k.c.tidyGroups},
		{"named requests", sweep, k.c.tidyKept},
		{"results of scans", working && sweep, k.c.tidyScans},
		{"deletions of templates", sweep, k.c.tidyDeletions},
		{"digests of replicas", sweep, k.c.ages.tidy},
		{"figures of the last days", true, k.c.Usage.StoreSeries},
	}
}

// renewed reports whether agents may have to be updated since the last call.
func (k *reconciler) renewed() bool {
	select {
	case <-k.c.opts.Packages.Changed():
		k.renew.Store(true)
	default:
	}
	return k.renew.Swap(false)
}

// tidyRemoved deletes the records of nodes that were removed long ago.
func (c *Controller) tidyRemoved(ctx context.Context, w *record.Term, now time.Time) error {
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
