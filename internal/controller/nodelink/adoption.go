package nodelink

import (
	"cmp"
	"slices"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// On returns the orphaned VMs of a node, in the order of their ids.
func (o *Orphans) On(node *farm.Node) []record.OrphanedVM {
	s := o.sessions.find(node.ID)
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]record.OrphanedVM, 0, len(s.orphans))
	for id, u := range s.orphans {
		vm := o.shown(node.ID, id, u)
		vm.Node = node
		_, vm.Ordered = s.orders[id]
		list = append(list, vm)
	}
	slices.SortFunc(list, func(a, b record.OrphanedVM) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

func (o *Orphans) shown(node, id string, u orphan) record.OrphanedVM {
	return record.OrphanedVM{
		ID: id, Held: u.item, Since: u.since, Detail: u.detail, Released: o.IsReleased(node, id),
	}
}

// HasInventory reports whether a node is in contact and has sent its inventory.
func (o *Orphans) HasInventory(node string) bool {
	s := o.sessions.find(node)
	if s == nil {
		return false
	}
	now := o.db.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.inventoryAt.IsZero() && now.Sub(s.lastContactLocked(now)) < o.opts.NodeTimeout
}

// Contains reports whether a node has an orphaned VM of an id.
func (o *Orphans) Contains(node, id string) bool {
	s := o.sessions.find(node)
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.orphans[id]
	return ok
}

// Claim protects an orphaned VM from removal until Unclaim, while a record is created for it. It
// returns record.ErrNotOrphaned for an id of which the node has no orphaned VM.
func (o *Orphans) Claim(node, id string) (vm record.OrphanedVM, err error) {
	s := o.sessions.find(node)
	if s == nil {
		return vm, record.ErrNotOrphaned
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u, ok := s.orphans[id]
	if !ok {
		return vm, record.ErrNotOrphaned
	}
	vm = o.shown(node, id, u)
	_, vm.Ordered = s.orders[id]
	switch {
	case vm.Ordered || vm.Released:
		return vm, farm.Refused("the VM is already being removed")
	case u.keeping:
		return vm, farm.Refused("another request is adopting the VM; try again")
	case uuid.Validate(u.item.InstanceID) != nil || u.item.Claim == "":
		return vm, farm.Refused("the VM has no instance ID and claim; it cannot be adopted, only removed")
	case u.detail == nil:
		return vm,
			farm.Refused(
				"the node has not yet reported details of the VM; try again in half a minute, or update its agent")
	case u.detail.Ending:
		return vm, farm.Refused("the VM is already being removed by its node")
	}
	u.keeping = true
	s.orphans[id] = u
	return vm, nil
}

// Unclaim ends the protection of an orphaned VM.
func (o *Orphans) Unclaim(node, id string) {
	s := o.sessions.find(node)
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if u, ok := s.orphans[id]; ok {
		u.keeping = false
		s.orphans[id] = u
	}
}
