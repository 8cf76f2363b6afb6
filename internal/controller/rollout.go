package controller

import (
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/controller/lockorder"
)

// rolloutLimiter limits how many nodes pull for distributions simultaneously. All pulls share the
// bandwidth of the registry: of a thousand simultaneous ones none would finish before all do, and
// every start that has to pull would wait for them. Other nodes follow in the order of their
// requests. Each replica counts the nodes that poll it.
type rolloutLimiter struct {
	most int

	mu      lockorder.Mutex[lockorder.Rollout] // guards what follows
	pulling map[string]*rolloutSlot            // by node
	waiting []*session                         // that found no free slot, each one time
}

// rolloutSlot is the slot of a node that may pull.
type rolloutSlot struct {
	heard time.Time // when it was last in contact
	moved time.Time // when it last reported progress of its pulls
}

// A slot is freed automatically when its node falls silent, or makes no progress for longer than an
// agent tries. Should that node continue anyway, one more than the limit pulls.
const (
	silentTurn = time.Minute
	stuckTurn  = 15 * time.Minute
)

// DefaultAtOnce is the default number of nodes that pull for distributions simultaneously.
const DefaultAtOnce = 32

func newWaves(most int) *rolloutLimiter {
	return &rolloutLimiter{most: most, pulling: map[string]*rolloutSlot{}}
}

// enter reports whether the node of a session has a slot, and assigns a free one. Otherwise the
// session is woken when one may be free.
func (w *rolloutLimiter) enter(s *session, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pulling[s.node] != nil {
		return true
	}
	if len(w.pulling) >= w.most {
		w.sweepLocked(now)
	}
	if len(w.pulling) >= w.most {
		if !slices.Contains(w.waiting, s) {
			w.waiting = append(w.waiting, s)
		}
		return false
	}
	w.pulling[s.node] = &rolloutSlot{heard: now, moved: now}
	w.forgetLocked(s)
	return true
}

// sweepLocked frees the slots of nodes without contact or progress.
func (w *rolloutLimiter) sweepLocked(now time.Time) {
	for node, p := range w.pulling {
		if now.Sub(p.heard) > silentTurn || now.Sub(p.moved) > stuckTurn {
			delete(w.pulling, node)
		}
	}
}

// heard records a contact of a node.
func (w *rolloutLimiter) heard(node string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pulling[node]; p != nil {
		p.heard = now
	}
}

// moved records the progress of a node with a pull. A pull that began before this replica started
// counts as well.
func (w *rolloutLimiter) moved(node string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pulling[node] = &rolloutSlot{heard: now, moved: now}
}

// turns returns how many nodes have a slot.
func (w *rolloutLimiter) turns() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pulling)
}

// leave frees the slot of a session that has nothing left to pull, and wakes the next ones.
func (w *rolloutLimiter) leave(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pulling, s.node)
	w.forgetLocked(s)
	free := min(max(w.most-len(w.pulling), 0), len(w.waiting))
	for _, next := range w.waiting[:free] {
		next.ring()
	}
	w.waiting = slices.Delete(w.waiting, 0, free)
}

// forgetLocked removes a session from the waiting ones.
func (w *rolloutLimiter) forgetLocked(s *session) {
	w.waiting = slices.DeleteFunc(w.waiting, func(other *session) bool { return other == s })
}
