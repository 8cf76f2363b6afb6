package controller

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/controller/reconcile"
	"github.com/buildyard/buildyard/internal/controller/record"
)

// jobs returns the tasks; with sweep also those that are seldom due.
func (k *reconciler) jobs(sweep bool) []reconcile.Job {
	working := !k.c.Maintenance.On()
	job := func(name string, due bool, do func(context.Context, *record.Term, time.Time) error) reconcile.Job {
		return reconcile.Job{Name: name, Due: due, Do: do}
	}
	return []reconcile.Job{
		job("pending save requests", true, k.c.tidyPending),
		job("the history", working, k.c.tidyHistory),
		job("save requests", working && (k.stale.Swap(false) || sweep), k.c.tidySaves),
		job("scripts of starts", k.loose.Swap(false) || sweep, k.c.payloads.PruneScripts),
		job("cache jobs", working && (k.moved.Swap(false) || sweep), k.c.CacheJobs.Prune),
		job("updates of agents", working && (k.renewed() || sweep), k.c.Updates.Continue),
		job("removed nodes", sweep, k.c.Nodes.Prune),
		job("released VMs", sweep, k.c.Link.Orphans.PruneReleased),
		job("nodes of deleted groups", sweep, k.c.Groups.Prune),
		job("named requests", sweep, k.c.Idempotency.Prune),
		job("results of scans", working && sweep, k.c.Scans.Prune),
		job("deletions of templates", sweep, k.c.Templates.PruneDeletions),
		job("digests of replicas", sweep, k.c.Link.Peers.Prune),
		job("figures of the last days", true, k.c.Usage.StoreSeries),
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
