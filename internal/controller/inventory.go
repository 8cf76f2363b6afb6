package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
)

// heldID returns the id of an inventory item: its instance, or the VM where no instance is known.
func heldID(h api.InventoryItem) string { return firstOf(h.InstanceID, h.VMID) }

// reconcile compares the inventory of a node with the records: VMs without a record become orphans,
// and instances that the node has lost become vanished.
func (c *Controller) reconcile(ctx context.Context, s *session, held []api.InventoryItem) {
	have := make(map[string]bool, len(held))
	strange := map[string]api.InventoryItem{}
	for _, h := range held {
		if h.InstanceID != "" && c.owns(s.node, h) {
			have[h.InstanceID] = true
			s.has(h)
		} else if id := heldID(h); record.ValidID(id) {
			strange[id] = h
		}
	}
	fresh, gone := s.meet(strange, c.now())
	c.placer.Reconsider(fresh, gone) // before the node may get starts
	// An item that is listed twice counts one time.
	s.heardAll(len(have)+len(strange), c.now())
	c.placer.Touch(s.node)
	c.MACs.Retry()
	c.forgetReleased(ctx, s.node, gone)
	c.countOrphans(ctx, s)
	c.vanish(ctx, s, have)
}

// owns reports whether a record owns an inventory item of a node.
func (c *Controller) owns(node string, h api.InventoryItem) bool {
	inst, _, ok := c.tables.Instances.Get(h.InstanceID)
	return ok && inst.NodeID == node && inst.Claim == h.Claim
}

// vanish ends the instances that a node once had and has no longer: its disk was lost, or an
// operator removed the VM by hand.
func (c *Controller) vanish(ctx context.Context, s *session, have map[string]bool) {
	var failed []error
	for _, inst := range c.instancesOn(s.node) {
		if have[inst.ID] || inst.StatusNo == 0 || !inst.OnNode() {
			continue
		}
		status := api.InstanceStatus{
			InstanceID: inst.ID, Claim: inst.Claim, No: inst.StatusNo + 1,
			Phase: api.PhaseVanished, Message: "VM no longer exists on its node",
		}
		if inst.State == farm.Terminating {
			status.Phase = api.PhaseTerminated
		}
		if err := c.applyStatuses(ctx, s, []api.InstanceStatus{status}); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", inst.ID, err))
		}
	}
	if len(failed) == 0 {
		return
	}
	if count, due := c.unvanished.Due(len(failed), c.now()); due {
		c.log.WarnContext(ctx, "could not end instances that vanished; it is tried again", "node", s.node, "count",
			count, "first", failed[0])
	}
}

// orphan is an inventory item of a node without a record.
type orphan struct {
	held    api.InventoryItem
	since   time.Time
	reports int
	asked   time.Time            // when the node was last asked for details of it
	detail  *api.InventoryDetail // nil until it has answered
	size    int                  // of detail, in bytes of JSON
	keeping bool                 // a record is being created for it
}

// unidentified reports whether its details are missing and may still arrive.
func (u orphan) unidentified(now time.Time) bool {
	return u.detail == nil && now.Sub(u.since) < strangerTime
}

// mac returns the address that the VM reports.
func (u orphan) mac() (farm.MAC, bool) {
	if u.detail == nil || u.detail.Status.VM == nil {
		return 0, false
	}
	a, err := farm.ParseMAC(u.detail.Status.VM.MAC)
	return a, err == nil
}

// meet takes over the list of orphaned VMs on a node, and returns the ids that are new in it and
// those that are no longer in it.
func (s *session) meet(strange map[string]api.InventoryItem, now time.Time) (fresh, gone []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped {
		return nil, nil
	}
	for id := range s.unknown {
		if _, still := strange[id]; !still {
			s.dropUnknownLocked(id)
			gone = append(gone, id)
		}
	}
	for id, h := range strange {
		u, known := s.unknown[id]
		if !known && len(s.unknown) >= maxUnknown {
			continue
		}
		if !known {
			s.strangers.add(id)
			fresh = append(fresh, id)
		}
		if !known || u.held.Claim != h.Claim {
			s.unknown[id] = orphan{held: h, since: now}
		}
	}
	s.unkept = len(strange) - len(s.unknown)
	return fresh, gone
}

