package sched

import (
	"math"
	"time"
)

// The order of placements. A request's rank is when it was created plus what its priority is worth
// in time, so that aging costs nothing. Inside one queue the smallest rank is next. An owner, and a
// group of owners alike, claims the rank of its next request, but no earlier one than if that
// request had been created when the owner was last served: an owner that is served repeatedly ages
// again each time, all others continue to age. So owners of equal priority take turns, a more
// urgent request still goes first, and no request starves.
//
//	turn: groups -> placeable request groups of the group -> fair queues -> queues of one owner -> requests
//
// Every level is a heap. Serving an owner makes its claims later in all its queues; a queue applies
// that only when it comes to the top (reorderGroupQueue), since a claim that is too early can only be
// examined too early.

// The bounds of a priority; a value outside is moved to the nearer one.
const (
	mostUrgentPriority  = 1
	leastUrgentPriority = 10000
)

// agingRank turns a priority and a time of creation into one number that never changes. The
// effective priority is priority - rate*(now - created); since now and the rate are the same for
// all, its order is that of created + priority/rate. So aging costs nothing: the queue is never
// sorted again.
type agingRank struct{ microsPerPoint int64 }

const (
	defaultAgePerSecond = 1000.0 / 1800 // a default priority is worth 30 minutes
	maxMicrosPerPoint   = 1e13          // keeps the least urgent rank inside an int64
)

func newAgingRank(agePerSecond float64) agingRank {
	if !(agePerSecond > 0) {
		agePerSecond = defaultAgePerSecond
	}
	return agingRank{int64(min(max(1, 1e6/agePerSecond), maxMicrosPerPoint))}
}

// priorityMicros returns what a priority is worth, in microseconds.
func (k agingRank) priorityMicros(priority int) int64 {
	return int64(min(max(priority, mostUrgentPriority), leastUrgentPriority)) * k.microsPerPoint
}

func (k agingRank) rank(r *Request) int64 {
	return r.Created.UnixMicro() + k.priorityMicros(r.Priority)
}

// lastServed is the time of the last placement for a group or an owner, in microseconds: the time
// itself, and the latest position paid for by a placement, which is the time plus what the priority
// of the request was worth. The number of the placement distinguishes those of equal time.
type lastServed struct {
	atMicros, paidUntilMicros int64
	seq                       uint64
}

// neverServed is lastServed of a group or an owner without placements.
var neverServed = lastServed{atMicros: math.MinInt64 / 2, paidUntilMicros: math.MinInt64 / 2}

// fairKey is a position in the order, the smaller the earlier.
type fairKey struct {
	rank int64
	seq  uint64
}

func (c fairKey) compare(o fairKey) int {
	switch {
	case c == o:
		return 0
	case c.rank < o.rank, c.rank == o.rank && c.seq < o.seq:
		return -1
	}
	return 1
}

// fairKeyOf returns the position of a group or an owner whose next request is r. The request ages again
// from the last placement on, but never behind what was paid for then: otherwise one of little
// urgency would wait indefinitely behind urgent ones of the same owner that fit other nodes, each
// of which makes it age again.
func (k agingRank) fairKeyOf(r *request, served lastServed) fairKey {
	return fairKey{max(r.rank, min(served.atMicros+k.priorityMicros(r.Priority), served.paidUntilMicros)), served.seq}
}

// ownerShare is an owner of pending requests, inside one group. It is removed when none is pending:
// later requests are younger than its lastServed anyway.
type ownerShare struct {
	name         string
	lastServed   lastServed
	pendingCount int
}

// groupQueue is a group with waiting requests.
type groupQueue struct {
	group        string
	lastServed   lastServed
	owners       map[string]*ownerShare
	pendingCount int
	ready        indexedHeap[*requestGroup] // request groups with a request that may be placed now
	key          fairKey
	heapPos      int // in Index.turn, -1 when nothing is ready
}

func (t *groupQueue) setHeapPos(pos int) { t.heapPos = pos }

func (t *groupQueue) before(o *groupQueue) bool {
	if c := t.key.compare(o.key); c != 0 {
		return c < 0
	}
	return t.nextQueue().requests[0].before(o.nextQueue().requests[0])
}

// nextQueue is the queue whose turn it is.
func (t *groupQueue) nextQueue() *ownerQueue { return t.ready[0].readyQueues[0].queues[0] }

// ownerQueue holds the pending requests of one owner in a fairQueue.
type ownerQueue struct {
	owner     *ownerShare
	fairQueue *fairQueue
	requests  indexedHeap[*request]
	key       fairKey // never later than it should be
	heapPos   int
}

func (q *ownerQueue) setHeapPos(pos int) { q.heapPos = pos }

func (q *ownerQueue) before(o *ownerQueue) bool {
	if c := q.key.compare(o.key); c != 0 {
		return c < 0
	}
	return q.requests[0].before(o.requests[0])
}

