package controller

import (
	"context"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// reconcile compares everything that a node holds with the records: what no record
// owns is remembered as unknown, and what the node has lost is vanished.
func (c *Controller) reconcile(ctx context.Context, s *session, held []api.Held) {
	have := make(map[string]bool, len(held))
	strange := map[string]bool{}
	for _, h := range held {
		if h.InstanceID != "" && c.owns(s.node, h) {
			have[h.InstanceID] = true
			s.has(h)
			continue
		}
		strange[firstOf(h.InstanceID, h.VMID)] = true
	}
	now := c.now()
	s.mu.Lock()
	for id := range s.unknown {
		if !strange[id] {
			delete(s.unknown, id)
			if d := s.due[id]; d.claim == "" {
				delete(s.due, id) // it is gone as ordered
			}
		}
	}
	for id := range strange {
		if _, known := s.unknown[id]; !known {
			s.unknown[id] = unknown{since: now}
		}
	}
	s.mu.Unlock()
	c.placer.touch(s.node)
	c.recount(ctx, s)
	c.vanish(ctx, s, have)
}

// owns says whether a record owns what a node holds.
func (c *Controller) owns(node string, h api.Held) bool {
	inst, _, ok := c.tables.Instances.Get(h.InstanceID)
	return ok && inst.NodeID == node && inst.Claim == h.Claim
}

// vanish ends the instances that a node once had and has no more: its disk was
// lost, or somebody removed the VM by hand.
func (c *Controller) vanish(ctx context.Context, s *session, have map[string]bool) {
	for _, inst := range c.instancesOn(s.node) {
		if have[inst.ID] || inst.StatusNo == 0 || !inst.Live() {
			continue
		}
		status := api.InstanceStatus{
			InstanceID: inst.ID, Claim: inst.Claim, No: inst.StatusNo + 1,
			Phase: api.PhaseVanished, Message: "The VM is not on its node any more",
		}
		if inst.State == farm.Terminating {
			status.Phase = api.PhaseTerminated
		}
		if _, err := c.applyStatuses(ctx, s.node, []api.InstanceStatus{status}); err != nil {
			c.log.WarnContext(ctx, "could not end a vanished instance", "instance", inst.ID, "error", err)
		}
	}
}

// unknownGuard is the share of unknown VMs above which none is removed: that many
// are rather the sign of a wrong data directory than of so many leaks.
const unknownGuard = 0.2

// recount counts one more report of what nobody owns, and orders its removal when
// it was reported often and long enough and the store itself says that it is
// nobody's.
func (c *Controller) recount(ctx context.Context, s *session) {
	now := c.now()
	var ripe []string
	s.mu.Lock()
	for id, u := range s.unknown {
		u.reports++
		s.unknown[id] = u
		if u.reports >= c.opts.UnknownReports && now.Sub(c.afterMaintenance(u.since)) >= c.opts.UnknownAge {
			ripe = append(ripe, id)
		}
	}
	s.mu.Unlock()
	if len(ripe) == 0 || c.maintenance() || c.tooManyUnknown(ctx) {
		return
	}
	for _, id := range ripe {
		inst, _, err := c.tables.Instances.GetLinearizable(ctx, id)
		if err != nil || (inst != nil && inst.NodeID == s.node && inst.Live()) {
			continue
		}
		c.log.WarnContext(ctx, "removing a VM that nobody owns", "node", s.node, "instance", id)
		s.mu.Lock()
		if _, ordered := s.due[id]; !ordered {
			s.due[id] = due{kind: api.OrderTerminate}
		}
		s.mu.Unlock()
		s.ring()
	}
}

// tooManyUnknown is the guard against a controller with the wrong records.
func (c *Controller) tooManyUnknown(ctx context.Context) bool {
	c.link.mu.Lock()
	sessions := make([]*session, 0, len(c.link.sessions))
	for _, s := range c.link.sessions {
		sessions = append(sessions, s)
	}
	c.link.mu.Unlock()
	strange, owned := 0, 0
	for _, s := range sessions {
		s.mu.Lock()
		strange += len(s.unknown)
		s.mu.Unlock()
	}
	for _, inst := range c.tables.Instances.All() {
		if inst.Live() {
			owned++
		}
	}
	if float64(strange) <= unknownGuard*float64(strange+owned) {
		return false
	}
	now, last := c.now().Unix(), c.alarmed.Load()
	if now-last >= 60 && c.alarmed.CompareAndSwap(last, now) {
		c.log.ErrorContext(ctx, "many VMs belong to nobody; none is removed: is this the right data directory? If it is, remove the node and join it again",
			"unknown", strange, "owned", owned)
	}
	return true
}
