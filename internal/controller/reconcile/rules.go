package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// rule is a change of an instance that is due at some time.
type rule struct {
	name string // why, for the log; "" is not logged
	// pauses: maintenance mode delays it, since no caller has requested it.
	pauses bool
	// when returns the time from which it is due; zero: never, as the record is now.
	when func(r *Reconciler, i *farm.Instance) time.Time
	// do returns the record afterwards; nil: it goes into the history.
	do func(r *Reconciler, i *farm.Instance, now time.Time) *farm.Instance
}

// rules are checked in this order, and the first one that is due is applied.
var rules = []rule{
	{"", false, neverPlacedAt, archive},
	{"", true, retentionEndsAt, archive},
	{"its node was removed", false, nodeRemovedAt, failRemovedNode},
	{"its node group was deleted", false, groupDeletedAt, failDeletedGroup},
	{"", false, nodeBackAt, resume},
	{"its node stays away", true, nodeLostAt, failLostNode},
	{"its time to live is over", true, ttlExpiresAt, expireTTL},
	{"its node is drained", true, drainEndsAt, terminateDrained},
	{"a step takes too long", true, (*Reconciler).stepExpiresAt, (*Reconciler).failStep},
	{"its end is not confirmed", false, (*Reconciler).unconfirmedEndAt, (*Reconciler).reportUnconfirmedEnd},
}

// archive moves a record into the history.
func archive(*Reconciler, *farm.Instance, time.Time) *farm.Instance { return nil }

// neverPlacedAt: an instance that was terminated before it had a node has nothing to wait for; it
// stays for a moment so that clients see its final state.
func neverPlacedAt(r *Reconciler, i *farm.Instance) time.Time {
	if i.State == farm.Terminating && i.NodeID == "" {
		return i.Updated.Add(r.o.Tick)
	}
	return time.Time{}
}

// retentionEndsAt returns when a terminated instance is removed.
func retentionEndsAt(r *Reconciler, i *farm.Instance) time.Time {
	switch {
	case i.State != farm.Terminated:
		return time.Time{}
	case i.Started.IsZero():
		return i.Finished
	default:
		return i.Finished.Add(max(r.o.KeepTerminated, 0))
	}
}

// nodeRemovedAt covers instances whose node was removed from the cloud.
func nodeRemovedAt(r *Reconciler, i *farm.Instance) time.Time {
	if !i.OnNode() || i.State == farm.Errored {
		return time.Time{}
	}
	if _, _, exists := r.db.Tables.Nodes.Get(i.NodeID); exists {
		return time.Time{}
	}
	return i.Updated
}

func failRemovedNode(_ *Reconciler, i *farm.Instance, now time.Time) *farm.Instance {
	return i.AfterNodeRemoved(now)
}

// groupDeletedAt covers instances that were requested in a group during its deletion. A group that
// another replica created may become visible a moment later than its instances.
func groupDeletedAt(r *Reconciler, i *farm.Instance) time.Time {
	if i.GroupID == "" || !i.AwaitsPlacement() {
		return time.Time{}
	}
	if _, _, exists := r.db.Tables.Groups.Get(i.GroupID); exists {
		return time.Time{}
	}
	return i.Updated.Add(record.BarrierTimeout)
}

func failDeletedGroup(_ *Reconciler, i *farm.Instance, now time.Time) *farm.Instance {
	return i.AfterGroupDeleted(now, "")
}

// resumeTime is how long the replica with a node that is back may take to update its instances.
const resumeTime = 5 * time.Second

// nodeBackAt covers a replica that died while it brought a node back online, before all its instances
// were updated. What ended since is not affected.
func nodeBackAt(r *Reconciler, i *farm.Instance) time.Time {
	node, _, ok := r.db.Tables.Nodes.Get(i.NodeID)
	_, accepts := farm.NextInstanceState(i.State, farm.NodeBack)
	if i.NodeLostAt.IsZero() || !accepts || !ok || node.State == farm.NodeOffline {
		return time.Time{}
	}
	return node.StateSince.Add(resumeTime)
}

func resume(_ *Reconciler, i *farm.Instance, now time.Time) *farm.Instance {
	return i.AfterNodeBack(now)
}

// nodeLostAt returns when an instance whose node stays offline fails. An instance whose node is back,
// but that has not been updated yet, has no such time.
func nodeLostAt(r *Reconciler, i *farm.Instance) time.Time {
	if i.NodeLostAt.IsZero() || i.State == farm.Errored || i.State == farm.Terminating || i.State == farm.Terminated ||
		!nodeBackAt(r, i).IsZero() {
		return time.Time{}
	}
	return r.o.From(i.NodeLostAt).Add(r.o.InstanceTimeout)
}

