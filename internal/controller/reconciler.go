package controller

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/controller/nodes"
	"github.com/buildyard/buildyard/internal/controller/reconcile"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// reconciler has what the leader does without a request: it removes what is finished, detects nodes
// without contact and steps that take too long, and ends the instances that cannot recover. It exists
// for one leader term, and writes through w, which is fenced by it.
type reconciler struct {
	c     *Controller
	w     *record.Term
	since time.Time // no timeout counts from before
	loop  *reconcile.Loop
	nodes *nodes.StateReconciler
	stale atomic.Bool // save requests or their chunks have changed
	loose atomic.Bool // an instance with a script was removed
	moved atomic.Bool // a cache job may be over
	renew atomic.Bool // an agent may have to be updated
}

// newReconciler returns the reconciler of a leader term.
func newReconciler(c *Controller, term *record.Term) *reconciler {
	k := &reconciler{c: c, w: term, since: term.Since()}
	k.nodes = nodes.NewStateReconciler(c.db, term, nodes.StateOptions{
		NodeTimeout: c.opts.NodeTimeout, LastContact: c.Link.LastContact, Orphans: c.Link.Orphans.Load,
		Since: k.from, MarkLost: (*farm.Instance).AfterNodeLost, WithEvent: c.Events.With,
	})
	k.loop = reconcile.New(c.db, term, reconcile.Options{
		Tick: c.opts.HousekeepingTick, Rules: k.rules(), Paused: c.Maintenance.On,
		CheckNode: k.checkNode, Archive: c.archiveInstance, Applied: k.applied, Jobs: k.jobs,
	})
	return k
}

// runReconciler reconciles until the context ends. Only the leader calls it.
func (c *Controller) runReconciler(ctx context.Context, term *record.Term) {
	k := newReconciler(c, term)
	c.keeping.Store(true)
	defer c.keeping.Store(false)
	defer c.store.Subscribe(k.observe)()
	k.load()
	k.loop.Run(ctx)
}

// applied ends the save that an instance has lost by a rule.
func (k *reconciler) applied(ctx context.Context, was, now *farm.Instance) error {
	if was.Task == nil || was.Task.Kind != farm.TaskSave || now.WorksOn(was.Task.ID) {
		return nil
	}
	return k.c.endSave(ctx, k.w, was.Task.ID, now)
}

// load schedules a check of every record.
func (k *reconciler) load() {
	now := k.c.now()
	for id := range k.c.tables.Nodes.All() {
		k.loop.Put(reconcile.Item{Kind: record.KindNode, ID: id}, now)
	}
	for _, inst := range k.c.tables.Instances.All() {
		k.loop.PutInstance(inst)
	}
}

// observe follows the records.
func (k *reconciler) observe(events []store.Event) {
	for _, e := range events {
		switch e.Kind {
		case record.KindInstance:
			old, _ := e.Old.(*farm.Instance)
			inst, ok := e.New.(*farm.Instance)
			if ok {
				k.loop.PutInstance(inst)
			} else {
				k.loop.Drop(reconcile.Item{Kind: record.KindInstance, ID: e.ID})
				k.loose.Store(k.loose.Load() || old != nil && old.Options.ScriptID != "")
			}
			if node, at := k.nodes.Affected(old, inst); node != "" {
				k.loop.Put(reconcile.Item{Kind: record.KindNode, ID: node}, at)
			}
		case record.KindSave:
			k.stale.Store(true)
			if s, ok := e.New.(*farm.SaveRequest); ok && s.Status == farm.SavePending {
				k.look(s.Request.InstanceID)
			}
		case record.KindSaveChunk:
			k.stale.Store(true)
		case record.KindCacheJob, record.KindCacheJobResult:
			k.moved.Store(true)
		case record.KindNode:
			k.moved.Store(k.moved.Load() || e.New == nil)
			k.renew.Store(true)
			k.loop.Put(reconcile.Item{Kind: record.KindNode, ID: e.ID}, k.c.now())
			old, _ := e.Old.(*farm.Node)
			now, _ := e.New.(*farm.Node)
			if old != nil && (old.State == farm.NodeOffline || now != nil && now.Draining != old.Draining) {
				k.lookAll(e.ID)
			}
		case record.KindGroup:
			if e.New == nil {
				k.lookWaiting(e.ID)
			}
		case record.KindNodeInfo:
			old, _ := e.Old.(*farm.NodeInfo)
			k.renew.Store(true)
			if info, ok := e.New.(*farm.NodeInfo); ok && (old == nil || old.Hypervisor != info.Hypervisor) {
				k.loop.Put(reconcile.Item{Kind: record.KindNode, ID: e.ID}, k.c.now())
			}
		}
	}
}

// lookAll schedules a check of the instances of a node whose state has changed.
func (k *reconciler) lookAll(node string) {
	for _, inst := range k.c.tables.Instances.Where(record.ByNode, node) {
		k.loop.PutInstance(inst)
	}
}

// lookWaiting schedules a check of the instances that are pending in a deleted group: the replica
// that deletes it ends them, and may die before it is done.
func (k *reconciler) lookWaiting(group string) {
	at := k.c.now().Add(record.BarrierTimeout)
	for id, inst := range k.c.tables.Instances.All() {
		if inst.GroupID == group && inst.Waiting() {
			k.loop.Put(reconcile.Item{Kind: record.KindInstance, ID: id}, at)
		}
	}
}

// look schedules a check of an instance after a change of something other than its record.
func (k *reconciler) look(id string) {
	if inst, _, ok := k.c.tables.Instances.Get(id); ok {
		k.loop.PutInstance(inst)
	}
}

// from returns the moment from which a timeout that began at t counts: not from before this replica
// became the leader, since it does not know what it has missed, and not from before the end of a
// maintenance, so that what was lost during it gets its full time.
func (k *reconciler) from(t time.Time) time.Time {
	if t.Before(k.since) {
		t = k.since
	}
	return k.c.Maintenance.After(t)
}

// checkNode reconciles the state of a node, or schedules a check of the instances of a removed one.
func (k *reconciler) checkNode(ctx context.Context, id string) (again time.Time, err error) {
	node, _, ok := k.c.tables.Nodes.Get(id)
	if !ok {
		k.lookAll(id)
		return again, nil
	}
	return k.nodes.Reconcile(ctx, node)
}

// seen returns when a node was last in contact with any replica.
func (k *reconciler) seen(id string) time.Time { return k.from(k.c.Link.LastContact(id)) }

// inContact returns a time, delayed as long as the node is not in contact then.
func (k *reconciler) inContact(node string, at time.Time) time.Time {
	now := k.c.now()
	if at.After(now) || now.Sub(k.seen(node)) <= nodelink.ContactGap {
		return at
	}
	return now.Add(reconcile.RetryInterval)
}

func (c *Controller) nodeExists(id string) bool {
	_, _, ok := c.tables.Nodes.Get(id)
	return ok
}
