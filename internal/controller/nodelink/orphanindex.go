package nodelink

import (
	"sync/atomic"

	"github.com/buildyard/buildyard/internal/controller/lockorder"
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
