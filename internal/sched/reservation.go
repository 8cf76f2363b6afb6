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

// nodesPerReservation is how many nodes there are for each one that may be reserved; one always may.
const nodesPerReservation = 8

// recheckDivisor is the fraction of Options.ReserveAfter after which a request group is examined
// again that had waited long enough and got no node.
const recheckDivisor = 10

// starvedGroup is a request group for which no node has capacity, and when it has waited long
// enough.
type starvedGroup struct {
	group     *requestGroup
	reserveAt time.Time
	heapPos   int // in Index.short
}

func (s *starvedGroup) setHeapPos(pos int) { s.heapPos = pos }

func (s *starvedGroup) before(o *starvedGroup) bool { return s.reserveAt.Before(o.reserveAt) }

// lacksCapacity records a request group for which no node has capacity. The next Place, which knows the
// time, sets the start of its wait.
func (x *Index) lacksCapacity(p *requestGroup) {
	if x.options.ReserveAfter > 0 && !p.isNewlyStarved && p.pendingCount > 0 && p.starvation == nil &&
		p.reservedNode == nil {
		p.isNewlyStarved = true
		x.newlyStarved = append(x.newlyStarved, p)
	}
}

// reserveNodes reserves nodes for the request groups that have waited too long.
func (x *Index) reserveNodes(now time.Time) {
	for _, p := range x.newlyStarved {
		if p.isNewlyStarved = false; p.pendingCount > 0 && p.starvation == nil && p.reservedNode == nil {
			p.starvation = &starvedGroup{group: p, reserveAt: now.Add(x.options.ReserveAfter)}
			x.starvedGroups.push(p.starvation)
		}
	}
	clear(x.newlyStarved)
	x.newlyStarved = x.newlyStarved[:0]
	for len(x.starvedGroups) > 0 && !x.allReserved() && !now.Before(x.starvedGroups[0].reserveAt) {
		s := x.starvedGroups[0]
		if x.isStarved(s.group) && x.reserveBestNode(s.group) {
			x.endStarvation(s.group)
			continue
		}
		s.reserveAt = now.Add(x.options.ReserveAfter / recheckDivisor)
		x.starvedGroups.fix(0)
	}
}

// endStarvation ends the starvation of a request group.
func (x *Index) endStarvation(p *requestGroup) {
	if p.starvation != nil {
		x.starvedGroups.remove(p.starvation.heapPos)
		p.starvation = nil
	}
}

// allReserved reports whether no other node may be reserved now.
func (x *Index) allReserved() bool {
	return x.reservedNodes > 0 && x.reservedNodes*nodesPerReservation >= len(x.nodes)
}

// placementTurn identifies the group and the owner of a placement, and their claims.
type placementTurn struct {
	group, owner       string
	groupKey, ownerKey fairKey // of the group among the groups, and of the owner in it
	rank               int64
}

func placementTurnOf(r *request) placementTurn {
	q, t := r.queue, r.requestGroup().groupQueue
	return placementTurn{t.group, q.owner.name, t.key, q.key, r.rank}
}

// isStarved reports whether no node has capacity for a request group whose next request ranks
// before the one that was placed last.
func (x *Index) isStarved(p *requestGroup) bool {
	if p.hasCandidates() || len(p.readyQueues) == 0 {
		return false
	}
	r, last := p.readyQueues[0].queues[0].requests[0], x.lastTurn
	switch {
	case p.groupQueue.group != last.group:
		return x.aging.fairKeyOf(r, p.groupQueue.lastServed).compare(last.groupKey) < 0
	case r.queue.owner.name != last.owner:
		return x.aging.fairKeyOf(r, r.queue.owner.lastServed).compare(last.ownerKey) < 0
	}
	return r.rank < last.rank
}

// reserveBestNode reserves the best node for a request group: the one that lacks the least, of
// those that lack nothing but capacity. It reports whether there is one.
func (x *Index) reserveBestNode(p *requestGroup) bool {
	var best *node
	for _, n := range x.nodes {
		if p.fitsAfterRelease(n) && n.reservedFor == nil && (best == nil || p.compareShortfall(n, best) < 0) {
			best = n
		}
	}
	if best == nil {
		return false
	}
	best.reservedFor, p.reservedNode = p, best
	x.reservedNodes++
	x.changeCount++
	return true
}

// fitsAfterRelease reports whether a node lacks nothing but capacity that instances will release.
func (p *requestGroup) fitsAfterRelease(n *node) bool {
	if n.isRemoved || n.CapacityMode != farm.CapacityByResources {
		return false
	}
	if f := p.firstExclusion(n); f != nil && f.name != FilterFull {
		return false
	}
	least := n.OrphanedLoad.add(p.constraints.vmLoad())
	return least.VCPU <= n.VCPULimit && least.MemoryMB <= n.MemoryLimitMB
}

// compareShortfall compares two nodes by how much capacity they lack for the group's requests.
func (p *requestGroup) compareShortfall(a, b *node) int {
	lacks := func(n *node) int {
		with := n.usedLoad.add(p.constraints.vmLoad())
		return max(ratioMillionths(with.VCPU-n.VCPULimit, n.VCPULimit),
			ratioMillionths(with.MemoryMB-n.MemoryLimitMB, n.MemoryLimitMB))
	}
	first, _ := p.groupDistance(a)
	second, _ := p.groupDistance(b)
	return cmp.Or(cmp.Compare(first, second), cmp.Compare(lacks(a), lacks(b)), cmp.Compare(a.tieBreak, b.tieBreak),
		cmp.Compare(a.ID, b.ID))
}

// endWait ends the wait of a request group of which a request was placed, or that has no pending
// requests, and releases its node.
func (x *Index) endWait(p *requestGroup) {
	x.endStarvation(p)
	if p.reservedNode != nil {
		x.releaseReservation(p.reservedNode)
	}
}

// recheckReservation releases a node that no longer suits the request group that it is reserved for.
func (x *Index) recheckReservation(n *node) {
	if p := n.reservedFor; p != nil && !p.fitsAfterRelease(n) {
		x.releaseReservation(n)
		x.lacksCapacity(p)
	}
}

func (x *Index) releaseReservation(n *node) {
	n.reservedFor.reservedNode, n.reservedFor = nil, nil
	x.reservedNodes--
	if !n.isRemoved {
		x.offerNode(n)
	}
}
