package controller

import (
	"sync/atomic"

	"github.com/buildyard/buildyard/internal/controller/lockorder"
	"github.com/buildyard/buildyard/internal/farm"
)

// orphanIndex has the ids of the instances of which a node has an orphaned VM. They result from the
// restore of an old backup: the record is pending, or placed elsewhere, and the VM still runs.
// While it is empty, a query reads one counter.
type orphanIndex struct {
	some atomic.Int32

	mu  lockorder.Mutex[lockorder.Orphans]
	ids map[string]int // -> on how many nodes
}

func (s *orphanIndex) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[string]int{}
	}
	s.ids[id]++
	s.some.Store(int32(min(len(s.ids), 1)))
}

func (s *orphanIndex) drop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids[id]--; s.ids[id] <= 0 {
		delete(s.ids, id)
	}
	s.some.Store(int32(min(len(s.ids), 1)))
}

// none reports whether there are no such instances.
func (s *orphanIndex) none() bool { return s.some.Load() == 0 }

// has reports whether a node has an orphaned VM of an instance.
func (s *orphanIndex) has(id string) bool {
	if s.some.Load() == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[id] > 0
}

// undecided is the message of an instance that is pending while it has an orphaned VM.
const undecided = "An orphaned VM of this instance exists; resolve with: buildyard node adopt"

// protectsOrphan reports whether an order is withheld: it would destroy a VM of the same instance
// that the node has under another claim, and about which no operator has decided. Terminating the
// instance, or releasing the VM, is such a decision.
func (c *Controller) protectsOrphan(s *session, inst *farm.Instance) bool {
	if inst.State == farm.Terminating || !s.strangers.has(inst.ID) || c.isReleased(s.node, inst.ID) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, holds := s.unknown[inst.ID]
	return holds
}
