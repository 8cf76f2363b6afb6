package nodelink

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
	limit int

	mu      lockorder.Mutex[lockorder.Rollout] // guards the fields below
	pulling map[string]*rolloutSlot            // by node
	waiting []*session                         // that found no free slot, each one time
}

// rolloutSlot is the slot of a node that may pull.
type rolloutSlot struct {
	lastContact time.Time // when it was last in contact
	progress    time.Time // when it last reported progress of its pulls
}

// A slot is freed automatically when its node falls silent, or makes no progress for longer than an
// agent tries. Should that node continue anyway, one more than the limit pulls.
const (
	silentSlot = time.Minute
	stuckSlot  = 15 * time.Minute
)

// DefaultDistributePulls is the default number of nodes that pull for distributions simultaneously.
const DefaultDistributePulls = 32

func newRolloutLimiter(limit int) *rolloutLimiter {
	return &rolloutLimiter{limit: limit, pulling: map[string]*rolloutSlot{}}
}

// acquire reports whether the node of a session has a slot, and assigns a free one. Otherwise the
// session is woken when one may be free.
func (w *rolloutLimiter) acquire(s *session, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pulling[s.node] != nil {
		return true
	}
	if len(w.pulling) >= w.limit {
		w.freeStaleLocked(now)
	}
	if len(w.pulling) >= w.limit {
		if !slices.Contains(w.waiting, s) {
			w.waiting = append(w.waiting, s)
		}
		return false
	}
	w.pulling[s.node] = &rolloutSlot{lastContact: now, progress: now}
	w.forgetLocked(s)
	return true
}

// freeStaleLocked frees the slots of nodes without contact or progress.
func (w *rolloutLimiter) freeStaleLocked(now time.Time) {
	for node, p := range w.pulling {
		if now.Sub(p.lastContact) > silentSlot || now.Sub(p.progress) > stuckSlot {
			delete(w.pulling, node)
		}
	}
}

// contact records a contact of a node.
func (w *rolloutLimiter) contact(node string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pulling[node]; p != nil {
		p.lastContact = now
	}
}

// progress records the progress of a node with a pull. A pull that began before this replica started
// counts as well.
func (w *rolloutLimiter) progress(node string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pulling[node] = &rolloutSlot{lastContact: now, progress: now}
}

// slots returns how many nodes have a slot.
func (w *rolloutLimiter) slots() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pulling)
}

// release frees the slot of a session that has nothing left to pull, and wakes the next ones.
func (w *rolloutLimiter) release(s *session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pulling, s.node)
	w.forgetLocked(s)
	free := min(max(w.limit-len(w.pulling), 0), len(w.waiting))
	for _, next := range w.waiting[:free] {
		next.signal()
	}
	w.waiting = slices.Delete(w.waiting, 0, free)
}

// forgetLocked removes a session from the waiting ones.
func (w *rolloutLimiter) forgetLocked(s *session) {
	w.waiting = slices.DeleteFunc(w.waiting, func(other *session) bool { return other == s })
}
