package reconcile

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

// queue holds the time at which each record is to be checked. A record has one entry at most,
// at the earliest time that was set for it; a reader that checks it too early sets the time again.
// So a record costs nothing as long as its time only moves to later, and one without a time has no
// entry.
type queue struct {
	wake chan struct{} // has a value when the first entry may have changed

	mu   sync.Mutex                // guards the fields below
	at   map[delayedItem]time.Time // active entries; others in the heap are outdated
	heap entryHeap
}

func newQueue() *queue {
	return &queue{wake: make(chan struct{}, 1), at: map[delayedItem]time.Time{}}
}

// put schedules a check of a record no later than a time; a zero time changes nothing.
func (q *queue) put(it delayedItem, at time.Time) {
	if at.IsZero() {
		return
	}
	q.mu.Lock()
	old, known := q.at[it]
	if known && !at.Before(old) {
		q.mu.Unlock()
		return
	}
	q.at[it] = at
	heap.Push(&q.heap, entry{delayedItem: it, at: at})
	q.compactLocked()
	first := q.heap[0].delayedItem == it
	q.mu.Unlock()
	if first {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// remove removes the entry of a deleted record: its time may be a year away.
func (q *queue) remove(it delayedItem) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.at, it)
	q.compactLocked()
}

// len returns how many records have an entry.
func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.at)
}

// spareEntries is how many outdated entries the heap may hold in addition to one per active entry.
const spareEntries = 1000

// compactLocked rebuilds the heap when most of it is outdated.
func (q *queue) compactLocked() {
	if len(q.heap) <= 2*len(q.at)+spareEntries {
		return
	}
	q.heap = make(entryHeap, 0, len(q.at)+spareEntries)
	for it, at := range q.at {
		q.heap = append(q.heap, entry{delayedItem: it, at: at})
	}
	heap.Init(&q.heap)
}

// popDue removes and returns at most limit records that are due, and the time of the next one; zero
// when none is left.
func (q *queue) popDue(now time.Time, limit int) (due []delayedItem, next time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.heap) > 0 {
		e := q.heap[0]
		if at, known := q.at[e.delayedItem]; !known || !at.Equal(e.at) { // an earlier entry came after it
			heap.Pop(&q.heap)
			continue
		}
		if e.at.After(now) || len(due) == limit {
			return due, e.at
		}
		heap.Pop(&q.heap)
		delete(q.at, e.delayedItem)
		due = append(due, e.delayedItem)
	}
	return due, time.Time{}
}

type entry struct {
	delayedItem
	at time.Time
}

// entryHeap is a heap, the earliest first.
type entryHeap []entry

var _ heap.Interface = (*entryHeap)(nil)

// Len implements heap.Interface.
func (e *entryHeap) Len() int { return len(*e) }

// Less implements heap.Interface.
func (e *entryHeap) Less(i, j int) bool { return (*e)[i].at.Before((*e)[j].at) }

// Swap implements heap.Interface.
func (e *entryHeap) Swap(i, j int) { (*e)[i], (*e)[j] = (*e)[j], (*e)[i] }

// Push implements heap.Interface.
func (e *entryHeap) Push(x any) { *e = append(*e, x.(entry)) }

// Pop implements heap.Interface.
func (e *entryHeap) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = entry{}
	*e = (*e)[:last]
	return x
}
