package nodes

import (
	"context"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/store"
)

// unhealthyAfter is how long a node must be full of VMs of which none runs: VMs that are being
// restarted or removed do not run for a moment either.
const unhealthyAfter = 30 * time.Second

// StateOptions configure a StateReconciler. All fields are set.
type StateOptions struct {
	NodeTimeout time.Duration // time without contact after which a node is Offline

	// LastContact returns when a node was last in contact with any replica.
	LastContact func(node string) time.Time
	// Orphans returns the orphaned VMs on a node.
	Orphans func(node string) (load sched.Load, complete bool)
	// Since returns the moment from which a timeout that began at t counts.
	Since func(t time.Time) time.Time
	// MarkLost returns an instance whose node is Offline.
	MarkLost func(inst *farm.Instance, now time.Time) *farm.Instance
	// WithEvent returns a writer whose commits carry an event as well.
	WithEvent func(w store.Writer, event func() farm.Event) store.Writer
}

// StateReconciler changes the states of nodes by their contacts and reports. It exists for one leader
// term.
type StateReconciler struct {
	db   record.DB
	term *record.Term
	opts StateOptions
}

// NewStateReconciler returns the reconciler of a leader term.
func NewStateReconciler(db record.DB, term *record.Term, opts StateOptions) *StateReconciler {
	return &StateReconciler{db: db, term: term, opts: opts}
}

// stateChange is an event of a node's state, with its reason.
type stateChange struct {
	event  farm.NodeEvent
	reason string
}

// Reconcile decides the state of a node, records that a drained one is empty, and marks the instances
// of an Offline one. It returns when to check again; zero: not before something changes.
func (r *StateReconciler) Reconcile(ctx context.Context, node *farm.Node) (again time.Time, err error) {
	if err := r.recordEmptied(ctx, node); err != nil {
		return again, err
	}
	if node.State == farm.NodeOffline {
		return again, r.markInstancesLost(ctx, node.ID)
	}
	now := r.db.Now()
	timeout := r.lastContact(node).Add(r.opts.NodeTimeout)
	if !timeout.After(now) { // never before one full timeout has passed since this replica became the leader
		silence := (now.Sub(timeout) + r.opts.NodeTimeout).Round(time.Second)
		return again, r.apply(ctx, node, stateChange{farm.NodeTimedOut, fmt.Sprintf("no contact for %s", silence)})
	}
	changes, again := r.evaluate(node, now)
	for _, change := range changes {
		if err := r.apply(ctx, node, change); err != nil {
			return earliest(again, timeout), err
		}
	}
	return earliest(again, timeout), nil
}

// lastContact returns when a node was last in contact with any replica. The replica that set a node
// back to online was in contact with it then, but its digest arrives only later.
func (r *StateReconciler) lastContact(node *farm.Node) time.Time {
	contact, back := r.opts.Since(r.opts.LastContact(node.ID)), node.StateSince
	if back.After(contact) && !back.After(r.db.Now()) {
		return back
	}
	return contact
}

// evaluate returns the changes of the state of a node in contact by its reports, and when to check
// again; zero: not before something changes.
func (r *StateReconciler) evaluate(node *farm.Node, now time.Time) (changes []stateChange, again time.Time) {
	info := r.db.Tables.NodeInfo(node.ID)
	event, reason := info.ContactEvent(now)
	changes = append(changes, stateChange{event, reason})
	if ends := info.Hypervisor.LicenseExpiresAt(); ends.After(now) {
		again = ends
	}
	if problem := info.Hypervisor.Problem; problem != "" {
		return append(changes, stateChange{farm.FullNoneRunning, problem}), again
	}
	since, count := r.stalled(node, info)
	switch due := since.Add(unhealthyAfter); {
	case since.IsZero():
		changes = append(changes, stateChange{event: farm.OneRunning})
	case !due.After(now):
		reason := fmt.Sprintf("it is full, and none of its %d VMs runs", count)
		changes = append(changes, stateChange{farm.FullNoneRunning, reason})
	default:
		again = earliest(again, due)
	}
	return changes, again
}

// apply writes a change of a node's state; one that changes nothing writes nothing.
func (r *StateReconciler) apply(ctx context.Context, node *farm.Node, change stateChange) error {
	if to, _ := farm.NextNodeState(node.State, node.Drain, change.event); to == node.State {
		return nil
	}
	changed := false
	n, err := store.Update(ctx, r.term, r.db.Tables.Nodes, node.ID, func(n *farm.Node) (*farm.Node, error) {
		if changed = n != nil && n.State == node.State; !changed {
			return n, nil
		}
		n = n.Clone()
		n.ApplyEvent(change.event, change.reason, r.db.Now())
		return n, nil
	})
	if err == nil && changed {
		r.db.Log.WarnContext(ctx, "node state changed", "node_id", n.ID, "name", n.Name,
			"was", string(node.State), "state", string(n.State), "reason", n.StateReason)
	}
	return err
}

