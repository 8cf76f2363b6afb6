package instances

import (
	"sync/atomic"

	"github.com/buildyard/buildyard/internal/controller/lockorder"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Limits of the readers that watch the instances.
const (
	maxBehind  = 100_000   // instances that changed since the last calls of the readers of one caller, in equal shares
	allBehind  = 4_000_000 // of all readers together, in equal shares: about 100 bytes each
	maxChanges = 1000      // instances that a reader gets at a time
)

// watches has the open watches. While there are none, a change costs one read of their number.
type watches struct {
	count atomic.Int32 // of open

	mu       lockorder.Mutex[lockorder.Watches] // guards the fields below
	open     map[*Watch]struct{}
	byCaller map[string]int // caller -> number of open watches
}

// Watch follows the instances for one reader. It keeps the ids that changed since the reader's last
// call, each of them one time: a slow reader sees the latest state of each and delays no other.
type Watch struct {
	all    *Instances
	caller string
	wake   chan struct{} // has a value when Changes may return something

	mu       lockorder.Mutex[lockorder.Watch]
	order    []string                  // ids, as they first changed
	changed  map[string]*farm.Instance // the same ids, with the result of the last change
	reported map[string]*farm.Instance // returned records that were ahead of their changes
	lost     bool                      // there were too many changes
}

// Change is an instance as it is now; its Instance is nil when it is removed.
type Change struct {
	ID string
	View
}

// Watch begins to follow the instances for a caller: every change from now on is reported. The
// reader closes it.
func (s *Instances) Watch(caller string) *Watch {
	w := &Watch{
		all: s, caller: caller, wake: make(chan struct{}, 1),
		changed: map[string]*farm.Instance{}, reported: map[string]*farm.Instance{},
	}
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	if s.watches.open == nil {
		s.watches.open, s.watches.byCaller = map[*Watch]struct{}{}, map[string]int{}
	}
	s.watches.open[w] = struct{}{}
	s.watches.byCaller[caller]++
	s.watches.count.Add(1)
	return w
}

// Close ends the watch.
func (w *Watch) Close() {
	all := &w.all.watches
	all.mu.Lock()
	defer all.mu.Unlock()
	if _, ok := all.open[w]; !ok {
		return
	}
	delete(all.open, w)
	all.count.Add(-1)
	if all.byCaller[w.caller]--; all.byCaller[w.caller] == 0 {
		delete(all.byCaller, w.caller)
	}
}

// Siblings returns how many open watches the caller of this one has.
func (w *Watch) Siblings() int {
	w.all.watches.mu.Lock()
	defer w.all.watches.mu.Unlock()
	return w.all.watches.byCaller[w.caller]
}

// shareLocked returns how many changes a reader may be behind.
func (a *watches) shareLocked(w *Watch) int {
	return min(maxBehind/max(1, a.byCaller[w.caller]), allBehind/max(1, len(a.open)))
}

// Observe passes the changes to every watch.
func (s *Instances) Observe(events []store.Event) {
	a := &s.watches
	if a.count.Load() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for w := range a.open {
		w.add(events, a.shareLocked(w))
	}
}

func (w *Watch) add(events []store.Event, share int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events {
		if e.Kind == record.KindInstance && !w.lost && !isOfStandby(e) {
			inst, _ := e.New.(*farm.Instance)
			w.addLocked(e.ID, inst, share)
		}
	}
	w.wakeLocked()
}

// isOfStandby reports whether a change is one of a standby, which no list shows. The claim of one is a new instance.
func isOfStandby(e store.Event) bool {
	was, _ := e.Old.(*farm.Instance)
	now, _ := e.New.(*farm.Instance)
	return now != nil && now.IsStandby() || now == nil && was != nil && was.IsStandby()
}

func (w *Watch) addLocked(id string, inst *farm.Instance, share int) {
	_, known := w.changed[id]
	reported, was := w.reported[id]
	switch {
	case known:
		w.changed[id] = inst
	case was && reported == inst:
		delete(w.reported, id)
	case len(w.order) >= share:
		w.order, w.changed, w.reported, w.lost = nil, nil, nil, true
	default:
		w.changed[id] = inst
		w.order = append(w.order, id)
	}
}

func (w *Watch) wakeLocked() {
	if len(w.order) == 0 && !w.lost {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Wake returns a channel that has a value when Changes may return something.
func (w *Watch) Wake() <-chan struct{} { return w.wake }

// Changes returns instances that changed since the last call, in the order of their changes. When they
// are many it returns a part, and wakes the reader again. ok is false when the reader is so far
// behind that it has to begin again.
func (w *Watch) Changes() (changes []Change, ok bool) {
	ids, rows, ok := w.next()
	list := make([]View, len(rows))
	for i, row := range rows {
		if row != nil {
			list[i] = ViewOf(*row)
		}
	}
	w.all.explain(list)
	changes = make([]Change, len(ids))
	for i, id := range ids {
		changes[i] = Change{ID: id, View: list[i]}
	}
	return changes, ok
}

// next returns ids with their rows, nil for removed instances. No message is computed under the lock, which would
// delay changes.
func (w *Watch) next() (ids []string, rows []*store.Row[farm.Instance], ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	view := w.all.db.Tables.Instances.Snapshot()
	n := min(len(w.order), maxChanges)
	for _, id := range w.order[:n] {
		row, inst := rowOf(view, id)
		if reported, was := w.reported[id]; !was || reported != inst {
			ids, rows = append(ids, id), append(rows, row)
		}
		if inst != w.changed[id] { // its change comes later
			w.reported[id] = inst
		} else {
			delete(w.reported, id) // its change has arrived since
		}
		delete(w.changed, id)
	}
	if w.order = w.order[n:]; len(w.order) == 0 && !w.lost {
		w.order, w.changed = nil, map[string]*farm.Instance{} // frees the memory of a burst
	}
	if !w.lost {
		w.wakeLocked()
	}
	return ids, rows, !w.lost
}

func rowOf(view *store.View[farm.Instance], id string) (*store.Row[farm.Instance], *farm.Instance) {
	row, ok := view.Row(id)
	if !ok {
		return nil, nil
	}
	return &row, row.Value()
}
