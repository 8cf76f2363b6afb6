package nodelink

import (
	"cmp"
	"context"
	"fmt"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// inventoryID returns the id of an inventory item: its instance, or the VM where no instance is
// known.
func inventoryID(item api.InventoryItem) string { return cmp.Or(item.InstanceID, item.VMID) }

// applyInventory compares the inventory of a node with the records: VMs without a record become
// orphans, and instances that the node has lost become vanished.
func (l *Link) applyInventory(ctx context.Context, s *session, items []api.InventoryItem) {
	have := make(map[string]bool, len(items))
	orphans := map[string]api.InventoryItem{}
	for _, item := range items {
		if item.InstanceID != "" && l.owns(s.node, item) {
			have[item.InstanceID] = true
			s.acknowledgeStart(item)
		} else if id := inventoryID(item); record.ValidID(id) {
			orphans[id] = item
		}
	}
	added, gone := s.setOrphans(orphans, l.db.Now())
	l.opts.Placer.Reconsider(added, gone) // before the node may get starts
	// An item that is listed twice counts one time.
	s.setInventory(len(have)+len(orphans), l.db.Now())
	l.opts.Placer.Touch(s.node)
	l.opts.RetryMACs()
	l.Orphans.forgetReleased(ctx, s.node, gone)
	l.Orphans.count(ctx, s)
	l.vanish(ctx, s, have)
}

// owns reports whether a record owns an inventory item of a node.
func (l *Link) owns(node string, item api.InventoryItem) bool {
	inst, _, ok := l.db.Tables.Instances.Get(item.InstanceID)
	return ok && inst.NodeID == node && inst.Holds(item.Claim)
}

// vanish ends the instances that a node once had and has no longer: its disk was lost, or an
// operator removed the VM by hand.
func (l *Link) vanish(ctx context.Context, s *session, have map[string]bool) {
	var failed []error
	for _, inst := range l.db.Tables.Instances.Where(record.ByNode, s.node) {
		if have[inst.ID] || inst.StatusNumber == 0 || !inst.OnNode() {
			continue
		}
		status := api.InstanceStatus{
			InstanceID: inst.ID, Claim: inst.Claim, No: inst.StatusNumber + 1,
			Phase: api.PhaseVanished, Message: "VM no longer exists on its node",
		}
		if inst.State == farm.Terminating {
			status.Phase = api.PhaseTerminated
		}
		if err := l.applyStatuses(ctx, s, []api.InstanceStatus{status}); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", inst.ID, err))
		}
	}
	if len(failed) == 0 {
		return
	}
	if count, due := l.vanishFailures.Due(len(failed), l.db.Now()); due {
		l.db.Log.WarnContext(ctx, "ending instances whose VMs no longer exist failed; retrying", "node_id", s.node,
			"count",
			count, "first", failed[0])
	}
}
