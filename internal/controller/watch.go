package controller

import (
	"sync"
	"sync/atomic"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Limits of those who watch the instances.
const (
	maxWatches = 1000
	maxBehind  = 100_000 // instances that changed since a reader last looked
	maxTaken   = 1000    // instances that a reader gets at a time
)

// watches are those who follow the instances. While there are none, a change costs one
// look at their number.
type watches struct {
	count atomic.Int32 // of open

	mu   sync.Mutex
	open map[*Watch]struct{}
}

// Watch follows the instances for one reader. It remembers which of them changed since
// the reader last looked, each once: a slow reader sees the latest state of each and
// holds nobody up.
type Watch struct {
	c    *Controller
	wake chan struct{} // has a value when there may be something to take

	mu      sync.Mutex
	order   []string            // ids, as they first changed
	changed map[string]struct{} // the same ids
	lost    bool                // there were too many of them
}

// Seen is an instance as it is now; its Instance is nil when it is gone.
type Seen struct {
	ID string
	Listed
}

// Watch begins to follow the instances: every change from now on is seen. The reader
// closes it.
func (c *Controller) Watch() (*Watch, error) {
	w := &Watch{c: c, wake: make(chan struct{}, 1), changed: map[string]struct{}{}}
	c.watches.mu.Lock()
	defer c.watches.mu.Unlock()
	if len(c.watches.open) >= maxWatches {
		return nil, farm.Errorf(farm.CodeBusy, "There are %d watches already; end one, or ask for the list", maxWatches)
	}
	if c.watches.open == nil {
		c.watches.open = map[*Watch]struct{}{}
	}
	c.watches.open[w] = struct{}{}
	c.watches.count.Add(1)
	return w, nil
}

// Close ends the following.
func (w *Watch) Close() {
	all := &w.c.watches
	all.mu.Lock()
	defer all.mu.Unlock()
	if _, ok := all.open[w]; ok {
		delete(all.open, w)
		all.count.Add(-1)
	}
}

// observe tells every watch of the changes.
func (a *watches) observe(events []store.Event) {
	if a.count.Load() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for w := range a.open {
		w.note(events)
	}
}

func (w *Watch) note(events []store.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range events {
		if _, known := w.changed[e.ID]; known || e.Kind != kindInstance || w.lost {
			continue
		}
		if len(w.order) == maxBehind {
			w.order, w.changed, w.lost = nil, nil, true
			break
		}
		w.changed[e.ID] = struct{}{}
		w.order = append(w.order, e.ID)
	}
	w.ringLocked()
}

func (w *Watch) ringLocked() {
	if len(w.order) == 0 && !w.lost {
		return
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Wake has a value when there may be something to take.
func (w *Watch) Wake() <-chan struct{} { return w.wake }

// Take gives instances that changed since they were last taken, in the order in which
// they did. It gives a part when they are many, and rings again. ok is false when the
// reader is so far behind that it has to begin anew.
func (w *Watch) Take() (changes []Seen, ok bool) {
	ids, ok := w.ids()
	view := w.c.tables.Instances.Snapshot()
	list := make([]Listed, 0, len(ids))
	for _, id := range ids {
		if row, ok := view.Row(id); ok {
			list = append(list, listed(row))
		}
	}
	w.c.explain(list)
	changes = make([]Seen, 0, len(ids))
	for _, id := range ids {
		seen := Seen{ID: id}
		if len(list) > 0 && list[0].ID == id {
			seen.Listed, list = list[0], list[1:]
		}
		changes = append(changes, seen)
	}
	return changes, ok
}

// ids takes some of the ids that changed.
func (w *Watch) ids() (ids []string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.order), maxTaken)
	ids = w.order[:n:n]
	if w.order = w.order[n:]; len(w.order) == 0 {
		w.order, w.changed = nil, map[string]struct{}{} // what a burst took is given back
	}
	for _, id := range ids {
		delete(w.changed, id)
	}
	if !w.lost {
		w.ringLocked()
	}
	return ids, !w.lost
}
