package sched

import (
	"slices"
	"time"
)

// Assignment is one decision of Place.
type Assignment struct {
	RequestID   string
	NodeID      string
	USBLocation string        // location of the USBDevices device assigned to it; "" when it requested none
	Score       Score         // why this node
	Waited      time.Duration // from creation to now
}

// Place assigns pending requests to nodes, at most limit of them, in the order of their turns, and
// reserves their capacity, so that the next call sees it. A request is passed over only when no
// node can take it now, or while it waits for a node that has its version. The caller stores the
// assignments and then calls SetInstance with the new records, or UndoPlacement.
func (x *Index) Place(now time.Time, limit int) []Assignment {
	x.resetFailures(now)
	x.releaseDeferred(now)
	if len(x.newlyStarved)+len(x.starvedGroups) > 0 {
		x.reserveNodes(now)
	}
	var out []Assignment
	for len(out) < limit && len(x.readyGroups) > 0 {
		r := x.readyGroups[0].nextQueue().requests[0]
		p := r.requestGroup()
		n, score := p.bestNode(r.class)
		switch {
		case n == nil:
			x.updateGroupPosition(p)
		case x.shouldDefer(r.class, score, now):
			x.deferForLocality(r)
		default:
			x.reserveCapacity(r, n, now)
			out = append(out, Assignment{r.ID, n.ID, r.usbLocation, score, max(0, now.Sub(r.Created))})
		}
	}
	return out
}

// reserveCapacity reserves capacity for a request.
func (x *Index) reserveCapacity(r *request, n *node, now time.Time) {
	p := r.requestGroup()
	if x.options.ReserveAfter > 0 {
		x.lastTurn = placementTurnOf(r)
	}
	x.recordPlacement(r, now)
	x.dequeue(r)
	r.reserved = true
	if r.USB != "" {
		r.usbLocation = n.chooseDevice(r.USB)
	}
	x.addUsage(r, n.ID)
	x.endWait(p)
}

// NextDeadline returns the time at which Place may decide otherwise although nothing has
// changed; zero is never.
func (x *Index) NextDeadline() time.Time {
	var next time.Time
	if len(x.starvedGroups) > 0 && !x.allReserved() {
		next = x.starvedGroups[0].reserveAt
	}
	if len(x.deferredClasses) > 0 {
		if at := x.nextDeferralEnd(); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// nextDeferralEnd returns when the next class has waited long enough; there is one.
func (x *Index) nextDeferralEnd() time.Time {
	return x.deferredClasses[0].placeableSince.Add(x.options.LocalityWait)
}

// shouldDefer reports whether a class that would be placed with this score should wait for a node that
// has its version.
func (x *Index) shouldDefer(c *versionClass, s Score, now time.Time) bool {
	if x.options.LocalityWait <= 0 || s.MissingBytes < max(1, x.options.LocalityBytes) || s.Locality >= VersionPulled {
		return false
	}
	if c.placeableSince.IsZero() {
		if !x.canWaitForVersion(c) {
			return false
		}
		c.placeableSince = now
	}
	return now.Before(c.placeableSince.Add(x.options.LocalityWait))
}

// canWaitForVersion reports whether a node has the version, or pulls it, and lacks nothing but capacity for
// the class.
func (x *Index) canWaitForVersion(c *versionClass) bool {
	for id := range x.locations[c.version.contentID] {
		n := x.nodes[id]
		if n == nil {
			continue
		}
		if f := c.group.firstExclusion(n); f != nil && (f.name == FilterFull || f.name == FilterUSBBusy) {
			return true
		}
	}
	return false
}

// deferForLocality moves a request that waits for its version to the queues of its class, so that
// it does not block others.
func (x *Index) deferForLocality(r *request) {
	c, p := r.class, r.requestGroup()
	if !c.isDeferred {
		c.isDeferred = true
		x.deferredClasses.push(c)
		p.deferredClasses = append(p.deferredClasses, c)
		x.changeCount++
	}
	c.retryLocality = false
	if c.ownQueues == nil {
		c.ownQueues = newFairQueue(c)
	}
	if r.queue.fairQueue == p.mainQueue {
		o := r.queue.owner
		p.mainQueue.remove(r, x.aging)
		c.ownQueues.push(r, o, x.aging)
	}
	p.updateQueuePosition(p.mainQueue)
	p.updateQueuePosition(c.ownQueues)
	x.updateGroupPosition(p)
}

// releaseDeferred ends the wait of classes that waited long enough for their versions.
func (x *Index) releaseDeferred(now time.Time) {
	for len(x.deferredClasses) > 0 && !now.Before(x.nextDeferralEnd()) {
		c := x.deferredClasses[0]
		x.endDeferral(c)
		c.group.updateQueuePosition(c.ownQueues)
		x.updateGroupPosition(c.group)
	}
}

// endDeferral ends the wait of a class.
func (x *Index) endDeferral(c *versionClass) {
	x.deferredClasses.remove(c.heapPos)
	c.group.deferredClasses = slices.DeleteFunc(c.group.deferredClasses, func(o *versionClass) bool { return o == c })
	c.isDeferred, c.retryLocality = false, false
	x.changeCount++
}

// updateQueuePosition updates the position of a fair queue among those of the request group that may be placed
// from.
func (p *requestGroup) updateQueuePosition(l *fairQueue) {
	may := len(l.queues) > 0 && !(l.class != nil && l.class.isDeferred && !l.class.retryLocality)
	switch {
	case may && l.heapPos < 0:
		p.readyQueues.push(l)
	case may:
		p.readyQueues.fix(l.heapPos)
	case l.heapPos >= 0:
		p.readyQueues.remove(l.heapPos)
	}
}
