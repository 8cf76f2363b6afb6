package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/store"
)

// unhealthyAfter is how long a node must be full of VMs of which none runs: VMs that are being
// restarted or removed do not run for a moment either.
const unhealthyAfter = 30 * time.Second

// stateDecision is an event of a node's state, with its reason.
type stateDecision struct {
	event  farm.NodeEvent
	reason string
}

// judge changes the state of a node in contact by its reports. It returns when to check again;
// zero: not before something changes.
func (k *reconciler) judge(ctx context.Context, node *farm.Node) (again time.Time, err error) {
	now := k.c.now()
	info := k.c.tables.NodeInfo(node.ID)
	event, reason := nodelink.ContactEvent(info, now)
	verdicts := []stateDecision{{event, reason}}
	if ends := info.Hypervisor.ExpiresAt(); ends.After(now) {
		again = ends
	}
	since, count := k.stalled(node, info)
	switch due := since.Add(unhealthyAfter); {
	case since.IsZero():
		verdicts = append(verdicts, stateDecision{event: farm.OneRunning})
	case !due.After(now):
		verdicts = append(verdicts,
			stateDecision{farm.FullNoneRunning, fmt.Sprintf("it is full, and none of its %d VMs runs", count)})
	default:
		again = earliest(again, due)
	}
	for _, v := range verdicts {
		if err := k.pass(ctx, node, v); err != nil {
			return again, err
		}
	}
	return again, nil
}

// pass applies a decision; one that changes nothing writes nothing.
func (k *reconciler) pass(ctx context.Context, node *farm.Node, v stateDecision) error {
	if to, _ := farm.NextNodeState(node.State, node.Drain, v.event); to == node.State {
		return nil
	}
	moved := false
	n, err := store.Update(ctx, k.w, k.c.tables.Nodes, node.ID, func(n *farm.Node) (*farm.Node, error) {
		if moved = n != nil && n.State == node.State; !moved {
			return n, nil
		}
		n = n.Clone()
		n.Enter(v.event, v.reason, k.c.now())
		return n, nil
	})
	if err == nil && moved {
		k.c.log.WarnContext(ctx, "node state changed", "node", n.ID, "name", n.Name, "was", string(node.State),
			"state", string(n.State), "reason", n.StateReason)
	}
	return err
}

// stalled returns since when a node is full of VMs that were started and of which none runs, and
// their number; zero when that is not so. Whether orphaned VMs run is not known. Instances that the
// scheduler is about to place there do not count.
func (k *reconciler) stalled(node *farm.Node, info *farm.NodeInfo) (since time.Time, count int) {
	var there []*farm.Instance
	for _, inst := range k.c.tables.Instances.Where(record.ByNode, node.ID) {
		if !inst.UsesCapacity() {
			continue
		}
		if !halted(inst) {
			return time.Time{}, 0
		}
		there = append(there, inst)
		if inst.Updated.After(since) {
			since = inst.Updated
		}
	}
	if foreign, _ := k.c.Link.Orphans.Load(node.ID); len(there) == 0 || foreign.VMs > 0 ||
		!sched.Full(node, info, there...) {
		return time.Time{}, 0
	}
	return since, len(there)
}

// halted reports whether an instance uses capacity with a VM that no longer runs.
func halted(i *farm.Instance) bool {
	return i.UsesCapacity() && i.VM != nil && i.VM.Status != farm.VMRunning &&
		(!i.Started.IsZero() || i.State == farm.Errored)
}

// attendsTo returns when a node has to be checked because one of its instances changed; zero: it
// need not be. Instances that merely run do not matter.
func (k *reconciler) attendsTo(old, now *farm.Instance) (node string, at time.Time) {
	stopped := now != nil && halted(now)
	left := old != nil && old.UsesCapacity() && (now == nil || !now.UsesCapacity())
	switch {
	case stopped:
		node, at = now.NodeID, now.Updated.Add(unhealthyAfter)
	case left:
		node, at = old.NodeID, k.c.now()
	case now != nil && old != nil && halted(old):
		node, at = now.NodeID, k.c.now()
	default:
		return "", time.Time{}
	}
	if n, _, ok := k.c.tables.Nodes.Get(node); !ok || !stopped && n.State != farm.NodeUnhealthy && !empties(n) {
		return "", time.Time{}
	}
	return node, at
}

// earliest returns the earlier of two times; a zero one does not count.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
