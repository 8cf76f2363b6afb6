package nodelink

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// count counts one more report of orphaned VMs. It orders a removal when the VM was reported
// often and long enough, the guard allows it, and the store itself has no record of it. For a VM
// that an operator released, the store check alone decides.
func (o *Orphans) count(ctx context.Context, s *session) {
	aged, released := o.removableOrphans(s)
	if len(aged) > 0 && !o.opts.Maintenance.On() && o.mayRemove(ctx, s) {
		released = append(released, aged...)
	}
	for _, id := range released {
		o.orderRemoval(ctx, s, id)
	}
}

// removableOrphans counts a report, and returns the VMs that were reported often and long enough,
// and those that an operator released.
func (o *Orphans) removableOrphans(s *session) (aged, released []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.orphans) == 0 {
		return nil, nil
	}
	now := o.db.Now()
	for id, u := range s.orphans {
		u.reports++
		s.orphans[id] = u
		if _, ordered := s.orders[id]; ordered || u.keeping {
			continue
		}
		switch {
		case o.IsReleased(s.node, id):
			released = append(released, id)
		case u.reports >= o.opts.OrphanReports && now.Sub(o.opts.Maintenance.After(u.since)) >= o.opts.OrphanAge:
			aged = append(aged, id)
		}
	}
	return aged, released
}

// orderRemoval orders the removal of an orphaned VM, once the store itself has no record of it.
func (o *Orphans) orderRemoval(ctx context.Context, s *session, id string) {
	inst, _, err := o.db.Tables.Instances.GetLinearizable(ctx, id)
	if err != nil || (inst != nil && inst.NodeID == s.node && inst.OnNode()) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u, still := s.orphans[id]
	if _, ordered := s.orders[id]; ordered || !still || u.keeping {
		return
	}
	o.db.Log.WarnContext(ctx, "removing orphaned VM", "node_id", s.node, "instance_id", id)
	s.orders[id] = pendingOrder{kind: api.OrderTerminate}
	s.signal()
}

// protects reports whether an order is withheld: it would destroy a VM of the same instance
// that the node has under another claim, and about which no operator has decided. Terminating the
// instance, or releasing the VM, is such a decision.
func (o *Orphans) protects(s *session, inst *farm.Instance) bool {
	if inst.State == farm.Terminating || !s.index.has(inst.ID) || o.IsReleased(s.node, inst.ID) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, has := s.orphans[inst.ID]
	return has
}

// keepReleased is how long a release is valid if the VM is not seen to be removed.
const keepReleased = 7 * 24 * time.Hour

// IsReleased reports whether an operator released a VM on a node for removal.
func (o *Orphans) IsReleased(node, id string) bool {
	_, _, ok := o.db.Tables.Released.Get(record.ReleasedOrphanID(node, id))
	return ok
}

// forgetReleased deletes the records of released VMs that are removed.
func (o *Orphans) forgetReleased(ctx context.Context, node string, gone []string) {
	for _, id := range gone {
		if !o.IsReleased(node, id) {
			continue
		}
		if err := o.db.Store.Commit(ctx, store.Delete(o.db.Tables.Released, record.ReleasedOrphanID(node, id),
			store.Any)); err != nil {
			o.db.Log.WarnContext(ctx, "removing the record of a released orphaned VM failed; retrying", "instance_id",
				id, "error",
				err)
		}
	}
}

// PruneReleased deletes the records of VMs that were released long ago.
func (o *Orphans) PruneReleased(ctx context.Context, w *record.Term, now time.Time) error {
	for id, r := range o.db.Tables.Released.All() {
		if now.Sub(r.At) <= keepReleased {
			continue
		}
		if err := w.Commit(ctx, store.Delete(o.db.Tables.Released, id, store.Any)); err != nil {
			return err
		}
	}
	return nil
}
