package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// reconciler does the periodic work of the leader: it removes what is finished, detects nodes
// without contact and steps that take too long, and ends the instances that cannot recover. It
// exists for one leader term, and writes through w, which is fenced by it.
type reconciler struct {
	c      *Controller
	w      *record.Term
	since  time.Time // no timeout counts from before
	agenda *delayQueue
	stale  atomic.Bool // save requests or their chunks have changed
	loose  atomic.Bool // an instance with a script was removed
	moved  atomic.Bool // a cache job may be over
	renew  atomic.Bool // an agent may have to be updated
	swept  time.Time   // when the background jobs were last done in full
}

// runReconciler reconciles until the context ends. Only the leader calls it.
func (c *Controller) runReconciler(ctx context.Context, r *record.Term) {
	k := &reconciler{c: c, w: r, since: r.Since(), agenda: newAgenda()}
	c.keeping.Store(true)
	defer c.keeping.Store(false)
	defer c.store.Subscribe(k.observe)()
	k.load()
	chores := time.NewTicker(c.opts.HousekeepingTick)
	defer chores.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-chores.C:
			k.chores(ctx)
			continue
		case <-k.agenda.wake:
		case <-timer.C:
		}
		if next := k.round(ctx); !next.IsZero() {
			timer.Reset(max(next.Sub(c.now()), 0))
		}
	}
}

// load schedules a check of every record.
func (k *reconciler) load() {
	now := k.c.now()
	for id := range k.c.tables.Nodes.All() {
		k.agenda.put(delayedItem{record.KindNode, id}, now)
	}
	for id, inst := range k.c.tables.Instances.All() {
		k.agenda.put(delayedItem{record.KindInstance, id}, k.next(inst))
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
				k.agenda.put(delayedItem{record.KindInstance, e.ID}, k.next(inst))
			} else {
				k.agenda.drop(delayedItem{record.KindInstance, e.ID})
				k.loose.Store(k.loose.Load() || old != nil && old.Options.ScriptID != "")
			}
			if node, at := k.attendsTo(old, inst); node != "" {
				k.agenda.put(delayedItem{record.KindNode, node}, at)
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
			k.agenda.put(delayedItem{record.KindNode, e.ID}, k.c.now())
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
				k.agenda.put(delayedItem{record.KindNode, e.ID}, k.c.now())
			}
		}
	}
}

// lookAll schedules a check of the instances of a node whose state has changed.
func (k *reconciler) lookAll(node string) {
	for _, inst := range k.c.instancesOn(node) {
		k.agenda.put(delayedItem{record.KindInstance, inst.ID}, k.next(inst))
	}
}

// lookWaiting schedules a check of the instances that are pending in a deleted group: the replica
// that deletes it ends them, and may die before it is done.
func (k *reconciler) lookWaiting(group string) {
	at := k.c.now().Add(record.BarrierTimeout)
	for id, inst := range k.c.tables.Instances.All() {
		if inst.GroupID == group && inst.Waiting() {
			k.agenda.put(delayedItem{record.KindInstance, id}, at)
		}
	}
}

// look schedules a check of an instance after a change of something other than its record.
func (k *reconciler) look(id string) {
	if inst, _, ok := k.c.tables.Instances.Get(id); ok {
		k.agenda.put(delayedItem{record.KindInstance, id}, k.next(inst))
	}
}

// next returns when an instance must be checked, as it is now; zero: never.
func (k *reconciler) next(inst *farm.Instance) (first time.Time) {
	for _, d := range duties {
		if at := d.when(k, inst); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// from returns the moment from which a timeout that began at t counts: not from before this replica
// became the leader, since it does not know what it has missed, and not from before the end of a
// maintenance, so that what was lost during it gets its full time.
func (k *reconciler) from(t time.Time) time.Time {
	if t.Before(k.since) {
		t = k.since
	}
	return k.c.afterMaintenance(t)
}

const (
	roundSize = 2000             // records that are checked before the background jobs run
	atOnce    = 32               // of them
	lookAgain = 15 * time.Second // at a record for which nothing can be done now
)

// contactGap is the longest time without contact after which a node still counts as in contact. For
// a node that polls another replica, this replica's information is as old as the last digest, and
// the next digest comes up to a longestGap later. If only that gap were allowed such a node would
// seem out of contact before each digest, and what is delayed while a node is out of contact would
// be delayed indefinitely.
const contactGap = 2 * longestGap

// round checks every record whose time has come, and returns the time of the next one.
func (k *reconciler) round(ctx context.Context) (next time.Time) {
	ripe, next := k.agenda.take(k.c.now(), roundSize)
	var wg sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for _, it := range ripe {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			k.attend(ctx, it)
		})
	}
	wg.Wait()
	return next
}

// attend does the work for one record and schedules the next check.
func (k *reconciler) attend(ctx context.Context, it delayedItem) {
	again, err := time.Time{}, error(nil)
	switch it.kind {
	case record.KindNode:
		again, err = k.attendNode(ctx, it.id)
	default:
		again, err = k.attendInstance(ctx, it.id)
	}
	soon := k.c.now().Add(k.c.opts.HousekeepingTick)
	if err != nil {
		if ctx.Err() == nil {
			k.c.log.WarnContext(ctx, "reconcile failed", "kind", string(it.kind), "id", it.id, "error", err)
		}
		again = soon
	}
	if !again.IsZero() && again.Before(soon) && !again.After(k.c.now()) {
		again = soon // work that could not be done now is not tried without a pause
	}
	k.agenda.put(it, again)
}

