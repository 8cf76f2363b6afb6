package fill

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Class is why a frame is fetched; a lower one is fetched first.
type Class int

// The classes.
const (
	Demand Class = iota // a guest waits for it
	Trace               // earlier boots read it
	Ahead               // it follows what a guest reads in order
	Rest
)

// String returns the name of the class, as metrics have it.
func (c Class) String() string { return [...]string{"demand", "trace", "ahead", "rest"}[c] }

// Limits of a batch, and of what is fetched before it is needed.
const (
	maxTraceBatch = 4
	maxRestBatch  = 16
	partFrames    = 4 // of a part: nodes that fill at the same time fetch few of them twice
	aheadFrames   = 2
	// quietTime is how long the rest is not fetched after a guest waited. On a slow line even single frames of it would
	// delay the next read.
	quietTime = time.Second
)

// Batch is some frames to fetch with one request: First to End-1.
type Batch struct {
	Class      Class
	First, End int
}

// Options describe the frames of a disk.
type Options struct {
	Frames int
	// IsHere reports whether a frame is here already; nil: none is.
	IsHere func(frame int) bool
	// Joins reports whether one request may fetch a frame and the next one; nil: always.
	Joins func(frame int) bool
	// Trace is the frames to fetch before others, in this order. Numbers of no frame are ignored.
	Trace []int
	// HoldRest keeps the rest from being fetched until Release is called.
	HoldRest bool
	// PartOrder is the order in which the rest is fetched, in parts of partFrames frames: a permutation of the
	// numbers from 0 to Parts(Frames)-1. Others are ignored. nil: in ascending order.
	PartOrder []int
}

// Parts returns the number of parts of some frames.
func Parts(frames int) int { return (max(0, frames) + partFrames - 1) / partFrames }

type state uint8

const (
	missing state = iota
	asked         // a worker fetches it
	here
)

// Queue has the state of all frames. Its methods may be called at the same time.
type Queue struct {
	joins func(frame int) bool

	mu      sync.Mutex // guards the fields below
	states  []state
	left    int           // frames that are not here
	changed chan struct{} // closed at the next change
	demand  []int         // that a guest waits for, the oldest first
	trace   []int
	traced  bool // there was a trace
	ahead   []int
	parts   []int32      // in the order in which the rest is fetched
	places  []int32      // of each part in that order
	rest    int          // where the rest continues: all frames before this place are here, or being fetched
	readers int          // reads that wait
	quiet   time.Time    // the rest is not fetched before it
	held    bool         // nor before Release
	next    map[int]bool // frames that a sequential reader would read next, of the last maxNext reads
	order   []int        // the same, the oldest first
}

// NewQueue returns the queue of a disk.
func NewQueue(o Options) *Queue {
	q := &Queue{
		joins: o.Joins, states: make([]state, max(0, o.Frames)), changed: make(chan struct{}), next: map[int]bool{},
		held: o.HoldRest,
	}
	if q.joins == nil {
		q.joins = func(int) bool { return true }
	}
	q.orderParts(o.PartOrder)
	for i := range q.states {
		if o.IsHere != nil && o.IsHere(i) {
			q.states[i] = here
		} else {
			q.left++
		}
	}
	for _, i := range o.Trace {
		if i >= 0 && i < len(q.states) && q.states[i] == missing {
			q.trace = append(q.trace, i)
		}
	}
	q.traced = len(q.trace) > 0
	return q
}

// announce wakes whoever waits for a change. mu is held.
func (q *Queue) announce() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// Need waits until all of these frames are here, and has them fetched before others. waited is how long that took; 0:
// they were here.
func (q *Queue) Need(ctx context.Context, frames []int) (waited time.Duration, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.follow(frames)
	if q.allHere(frames) {
		return 0, nil
	}
	began := time.Now()
	q.readers++
	defer func() {
		q.readers--
		q.quiet = time.Now().Add(quietTime)
		q.announce()
	}()
	for !q.allHere(frames) {
		for _, i := range frames {
			if q.states[i] == missing && !slices.Contains(q.demand, i) {
				q.demand = append(q.demand, i)
				q.announce()
			}
		}
		if err := q.wait(ctx, nil); err != nil {
			return time.Since(began), err
		}
	}
	return max(time.Since(began), 1), nil
}

// follow notes which frames a reader reads, so that those behind a sequential one are fetched ahead. A trace knows
// better what a boot reads. mu is held.
func (q *Queue) follow(frames []int) {
	for _, i := range frames {
		sequential := q.next[i]
		delete(q.next, i)
		if len(q.order) == maxNext {
			delete(q.next, q.order[0])
			q.order = q.order[1:]
		}
		q.next[i+1] = true
		q.order = append(q.order, i+1)
		if !sequential || q.traced && q.held {
			continue
		}
		for n := i + 1; n <= i+aheadFrames && n < len(q.states); n++ {
			if q.states[n] == missing && !slices.Contains(q.ahead, n) {
				q.ahead = append(q.ahead, n)
				q.announce()
			}
		}
	}
}

