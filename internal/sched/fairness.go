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
// that only when it comes to the top (reorderGroup), since a claim that is too early can only be
// examined too early.

// The bounds of a priority; a value outside is moved to the nearer one.
const (
	mostUrgent  = 1
	leastUrgent = 10000
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

// worth returns what a priority is worth, in microseconds.
func (k agingRank) worth(priority int) int64 {
	return int64(min(max(priority, mostUrgent), leastUrgent)) * k.microsPerPoint
}

func (k agingRank) rank(r *Request) int64 { return r.Created.UnixMicro() + k.worth(r.Priority) }

// lastServed is the time of the last placement for a group or an owner, in microseconds: the time
// itself, and the latest position paid for by a placement, which is the time plus what the priority
// of the request was worth. The number of the placement distinguishes those of equal time.
type lastServed struct {
	at, paid int64
	seq      uint64
}

// never is lastServed of a group or an owner without placements.
var never = lastServed{at: math.MinInt64 / 2, paid: math.MinInt64 / 2}

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

// claim returns the position of a group or an owner whose next request is r. The request ages again
// from the last placement on, but never behind what was paid for then: otherwise one of little
// urgency would wait indefinitely behind urgent ones of the same owner that fit other nodes, each
// of which makes it age again.
func (k agingRank) claim(r *request, served lastServed) fairKey {
	return fairKey{max(r.rank, min(served.at+k.worth(r.Priority), served.paid)), served.seq}
}

// ownerShare is an owner of pending requests, inside one group. It is removed when none is pending:
// later requests are younger than its lastServed anyway.
type ownerShare struct {
	name    string
	served  lastServed
	waiting int
}

// groupQueue is a group with waiting requests.
type groupQueue struct {
	group   string
	served  lastServed
	owners  map[string]*ownerShare
	waiting int
	ready   heapOf[*requestGroup] // request groups with a request that may be placed now
	claim   fairKey
	pos     int // in Index.turn, -1 when nothing is ready
}

func (t *groupQueue) moved(pos int) { t.pos = pos }

func (t *groupQueue) before(o *groupQueue) bool {
	if c := t.claim.compare(o.claim); c != 0 {
		return c < 0
	}
	return t.next().waiting[0].before(o.next().waiting[0])
}

// next is the queue whose turn it is.
func (t *groupQueue) next() *ownerQueue { return t.ready[0].lines[0].queues[0] }

// ownerQueue holds the pending requests of one owner in a fairQueue.
type ownerQueue struct {
	owner   *ownerShare
	line    *fairQueue
	waiting heapOf[*request]
	claim   fairKey // never later than it should be
	pos     int
}

func (q *ownerQueue) moved(pos int) { q.pos = pos }

func (q *ownerQueue) before(o *ownerQueue) bool {
	if c := q.claim.compare(o.claim); c != 0 {
		return c < 0
	}
	return q.waiting[0].before(o.waiting[0])
}

// fairQueue holds the owner queues of a request group, or of one class with separate queues.
type fairQueue struct {
	of     *versionClass // nil: all classes without separate queues
	queues heapOf[*ownerQueue]
	owners map[*ownerShare]*ownerQueue
	pos    int // in pool.lines, -1 when it may not be placed from now
}

func newFairQueue(of *versionClass) *fairQueue {
	return &fairQueue{of: of, owners: map[*ownerShare]*ownerQueue{}, pos: -1}
}

func (l *fairQueue) moved(pos int) { l.pos = pos }

func (l *fairQueue) before(o *fairQueue) bool { return l.queues[0].before(o.queues[0]) }

// push adds a request to the queue of its owner.
func (l *fairQueue) push(r *request, o *ownerShare, k agingRank) {
	q := l.owners[o]
	if q == nil {
		q = &ownerQueue{owner: o, line: l}
		l.owners[o] = q
		q.waiting.push(r)
		q.claim = k.claim(r, o.served)
		l.queues.push(q)
	} else {
		q.waiting.push(r)
		l.freshen(q, k)
	}
	r.queue = q
}

// remove takes a request out of its queue; an empty queue is removed.
func (l *fairQueue) remove(r *request, k agingRank) {
	q := r.queue
	r.queue = nil
	if len(q.waiting) == 1 {
		l.queues.remove(q.pos)
		delete(l.owners, q.owner)
		return
	}
	q.waiting.remove(r.pos)
	l.freshen(q, k)
}

// freshen computes the position of a queue again.
func (l *fairQueue) freshen(q *ownerQueue, k agingRank) {
	q.claim = k.claim(q.waiting[0], q.owner.served)
	l.queues.fix(q.pos)
}

// tenant returns the queue of a node group, a new one when there was none.
func (x *Index) tenant(group string) *groupQueue {
	t := x.tenants[group]
	if t == nil {
		t = &groupQueue{group: group, served: never, owners: map[string]*ownerShare{}, pos: -1}
		x.tenants[group] = t
	}
	return t
}

// joins counts one more pending request of an owner.
func (t *groupQueue) joins(name string) *ownerShare {
	o := t.owners[name]
	if o == nil {
		o = &ownerShare{name: name, served: never}
		t.owners[name] = o
	}
	o.waiting++
	t.waiting++
	return o
}

// leaves counts one pending request less.
func (x *Index) leaves(t *groupQueue, o *ownerShare) {
	if o.waiting--; o.waiting == 0 {
		delete(t.owners, o.name)
	}
	if t.waiting--; t.waiting == 0 {
		delete(x.tenants, t.group)
	}
}

// serve records that a request is placed.
func (x *Index) serve(r *request, now time.Time) {
	x.placed++
	at := now.UnixMicro()
	paid := at + x.rank.worth(r.Priority)
	for _, m := range []*lastServed{&r.pool().tenant.served, &r.queue.owner.served} {
		*m = lastServed{at, max(m.paid, paid), x.placed}
	}
}

// requeue updates the position of a request group after its requests or its nodes changed.
func (x *Index) requeue(p *requestGroup) {
	t := p.tenant
	ready := len(p.lines) > 0 && p.open()
	switch {
	case ready && p.pos < 0:
		t.ready.push(p)
	case ready:
		t.ready.fix(p.pos)
	case p.pos >= 0:
		t.ready.remove(p.pos)
	}
	if !ready {
		x.lacksCapacity(p)
	}
	x.reorderGroup(t)
}

// reorderGroup updates the position of a group, after the claim of its next queue.
func (x *Index) reorderGroup(t *groupQueue) {
	for len(t.ready) > 0 {
		q := t.next()
		due := x.rank.claim(q.waiting[0], q.owner.served)
		if due == q.claim {
			break
		}
		q.claim = due
		q.line.queues.fix(0)
		t.ready[0].lines.fix(0)
		t.ready.fix(0)
	}
	switch {
	case len(t.ready) == 0:
		if t.pos >= 0 {
			x.turn.remove(t.pos)
		}
		return
	case t.pos < 0:
		t.claim = x.rank.claim(t.next().waiting[0], t.served)
		x.turn.push(t)
	default:
		t.claim = x.rank.claim(t.next().waiting[0], t.served)
		x.turn.fix(t.pos)
	}
}