// maxUnknown bounds the orphaned VMs that are stored per node. Others are only counted, and are
// stored once these are decided about. A node has at most nodeinput.MaxCapacity instances.
const maxUnknown = nodeinput.MaxCapacity

// heardAll records that the node has sent its inventory, and the number of items.
func (s *session) heardAll(total int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dropped {
		s.holds, s.met = total, now
	}
}

// dropUnknownLocked removes an orphan, and the order to remove it.
func (s *session) dropUnknownLocked(id string) {
	delete(s.unknown, id)
	s.strangers.drop(id)
	if d := s.due[id]; d.claim == "" {
		delete(s.due, id)
	}
}

// ownedLocked processes a new record: the VM that its node has under its claim is no longer an
// orphan. The node is asked for its full report again, since what it reported of the VM until now
// had no record.
func (s *session) ownedLocked(inst *farm.Instance) {
	if u, ok := s.unknown[inst.ID]; ok && u.held.Claim == inst.Claim && u.held.InstanceID == inst.ID {
		s.dropUnknownLocked(inst.ID)
		s.infoHash, s.heldHash = "", ""
	}
}

const (
	askAfter = 5 * time.Second  // a record may be a moment behind its VM
	askAgain = 30 * time.Second // an older agent does not answer
	maxAsked = 100              // in one response
)

// curious returns the orphaned VMs whose details the node is to be asked for now.
func (s *session) curious(now time.Time) (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, u := range s.unknown {
		if len(ids) == maxAsked {
			break
		}
		if u.detail == nil && now.Sub(u.since) >= askAfter && now.Sub(u.asked) >= askAgain {
			u.asked = now
			s.unknown[id] = u
			ids = append(ids, id)
		}
	}
	return ids
}

// Limits of the stored details of orphaned VMs, in bytes of JSON.
const (
	maxDetail  = 16 << 10 // of one
	maxDetails = 4 << 20  // of all on one node
)

// learn stores the details of orphaned VMs that a node was asked for. Too large ones do not come
// from a genuine agent and are ignored.
func (s *session) learn(details []api.InventoryDetail) {
	s.mu.Lock()
	defer s.mu.Unlock()
	bytes := 0
	for _, u := range s.unknown {
		bytes += u.size
	}
	for _, d := range details {
		if u, ok := s.unknown[d.ID]; ok && !u.asked.IsZero() {
			raw, err := json.Marshal(d)
			if err != nil || len(raw) > maxDetail || bytes-u.size+len(raw) > maxDetails {
				continue
			}
			bytes += len(raw) - u.size
			u.detail, u.size = &d, len(raw)
			s.unknown[d.ID] = u
		}
	}
}

// foreign returns the load of the orphaned VMs on a node, which use capacity too. told reports
// whether the node has sent its inventory to this replica; an inventory sent to another replica
// counts when that replica has heard the node since.
func (c *Controller) foreign(node string) (load sched.Load, told bool) {
	seen := time.Time{}
	if s := c.link.find(node); s != nil {
		s.mu.Lock()
		load, told, seen = s.foreignLocked(), !s.met.IsZero(), s.seenLocked(c.now())
		s.mu.Unlock()
	}
	if other, ok := c.ages.elsewhere(node, seen); ok {
		load = orphanLoad(other.strange)
	}
	return load, told
}

// foreignLocked returns the load of the orphaned VMs. One without details yet counts as a small
// one.
func (s *session) foreignLocked() (load sched.Load) {
	load.VMs, load.VCPU = s.unkept, s.unkept
	for _, u := range s.unknown {
		load.VMs++
		vcpu := 1
		if u.detail != nil && u.detail.Status.VM != nil {
			vcpu = max(1, min(u.detail.Status.VM.CPUs, MaxVCPUs))
			load.MemoryMB += max(0, min(u.detail.Status.VM.MemoryMB, 1<<24))
		}
		load.VCPU += vcpu
	}
	return load
}

// find returns the session of a node; nil when it was never in contact.
func (l *nodeSessions) find(node string) *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sessions[node]
}

// all returns every session.
func (l *nodeSessions) all() []*session {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]*session, 0, len(l.sessions))
	for s := range maps.Values(l.sessions) {
		list = append(list, s)
	}
	return list
}
