package sched

import (
	"cmp"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// Reservations. Where capacity is counted by resources, a large request can wait indefinitely while
// small ones are placed: each release of capacity is enough for one of them, and never for it. So a
// node is reserved for a request group that has waited Options.ReserveAfter for capacity, while
// requests were placed that rank behind its own: nothing else is placed there until one of its
// requests was. Only so many nodes are reserved at a time, for those that waited longest first.

// reserveShare is how many nodes there are for each one that may be reserved; one always may.
const reserveShare = 8

// recheckShare is the fraction of Options.ReserveAfter after which a request group is examined
// again that had waited long enough and got no node.
const recheckShare = 10

// starvedGroup is a request group for which no node has capacity, and when it has waited long
// enough.
type starvedGroup struct {
	pool *requestGroup
	due  time.Time
	pos  int // in Index.short
}

func (s *starvedGroup) moved(pos int) { s.pos = pos }

func (s *starvedGroup) before(o *starvedGroup) bool { return s.due.Before(o.due) }

// lacksCapacity records a request group for which no node has capacity. The next Place, which knows the
// time, sets the start of its wait.
func (x *Index) lacksCapacity(p *requestGroup) {
	if x.options.ReserveAfter > 0 && !p.fresh && p.waiting > 0 && p.shortage == nil && p.promised == nil {
		p.fresh = true
		x.fresh = append(x.fresh, p)
	}
}

// reserve reserves nodes for the request groups that have waited too long.
func (x *Index) reserve(now time.Time) {
	for _, p := range x.fresh {
		if p.fresh = false; p.waiting > 0 && p.shortage == nil && p.promised == nil {
			p.shortage = &starvedGroup{pool: p, due: now.Add(x.options.ReserveAfter)}
			x.short.push(p.shortage)
		}
	}
	clear(x.fresh)
	x.fresh = x.fresh[:0]
	for len(x.short) > 0 && !x.allReserved() && !now.Before(x.short[0].due) {
		s := x.short[0]
		if x.isStarved(s.pool) && x.reserveBestNode(s.pool) {
			x.endStarvation(s.pool)
			continue
		}
		s.due = now.Add(x.options.ReserveAfter / recheckShare)
		x.short.fix(0)
	}
}

// endStarvation ends the starvation of a request group.
func (x *Index) endStarvation(p *requestGroup) {
	if p.shortage != nil {
		x.short.remove(p.shortage.pos)
		p.shortage = nil
	}
}

// allReserved reports whether no other node may be reserved now.
func (x *Index) allReserved() bool { return x.reserved > 0 && x.reserved*reserveShare >= len(x.nodes) }

// servedTurn identifies the group and the owner of a placement, and their claims.
type servedTurn struct {
	group, owner   string
	groups, owners fairKey // of the group among the groups, and of the owner in it
	rank           int64
}

func servedTurnOf(r *request) servedTurn {
	q, t := r.queue, r.pool().tenant
	return servedTurn{t.group, q.owner.name, t.claim, q.claim, r.rank}
}

// isStarved reports whether no node has capacity for a request group whose next request ranks
// before the one that was placed last.
func (x *Index) isStarved(p *requestGroup) bool {
	if p.open() || len(p.lines) == 0 {
		return false
	}
	r, last := p.lines[0].queues[0].waiting[0], x.last
	switch {
	case p.tenant.group != last.group:
		return x.rank.claim(r, p.tenant.served).compare(last.groups) < 0
	case r.queue.owner.name != last.owner:
		return x.rank.claim(r, r.queue.owner.served).compare(last.owners) < 0
	}
	return r.rank < last.rank
}

// reserveBestNode reserves the best node for a request group: the one that lacks the least, of
// those that lack nothing but capacity. It reports whether there is one.
func (x *Index) reserveBestNode(p *requestGroup) bool {
	var best *node
	for _, n := range x.nodes {
		if p.fitsAfterRelease(n) && n.promised == nil && (best == nil || p.closerFit(n, best) < 0) {
			best = n
		}
	}
	if best == nil {
		return false
	}
	best.promised, p.promised = p, best
	x.reserved++
	x.changes++
	return true
}

// fitsAfterRelease reports whether a node lacks nothing but capacity that instances will release.
func (p *requestGroup) fitsAfterRelease(n *node) bool {
	if n.gone || n.Mode != farm.CapacityByResources {
		return false
	}
	if f := p.refusal(n); f != nil && f.name != FilterRoom {
		return false
	}
	least := n.Foreign.plus(p.want.load())
	return least.VCPU <= n.VCPULimit && least.MemoryMB <= n.MemoryLimitMB
}

// closerFit compares two nodes by how much capacity they lack for the group's requests.
func (p *requestGroup) closerFit(a, b *node) int {
	lacks := func(n *node) int {
		with := n.used.plus(p.want.load())
		return max(millionths(with.VCPU-n.VCPULimit, n.VCPULimit),
			millionths(with.MemoryMB-n.MemoryLimitMB, n.MemoryLimitMB))
	}
	first, _ := p.tier(a)
	second, _ := p.tier(b)
	return cmp.Or(cmp.Compare(first, second), cmp.Compare(lacks(a), lacks(b)), cmp.Compare(a.tie, b.tie),
		cmp.Compare(a.ID, b.ID))
}

// settled ends the wait of a request group of which a request was placed, or that has no pending
// requests, and releases its node.
func (x *Index) settled(p *requestGroup) {
	x.endStarvation(p)
	if p.promised != nil {
		x.releaseReservation(p.promised)
	}
}

// recheck releases a node that no longer suits the request group that it is reserved for.
func (x *Index) recheck(n *node) {
	if p := n.promised; p != nil && !p.fitsAfterRelease(n) {
		x.releaseReservation(n)
		x.lacksCapacity(p)
	}
}

func (x *Index) releaseReservation(n *node) {
	n.promised.promised, n.promised = nil, nil
	x.reserved--
	if !n.gone {
		x.changed(n)
	}
}