// stalled returns since when a node is full of VMs that were started and of which none runs, and
// their number; zero when that is not so. Whether orphaned VMs run is not known. Instances that the
// scheduler is about to place there do not count.
func (r *StateReconciler) stalled(node *farm.Node, info *farm.NodeInfo) (since time.Time, count int) {
	var stopped []*farm.Instance
	for _, inst := range r.db.Tables.Instances.Where(record.ByNode, node.ID) {
		if !inst.UsesCapacity() {
			continue
		}
		if !hasStoppedVM(inst) {
			return time.Time{}, 0
		}
		stopped = append(stopped, inst)
		if inst.Updated.After(since) {
			since = inst.Updated
		}
	}
	if orphans, _ := r.opts.Orphans(node.ID); len(stopped) == 0 || orphans.VMs > 0 ||
		!sched.IsFull(node, info, stopped...) {
		return time.Time{}, 0
	}
	return since, len(stopped)
}

// hasStoppedVM reports whether an instance uses capacity with a VM that no longer runs.
func hasStoppedVM(i *farm.Instance) bool {
	return i.UsesCapacity() && i.VM != nil && i.VM.Status != farm.VMRunning &&
		(!i.Started.IsZero() || i.State == farm.Errored)
}

// Affected returns the node whose state has to be checked because one of its instances changed, and
// when; "": none has to be. Instances that merely run do not matter.
func (r *StateReconciler) Affected(old, now *farm.Instance) (node string, at time.Time) {
	stopped := now != nil && hasStoppedVM(now)
	left := old != nil && old.UsesCapacity() && (now == nil || !now.UsesCapacity())
	switch {
	case stopped:
		node, at = now.NodeID, now.Updated.Add(unhealthyAfter)
	case left:
		node, at = old.NodeID, r.db.Now()
	case now != nil && old != nil && hasStoppedVM(old):
		node, at = now.NodeID, r.db.Now()
	default:
		return "", time.Time{}
	}
	n, _, ok := r.db.Tables.Nodes.Get(node)
	if !ok || !stopped && n.State != farm.NodeUnhealthy && !isEmptying(n) {
		return "", time.Time{}
	}
	return node, at
}

// recordEmptied records, one time per drain, that a drained node has no instance left.
func (r *StateReconciler) recordEmptied(ctx context.Context, node *farm.Node) error {
	if !isEmptying(node) || remaining(r.db.Tables, node.ID) > 0 {
		return nil
	}
	now := r.db.Now()
	w := r.opts.WithEvent(r.term, func() farm.Event {
		return farm.NewNodeEvent(farm.EventNodeDrained, node, map[string]any{"reason": node.DrainInfo.Reason})
	})
	_, err := store.Update(ctx, w, r.db.Tables.Nodes, node.ID, func(n *farm.Node) (*farm.Node, error) {
		if n == nil || !isEmptying(n) {
			return n, nil
		}
		n = n.Clone()
		d := *n.DrainInfo
		d.Emptied = now
		n.DrainInfo = &d
		return n, nil
	})
	if err == nil {
		r.db.Log.InfoContext(ctx, "drained node has no more instances", "node_id", node.ID, "name", node.Name, "reason",
			node.DrainInfo.Reason)
	}
	return err
}

// isEmptying reports whether a node is drained and was not empty yet.
func isEmptying(n *farm.Node) bool {
	return n.Drain && n.DrainInfo != nil && n.DrainInfo.Emptied.IsZero()
}

// markInstancesLost marks the instances of a node that was Offline. It may have returned since: new instances may be
// placed on it then.
func (r *StateReconciler) markInstancesLost(ctx context.Context, node string) error {
	for id := range r.db.Tables.Instances.Where(record.ByNode, node) {
		_, err := store.Update(ctx, r.term, r.db.Tables.Instances, id, func(i *farm.Instance) (*farm.Instance, error) {
			n, _, ok := r.db.Tables.Nodes.Get(node)
			if i == nil || i.NodeID != node || !ok || n.State != farm.NodeOffline {
				return i, nil
			}
			return r.opts.MarkLost(i, r.db.Now()), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// earliest returns the earlier of two times; a zero one does not count.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