// fairQueue holds the owner queues of a request group, or of one class with separate queues.
type fairQueue struct {
	class   *versionClass // nil: all classes without separate queues
	queues  indexedHeap[*ownerQueue]
	byOwner map[*ownerShare]*ownerQueue
	heapPos int // in pool.lines, -1 when it may not be placed from now
}

func newFairQueue(of *versionClass) *fairQueue {
	return &fairQueue{class: of, byOwner: map[*ownerShare]*ownerQueue{}, heapPos: -1}
}

func (l *fairQueue) setHeapPos(pos int) { l.heapPos = pos }

func (l *fairQueue) before(o *fairQueue) bool { return l.queues[0].before(o.queues[0]) }

// push adds a request to the queue of its owner.
func (l *fairQueue) push(r *request, o *ownerShare, k agingRank) {
	q := l.byOwner[o]
	if q == nil {
		q = &ownerQueue{owner: o, fairQueue: l}
		l.byOwner[o] = q
		q.requests.push(r)
		q.key = k.fairKeyOf(r, o.lastServed)
		l.queues.push(q)
	} else {
		q.requests.push(r)
		l.updateKey(q, k)
	}
	r.queue = q
}

// remove takes a request out of its queue; an empty queue is removed.
func (l *fairQueue) remove(r *request, k agingRank) {
	q := r.queue
	r.queue = nil
	if len(q.requests) == 1 {
		l.queues.remove(q.heapPos)
		delete(l.byOwner, q.owner)
		return
	}
	q.requests.remove(r.heapPos)
	l.updateKey(q, k)
}

// updateKey computes the position of a queue again.
func (l *fairQueue) updateKey(q *ownerQueue, k agingRank) {
	q.key = k.fairKeyOf(q.requests[0], q.owner.lastServed)
	l.queues.fix(q.heapPos)
}

// groupQueueOf returns the queue of a node group, a new one when there was none.
func (x *Index) groupQueueOf(group string) *groupQueue {
	t := x.groupQueues[group]
	if t == nil {
		t = &groupQueue{group: group, lastServed: neverServed, owners: map[string]*ownerShare{}, heapPos: -1}
		x.groupQueues[group] = t
	}
	return t
}

// addPending counts one more pending request of an owner.
func (t *groupQueue) addPending(name string) *ownerShare {
	o := t.owners[name]
	if o == nil {
		o = &ownerShare{name: name, lastServed: neverServed}
		t.owners[name] = o
	}
	o.pendingCount++
	t.pendingCount++
	return o
}

// removePending counts one pending request less.
func (x *Index) removePending(t *groupQueue, o *ownerShare) {
	if o.pendingCount--; o.pendingCount == 0 {
		delete(t.owners, o.name)
	}
	if t.pendingCount--; t.pendingCount == 0 {
		delete(x.groupQueues, t.group)
	}
}

// recordPlacement records that a request is placed.
func (x *Index) recordPlacement(r *request, now time.Time) {
	x.placementCount++
	at := now.UnixMicro()
	paid := at + x.aging.priorityMicros(r.Priority)
	for _, m := range []*lastServed{&r.requestGroup().groupQueue.lastServed, &r.queue.owner.lastServed} {
		*m = lastServed{at, max(m.paidUntilMicros, paid), x.placementCount}
	}
}

// updateGroupPosition updates the position of a request group after its requests or its nodes changed.
func (x *Index) updateGroupPosition(p *requestGroup) {
	t := p.groupQueue
	ready := len(p.readyQueues) > 0 && p.hasCandidates()
	switch {
	case ready && p.heapPos < 0:
		t.ready.push(p)
	case ready:
		t.ready.fix(p.heapPos)
	case p.heapPos >= 0:
		t.ready.remove(p.heapPos)
	}
	if !ready {
		x.lacksCapacity(p)
	}
	x.reorderGroupQueue(t)
}

// reorderGroupQueue updates the position of a group, after the claim of its next queue.
func (x *Index) reorderGroupQueue(t *groupQueue) {
	for len(t.ready) > 0 {
		q := t.nextQueue()
		due := x.aging.fairKeyOf(q.requests[0], q.owner.lastServed)
		if due == q.key {
			break
		}
		q.key = due
		q.fairQueue.queues.fix(0)
		t.ready[0].readyQueues.fix(0)
		t.ready.fix(0)
	}
	switch {
	case len(t.ready) == 0:
		if t.heapPos >= 0 {
			x.readyGroups.remove(t.heapPos)
		}
		return
	case t.heapPos < 0:
		t.key = x.aging.fairKeyOf(t.nextQueue().requests[0], t.lastServed)
		x.readyGroups.push(t)
	default:
		t.key = x.aging.fairKeyOf(t.nextQueue().requests[0], t.lastServed)
		x.readyGroups.fix(t.heapPos)
	}
}