// attendInstance applies the first deadline rule of an instance that is due, and returns when it
// must be checked again.
func (k *reconciler) attendInstance(ctx context.Context, id string) (again time.Time, err error) {
	inst, rev, ok := k.c.tables.Instances.Get(id)
	for range statusAttempts {
		if !ok {
			return again, nil
		}
		d, due := k.due(inst)
		if !due {
			return k.next(inst), nil
		}
		if d.pauses && k.c.maintenance() {
			return k.c.now().Add(lookAgain), nil
		}
		err = k.do(ctx, d, inst, rev)
		if !errors.Is(err, store.ErrConflict) {
			return again, err // the write schedules the next check
		}
		if inst, rev, err = k.c.tables.Instances.GetLinearizable(ctx, id); err != nil {
			return again, err
		}
		ok = inst != nil
	}
	return again, store.ErrConflict
}

// due returns the first deadline rule of an instance whose time has come.
func (k *reconciler) due(inst *farm.Instance) (deadlineRule, bool) {
	now := k.c.now()
	for _, d := range duties {
		if at := d.when(k, inst); !at.IsZero() && !at.After(now) {
			return d, true
		}
	}
	return deadlineRule{}, false
}

// do applies a deadline rule. A save that the instance loses by it ends too.
func (k *reconciler) do(ctx context.Context, d deadlineRule, inst *farm.Instance, rev int64) error {
	n := d.do(k, inst, k.c.now())
	var err error
	switch n {
	case inst: // nothing was written that would schedule it again
		k.agenda.put(delayedItem{record.KindInstance, inst.ID}, k.c.now().Add(lookAgain))
		return nil
	case nil:
		err = k.w.Commit(ctx, k.c.archiveInstance(inst, rev)...)
	default:
		err = k.w.Commit(ctx, store.Put(k.c.tables.Instances, inst.ID, n, store.IfRev(rev)))
	}
	if err != nil {
		return err
	}
	if n != nil && d.name != "" {
		k.c.log.WarnContext(ctx, "instance deadline applied", "why", d.name, "instance", inst.ID, "node", inst.NodeID, "was", string(inst.State), "message", n.Message)
	}
	if inst.Task == nil || inst.Task.Kind != farm.TaskSave || worksOn(n, inst.Task.ID) {
		return nil
	}
	return k.c.endSave(ctx, k.w, inst.Task.ID, n)
}

// attendNode decides the state of a node, records that a drained one is empty, and updates the
// instances of one that is offline.
func (k *reconciler) attendNode(ctx context.Context, id string) (again time.Time, err error) {
	node, _, ok := k.c.tables.Nodes.Get(id)
	if ok {
		if err := k.emptied(ctx, node); err != nil {
			return again, err
		}
	}
	if !ok || node.State == farm.NodeOffline {
		return again, k.tellInstances(ctx, id, ok)
	}
	silent := k.seenOn(node).Add(k.c.opts.NodeTimeout)
	if !silent.After(k.c.now()) {
		return again, k.silent(ctx, node, silent)
	}
	again, err = k.judge(ctx, node)
	return earliest(again, silent), err
}

// silent declares a node offline from which a contact was due by a time. No node is silent before
// one full timeout has passed since this replica became the leader.
func (k *reconciler) silent(ctx context.Context, node *farm.Node, until time.Time) error {
	silence := k.c.now().Sub(until) + k.c.opts.NodeTimeout
	return k.pass(ctx, node, stateDecision{farm.NodeTimedOut, fmt.Sprintf("no contact for %s", silence.Round(time.Second))})
}

// seen returns when a node was last in contact with any replica.
func (k *reconciler) seen(id string) time.Time {
	_, here := k.c.link.usage(id)
	if there := k.c.ages.heard(id); there.After(here) {
		here = there
	}
	return k.from(here)
}

// seenOn is seen for a node whose state may have changed since: the replica that set it back to
// online heard it then, but its digest arrives only later.
func (k *reconciler) seenOn(node *farm.Node) time.Time {
	seen, back := k.seen(node.ID), node.StateSince
	if back.After(seen) && !back.After(k.c.now()) {
		return back
	}
	return seen
}

// inContact returns a time, delayed as long as the node is not in contact then.
func (k *reconciler) inContact(node string, at time.Time) time.Time {
	now := k.c.now()
	if at.After(now) || now.Sub(k.seen(node)) <= contactGap {
		return at
	}
	return now.Add(lookAgain)
}

// tellInstances marks the instances of an offline node as lost, or schedules a check of those whose
// node is removed.
func (k *reconciler) tellInstances(ctx context.Context, node string, offline bool) error {
	if !offline {
		k.lookAll(node)
		return nil
	}
	for _, inst := range k.c.instancesOn(node) {
		_, err := store.Update(ctx, k.w, k.c.tables.Instances, inst.ID, func(i *farm.Instance) (*farm.Instance, error) {
			if i == nil || i.NodeID != node {
				return i, nil
			}
			return lost(i, k.c.now()), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) nodeExists(id string) bool {
	_, _, ok := c.tables.Nodes.Get(id)
	return ok
}