func failLostNode(_ *Reconciler, i *farm.Instance, now time.Time) *farm.Instance {
	return i.AfterStepTimeout(now, farm.FailureNodeLost,
		fmt.Sprintf("Its node %s has been offline for too long", i.NodeName))
}

// ttlExpiresAt returns when an instance is terminated without a request.
func ttlExpiresAt(_ *Reconciler, i *farm.Instance) time.Time {
	if _, ok := farm.NextInstanceState(i.State, farm.Terminate); !ok {
		return time.Time{}
	}
	return i.Expires
}

func expireTTL(_ *Reconciler, i *farm.Instance, now time.Time) *farm.Instance {
	n := i.AfterTerminate(now)
	if n != i {
		n.Message = fmt.Sprintf("Its time to live of %s is over", time.Duration(i.TTL)*time.Second)
	}
	return n
}

// drainEndsAt returns when an instance is terminated because its node is drained.
func drainEndsAt(r *Reconciler, i *farm.Instance) time.Time {
	if !i.UsesCapacity() || i.State == farm.Terminating {
		return time.Time{}
	}
	node, _, ok := r.db.Tables.Nodes.Get(i.NodeID)
	if !ok || !node.Drain || node.DrainInfo == nil {
		return time.Time{}
	}
	return node.DrainInfo.Until
}

func terminateDrained(r *Reconciler, i *farm.Instance, now time.Time) *farm.Instance {
	n := i.AfterTerminate(now)
	if n == i {
		return i
	}
	name := i.NodeName
	if node, _, ok := r.db.Tables.Nodes.Get(i.NodeID); ok {
		name = node.Name
	}
	n.Message = fmt.Sprintf("Its node %s is drained, and the time for that is over", name)
	return n
}

// attempts is how often a rule is tried whose write lost a race.
const attempts = 20

// CheckInstance applies the first rule of an instance that is due, and returns when it must be
// checked again.
func (r *Reconciler) CheckInstance(ctx context.Context, id string) (again time.Time, err error) {
	inst, rev, ok := r.db.Tables.Instances.Get(id)
	for range attempts {
		if !ok {
			return again, nil
		}
		rule, due := r.firstDueRule(inst)
		if !due {
			return r.next(inst), nil
		}
		if rule.pauses && r.o.Paused() {
			return r.db.Now().Add(RetryInterval), nil
		}
		err = r.apply(ctx, rule, inst, rev)
		if !errors.Is(err, store.ErrConflict) {
			return again, err // the write schedules the next check
		}
		if inst, rev, err = r.db.Tables.Instances.GetLinearizable(ctx, id); err != nil {
			return again, err
		}
		ok = inst != nil
	}
	return again, store.ErrConflict
}

// next returns when an instance must be checked, as it is now; zero: never.
func (r *Reconciler) next(inst *farm.Instance) (first time.Time) {
	for _, rule := range rules {
		if at := rule.when(r, inst); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// firstDueRule returns the first rule of an instance that is due.
func (r *Reconciler) firstDueRule(inst *farm.Instance) (rule, bool) {
	now := r.db.Now()
	for _, rule := range rules {
		if at := rule.when(r, inst); !at.IsZero() && !at.After(now) {
			return rule, true
		}
	}
	return rule{}, false
}

// apply applies a rule, and ends the save that the instance loses by it.
func (r *Reconciler) apply(ctx context.Context, rule rule, inst *farm.Instance, rev int64) error {
	n := rule.do(r, inst, r.db.Now())
	var err error
	switch n {
	case inst: // nothing was written that would schedule it again
		r.queue.put(delayedItem{record.KindInstance, inst.ID}, r.db.Now().Add(RetryInterval))
		return nil
	case nil:
		err = r.term.Commit(ctx, r.o.Archive(inst, rev)...)
	default:
		err = r.term.Commit(ctx, store.Put(r.db.Tables.Instances, inst.ID, n, store.IfRev(rev)))
	}
	if err != nil {
		return err
	}
	if n != nil && rule.name != "" {
		r.db.Log.WarnContext(ctx, "instance deadline applied", "why", rule.name, "instance_id", inst.ID,
			"node_id", inst.NodeID, "was", string(inst.State), "message", n.Message)
	}
	if inst.Task == nil || inst.Task.Kind != farm.TaskSave || n.WorksOn(inst.Task.ID) {
		return nil
	}
	return r.o.EndSave(ctx, r.term, inst.Task.ID, n)
}