// maxNext bounds the readers that are followed.
const maxNext = 256

func (q *Queue) allHere(frames []int) bool {
	return !slices.ContainsFunc(frames, func(i int) bool { return q.states[i] != here })
}

// wait waits for a change or a time; nil: for a change alone. mu is held before and after.
func (q *Queue) wait(ctx context.Context, until <-chan time.Time) error {
	changed := q.changed
	q.mu.Unlock()
	defer q.mu.Lock()
	select {
	case <-changed:
	case <-until:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// Next waits for something to fetch. A worker for demand only gets what a guest waits for, so that it is never behind a
// long request. ok is false when every frame is here.
func (q *Queue) Next(ctx context.Context, demandOnly bool) (b Batch, ok bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.left > 0 {
		b, ok := q.take(demandOnly)
		if ok {
			return b, true, nil
		}
		var until <-chan time.Time
		if left := time.Until(q.quiet); !demandOnly && !q.held && q.readers == 0 && left > 0 {
			until = time.After(left)
		}
		if err := q.wait(ctx, until); err != nil {
			return b, false, err
		}
	}
	return b, false, nil
}

// take takes the next batch. mu is held.
func (q *Queue) take(demandOnly bool) (Batch, bool) {
	if i, ok := q.pop(&q.demand); ok {
		return q.batch(Demand, i, 1), true
	}
	if demandOnly {
		return Batch{}, false
	}
	if i, ok := q.pop(&q.trace); ok {
		return q.batch(Trace, i, q.tracedRun(i)), true
	}
	if i, ok := q.pop(&q.ahead); ok {
		return q.batch(Ahead, i, 1), true
	}
	if q.held || q.readers > 0 || time.Now().Before(q.quiet) {
		return Batch{}, false
	}
	for ; q.rest < len(q.parts)*partFrames; q.rest++ {
		i := int(q.parts[q.rest/partFrames])*partFrames + q.rest%partFrames
		if i < len(q.states) && q.states[i] == missing {
			return q.batch(Rest, i, q.orderedRun()), true
		}
	}
	return Batch{}, false // workers fetch what is left
}

// orderParts sets the order of the parts.
func (q *Queue) orderParts(order []int) {
	count := Parts(len(q.states))
	q.places = make([]int32, count)
	for i := range q.places {
		q.places[i] = -1
	}
	add := func(part int) {
		if part >= 0 && part < count && q.places[part] < 0 {
			q.places[part] = int32(len(q.parts))
			q.parts = append(q.parts, int32(part))
		}
	}
	for _, part := range order {
		add(part)
	}
	for part := range count { // those that the order lacks
		add(part)
	}
}

// orderedRun returns how many frames from the next one of the rest on are fetched in ascending order.
func (q *Queue) orderedRun() int {
	n := partFrames - q.rest%partFrames
	for p := q.rest / partFrames; n < maxRestBatch && p+1 < len(q.parts) && q.parts[p+1] == q.parts[p]+1; p++ {
		n += partFrames
	}
	return min(n, maxRestBatch)
}

// placeOf returns the place of a frame in the order of the rest.
func (q *Queue) placeOf(frame int) int {
	return int(q.places[frame/partFrames])*partFrames + frame%partFrames
}

// pop removes the first missing frame of a list.
func (q *Queue) pop(list *[]int) (frame int, ok bool) {
	for len(*list) > 0 {
		frame, *list = (*list)[0], (*list)[1:]
		if q.states[frame] == missing {
			return frame, true
		}
	}
	return 0, false
}

// tracedRun returns how many frames from one on are the next of the trace.
func (q *Queue) tracedRun(first int) int {
	n := 1
	for n < maxTraceBatch && n <= len(q.trace) && q.trace[n-1] == first+n {
		n++
	}
	return n
}

// batch takes frames from first on, as many as one request may fetch.
func (q *Queue) batch(c Class, first, most int) Batch {
	end := first
	for end < len(q.states) && end-first < most && q.states[end] == missing && (end == first || q.joins(end-1)) {
		q.states[end] = asked
		end++
	}
	return Batch{c, first, end}
}

// Done reports that a frame of a batch is here.
func (q *Queue) Done(frame int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.states[frame] != here {
		q.states[frame] = here
		q.left--
		q.announce()
	}
}

// Return makes the frames of a batch that are not here missing again: their fetch failed. Those of the trace are
// fetched with the rest then.
func (q *Queue) Return(b Batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := b.First; i < b.End; i++ {
		if q.states[i] == asked {
			q.states[i] = missing
			q.rest = min(q.rest, q.placeOf(i))
		}
	}
	q.announce()
}

// Release ends HoldRest.
func (q *Queue) Release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = false
	q.announce()
}

// Left returns how many frames are not here, and how many reads wait.
func (q *Queue) Left() (frames, readers int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.left, q.readers
}
