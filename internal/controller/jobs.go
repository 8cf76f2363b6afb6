package controller

import (
	"context"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/controller/nodes"
	"github.com/buildyard/buildyard/internal/controller/reconcile"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// reconcile reconciles until the context ends. Only the leader calls it.
func (c *Controller) reconcile(ctx context.Context, term *record.Term) {
	c.isLeader.Store(true)
	defer c.isLeader.Store(false)
	reconcile.New(c.db, term, c.reconcileOptions(term)).Run(ctx)
}

// reconcileOptions returns the options of a reconciler: the settings, and what it needs of other parts.
func (c *Controller) reconcileOptions(term *record.Term) reconcile.Options {
	o := c.opts
	from := func(t time.Time) time.Time {
		if t.Before(term.Since()) { // this replica does not know what it has missed before
			t = term.Since()
		}
		return c.Maintenance.After(t) // what was lost during a maintenance gets its full time
	}
	return reconcile.Options{
		Tick: time.Second, InstanceTimeout: o.InstanceTimeout,
		KeepTerminated: o.KeepTerminated, StartTimeout: o.StartTimeout, PullTimeout: o.PullTimeout,
		PushTimeout: o.PushTimeout, ContactGap: nodelink.ContactGap,
		Nodes: nodes.NewStateReconciler(c.db, term, nodes.StateOptions{
			NodeTimeout: o.NodeTimeout, LastContact: c.Link.LastContact, Orphans: c.Link.Orphans.Load,
			Since: from, MarkLost: (*farm.Instance).AfterNodeLost, WithEvent: c.Events.With,
		}),
		Jobs: c.jobs(), Paused: c.Maintenance.On, From: from,
		LastContact: c.Link.LastContact, Unacknowledged: c.Link.Sessions.Unacknowledged,
		Archive: c.History.Archive, EndSave: c.Saves.End,
	}
}

// jobs returns the periodic jobs of the leader.
func (c *Controller) jobs() []reconcile.Job {
	return []reconcile.Job{
		{Name: "pending save requests", Always: true, Do: c.Saves.EndPending},
		{Name: "the history", Always: true, Pauses: true, Do: c.History.Prune},
		{Name: "save requests", After: changesOf(record.KindSave,
			record.KindSaveChunk), Pauses: true, Do: c.Saves.Prune},
		{Name: "scripts of starts", After: removesScripted, Do: c.payloads.PruneScripts},
		{Name: "cache jobs", After: endsCacheJobs, Pauses: true, Do: c.CacheJobs.Prune},
		{
			Name: "updates of agents", After: changesOf(record.KindNode, record.KindNodeInfo, record.KindAgentRollout),
			Due: c.packagesChanged, Pauses: true, Do: c.Updates.Continue,
		},
		{Name: "removed nodes", Do: c.Nodes.Prune},
		{Name: "join tokens", Do: c.JoinTokens.Prune},
		{Name: "released VMs", Do: c.Link.Orphans.PruneReleased},
		{Name: "nodes of deleted groups", Do: c.Groups.Prune},
		{Name: "idempotency keys", Do: c.Idempotency.Prune},
		{Name: "results of scans", Pauses: true, Do: c.Scans.Prune},
		{Name: "vulnerabilities of versions", Pauses: true, Do: c.Findings.Prune},
		{Name: "deletions of templates", Do: c.Templates.PruneDeletions},
		{Name: "digests of replicas", Do: c.Link.Peers.Prune},
		{Name: "time series", Always: true, Do: c.Usage.StoreSeries},
	}
}

// changesOf returns whether a change is one of a record of some kinds.
func changesOf(kinds ...store.Kind) func(store.Event) bool {
	return func(e store.Event) bool { return slices.Contains(kinds, e.Kind) }
}

// removesScripted reports whether a change removes an instance that has a script.
func removesScripted(e store.Event) bool {
	inst, ok := e.Old.(*farm.Instance)
	return ok && e.New == nil && inst.Options.ScriptID != ""
}

// endsCacheJobs reports whether a cache job may have ended with a change.
func endsCacheJobs(e store.Event) bool {
	return e.Kind == record.KindCacheJob || e.Kind == record.KindCacheJobResult ||
		e.Kind == record.KindNode && e.New == nil
}

// packagesChanged reports whether the agent packages have changed since the last call.
func (c *Controller) packagesChanged() bool {
	select {
	case <-c.opts.Packages.Changed():
		return true
	default:
		return false
	}
}
