package controller

import (
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/controller/reconcile"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// deadlineRule is a reconcile.Rule of a reconciler.
type deadlineRule struct {
	name string // why, for the log; "" is not logged
	// pauses: maintenance mode delays it, since no caller has requested it.
	pauses bool
	// when returns the time from which it is due; zero: never, as the record is now.
	when func(k *reconciler, i *farm.Instance) time.Time
	// do returns the record afterwards; nil: it goes into the history.
	do func(k *reconciler, i *farm.Instance, now time.Time) *farm.Instance
}

// deadlines are checked in this order, and the first one that is due is applied.
var deadlines = []deadlineRule{
	{"", false, neverPlacedAt, goes},
	{"", true, keptUntil, goes},
	{"its node was removed", false, homelessAt, (*reconciler).failRemovedNode},
	{"its node group was deleted", false, ungroupedAt, (*reconciler).ungrouped},
	{"", false, foundAt, (*reconciler).found},
	{"its node stays away", true, overdueAt, (*reconciler).failLostNode},
	{"its time to live is over", true, outlivedAt, (*reconciler).expireInstance},
	{"its node is drained", true, drainedAt, (*reconciler).drained},
	{"a step takes too long", true, (*reconciler).stuckAt, (*reconciler).stuck},
	{"its end is not confirmed", false, (*reconciler).unconfirmedAt, (*reconciler).unconfirmed},
}

// rules returns the deadlines of this reconciler.
func (k *reconciler) rules() []reconcile.Rule {
	list := make([]reconcile.Rule, len(deadlines))
	for i, d := range deadlines {
		list[i] = reconcile.Rule{
			Name: d.name, Pauses: d.pauses,
			When: func(i *farm.Instance) time.Time { return d.when(k, i) },
			Do:   func(i *farm.Instance, now time.Time) *farm.Instance { return d.do(k, i, now) },
		}
	}
	return list
}

// goes removes a record.
func goes(*reconciler, *farm.Instance, time.Time) *farm.Instance { return nil }

// neverPlacedAt: an instance that was terminated before it had a node has nothing to wait for; it
// stays for a moment so that clients see its final state.
func neverPlacedAt(k *reconciler, i *farm.Instance) time.Time {
	if i.State == farm.Terminating && i.NodeID == "" {
		return i.Updated.Add(k.c.opts.HousekeepingTick)
	}
	return time.Time{}
}

// keptUntil returns when the record of a terminated instance is removed; one that never started is
// removed immediately.
func keptUntil(k *reconciler, i *farm.Instance) time.Time {
	switch {
	case i.State != farm.Terminated:
		return time.Time{}
	case i.Started.IsZero():
		return i.Finished
	default:
		return i.Finished.Add(max(k.c.opts.KeepTerminated, 0))
	}
}

// homelessAt covers instances whose node was removed from the cloud.
func homelessAt(k *reconciler, i *farm.Instance) time.Time {
	if !i.OnNode() || i.State == farm.Errored || k.c.nodeExists(i.NodeID) {
		return time.Time{}
	}
	return i.Updated
}

func (k *reconciler) failRemovedNode(i *farm.Instance, now time.Time) *farm.Instance {
	return i.AfterNodeRemoved(now)
}

// ungroupedAt covers instances that were requested in a group during its deletion. A group that
// another replica created may become visible a moment later than its instances.
func ungroupedAt(k *reconciler, i *farm.Instance) time.Time {
	if i.GroupID == "" || !i.Waiting() {
		return time.Time{}
	}
	if _, _, known := k.c.tables.Groups.Get(i.GroupID); known {
		return time.Time{}
	}
	return i.Updated.Add(record.BarrierTimeout)
}

func (k *reconciler) ungrouped(i *farm.Instance, now time.Time) *farm.Instance {
	return i.AfterGroupDeleted(now, "")
}

// foundAt covers a replica that died while it brought a node back online, before all its instances
// were updated. What ended since is not affected.
func foundAt(k *reconciler, i *farm.Instance) time.Time {
	node, _, ok := k.c.tables.Nodes.Get(i.NodeID)
	_, heeds := farm.NextInstanceState(i.State, farm.NodeBack)
	if i.Lost.IsZero() || !heeds || !ok || node.State == farm.NodeOffline {
		return time.Time{}
	}
	return node.StateSince.Add(foundGrace)
}

// foundGrace is how long the replica with the returned node may take to update its instances.
const foundGrace = 5 * time.Second

func (k *reconciler) found(i *farm.Instance, now time.Time) *farm.Instance {
	return i.AfterNodeBack(now)
}

// overdueAt returns when an instance whose node stays offline fails. An instance whose node is
// back, but that has not been updated yet, has no such time.
func overdueAt(k *reconciler, i *farm.Instance) time.Time {
	if i.Lost.IsZero() || i.State == farm.Errored || i.State == farm.Terminating || i.State == farm.Terminated ||
		!foundAt(k, i).IsZero() {
		return time.Time{}
	}
	return k.from(i.Lost).Add(k.c.opts.InstanceTimeout)
}

func (k *reconciler) failLostNode(i *farm.Instance, now time.Time) *farm.Instance {
	return i.AfterExpiry(now, fmt.Sprintf("Its node %s has been offline for too long", i.NodeName))
}

// timeToLive returns the fields of a record for a time to live that begins now.
func timeToLive(ttl time.Duration, now time.Time) (seconds int64, expires time.Time) {
	if ttl <= 0 {
		return 0, time.Time{}
	}
	return int64(ttl / time.Second), now.Add(ttl)
}

// outlivedAt returns when an instance is terminated without a request.
func outlivedAt(_ *reconciler, i *farm.Instance) time.Time {
	if _, ok := farm.NextInstanceState(i.State, farm.Terminate); !ok {
		return time.Time{}
	}
	return i.Expires
}

func (k *reconciler) expireInstance(i *farm.Instance, now time.Time) *farm.Instance {
	n := i.AfterTerminate(now)
	if n == i {
		return i
	}
	n.Message = fmt.Sprintf("Its time to live of %s is over", time.Duration(i.TTL)*time.Second)
	return n
}
