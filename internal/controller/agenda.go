package controller

import (
	"container/heap"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/store"
)

// item is a record that is looked at when its time comes.
type item struct {
	kind store.Kind // kindInstance or kindNode
	id   string
}

// agenda says when each record is to be looked at. A record has one entry at most, at
// the earliest time that it was put down for; whoever looks at it too early just puts
// it down again. So a record that moves costs nothing as long as it moves away from
// its time, and one without a time costs nothing at all.
type agenda struct {
	wake chan struct{} // has a value when the first entry may have changed

	mu   sync.Mutex         // guards the fields below
	at   map[item]time.Time // entries in force; others in the heap are history
	heap entries
}

func newAgenda() *agenda {
	return &agenda{wake: make(chan struct{}, 1), at: map[item]time.Time{}}
}

// put has a record looked at no later than a time; a zero time changes nothing.
func (a *agenda) put(it item, at time.Time) {
	if at.IsZero() {
		return
	}
	a.mu.Lock()
	old, known := a.at[it]
	if known && !at.Before(old) {
		a.mu.Unlock()
		return
	}
	a.at[it] = at
	heap.Push(&a.heap, entry{item: it, at: at})
	a.tidyLocked()
	first := a.heap[0].item == it
	a.mu.Unlock()
	if first {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

// drop forgets a record that is gone: its time may be a year away.
func (a *agenda) drop(it item) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.at, it)
	a.tidyLocked()
}

// spareEntries is how much history the heap may hold beside as many entries as there
// are in force.
const spareEntries = 1000

// tidyLocked makes the heap anew when most of it is history.
func (a *agenda) tidyLocked() {
	if len(a.heap) <= 2*len(a.at)+spareEntries {
		return
	}
	a.heap = make(entries, 0, len(a.at)+spareEntries)
	for it, at := range a.at {
		a.heap = append(a.heap, entry{item: it, at: at})
	}
	heap.Init(&a.heap)
}

// take gives at most limit records whose time has come, with their entries gone, and
// the time of the next one; zero when there is none.
func (a *agenda) take(now time.Time, limit int) (ripe []item, next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.heap) > 0 {
		e := a.heap[0]
		if at, known := a.at[e.item]; !known || !at.Equal(e.at) { // an earlier entry came after it
			heap.Pop(&a.heap)
			continue
		}
		if e.at.After(now) || len(ripe) == limit {
			return ripe, e.at
		}
		heap.Pop(&a.heap)
		delete(a.at, e.item)
		ripe = append(ripe, e.item)
	}
	return ripe, time.Time{}
}

type entry struct {
	item
	at time.Time
}

// entries is a heap, the earliest first.
type entries []entry

var _ heap.Interface = (*entries)(nil)

// Len implements heap.Interface.
func (e *entries) Len() int { return len(*e) }

// Less implements heap.Interface.
func (e *entries) Less(i, j int) bool { return (*e)[i].at.Before((*e)[j].at) }

// Swap implements heap.Interface.
func (e *entries) Swap(i, j int) { (*e)[i], (*e)[j] = (*e)[j], (*e)[i] }

// Push implements heap.Interface.
func (e *entries) Push(x any) { *e = append(*e, x.(entry)) }

// Pop implements heap.Interface.
func (e *entries) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = entry{}
	*e = (*e)[:last]
	return x
}
