package controller

import (
	"container/heap"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/store"
)

// delayedItem identifies a record to be checked at some time.
type delayedItem struct {
	kind store.Kind // record.KindInstance or record.KindNode
	id   string
}

// delayQueue holds the time at which each record is to be checked. A record has one entry at most,
// at the earliest time that was set for it; a reader that checks it too early sets the time again.
// So a record costs nothing as long as its time only moves to later, and one without a time has no
// entry.
type delayQueue struct {
	wake chan struct{} // has a value when the first entry may have changed

	mu   sync.Mutex                // guards the fields below
	at   map[delayedItem]time.Time // active entries; others in the heap are outdated
	heap delayHeap
}

func newAgenda() *delayQueue {
	return &delayQueue{wake: make(chan struct{}, 1), at: map[delayedItem]time.Time{}}
}

// put schedules a check of a record no later than a time; a zero time changes nothing.
func (a *delayQueue) put(it delayedItem, at time.Time) {
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
	heap.Push(&a.heap, delayEntry{delayedItem: it, at: at})
	a.tidyLocked()
	first := a.heap[0].delayedItem == it
	a.mu.Unlock()
	if first {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

// drop removes the entry of a deleted record: its time may be a year away.
func (a *delayQueue) drop(it delayedItem) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.at, it)
	a.tidyLocked()
}

// spareEntries is how many outdated entries the heap may hold in addition to one per active entry.
const spareEntries = 1000

// tidyLocked rebuilds the heap when most of it is outdated.
func (a *delayQueue) tidyLocked() {
	if len(a.heap) <= 2*len(a.at)+spareEntries {
		return
	}
	a.heap = make(delayHeap, 0, len(a.at)+spareEntries)
	for it, at := range a.at {
		a.heap = append(a.heap, delayEntry{delayedItem: it, at: at})
	}
	heap.Init(&a.heap)
}

// take removes and returns at most limit records that are due, and the time of the next one; zero
// when none is left.
func (a *delayQueue) take(now time.Time, limit int) (ripe []delayedItem, next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.heap) > 0 {
		e := a.heap[0]
		if at, known := a.at[e.delayedItem]; !known || !at.Equal(e.at) { // an earlier entry came after it
			heap.Pop(&a.heap)
			continue
		}
		if e.at.After(now) || len(ripe) == limit {
			return ripe, e.at
		}
		heap.Pop(&a.heap)
		delete(a.at, e.delayedItem)
		ripe = append(ripe, e.delayedItem)
	}
	return ripe, time.Time{}
}

type delayEntry struct {
	delayedItem
	at time.Time
}

// delayHeap is a heap, the earliest first.
type delayHeap []delayEntry

var _ heap.Interface = (*delayHeap)(nil)

// Len implements heap.Interface.
func (e *delayHeap) Len() int { return len(*e) }

// Less implements heap.Interface.
func (e *delayHeap) Less(i, j int) bool { return (*e)[i].at.Before((*e)[j].at) }

// Swap implements heap.Interface.
func (e *delayHeap) Swap(i, j int) { (*e)[i], (*e)[j] = (*e)[j], (*e)[i] }

// Push implements heap.Interface.
func (e *delayHeap) Push(x any) { *e = append(*e, x.(delayEntry)) }

// Pop implements heap.Interface.
func (e *delayHeap) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = delayEntry{}
	*e = (*e)[:last]
	return x
}
