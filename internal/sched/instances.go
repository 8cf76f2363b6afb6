package sched

// SetInstance adds an instance or replaces its record. One that Place has assigned and whose record
// names no node yet stays assigned.
func (x *Index) SetInstance(i Instance) {
	switch {
	case i.Ended, i.NodeID != "" && !i.UsesCapacity:
		x.RemoveInstance(i.ID)
	case i.NodeID == "":
		x.setPending(i.Request)
	default:
		x.setPlaced(i)
	}
}

// requestOf returns the instance of an ID, a new one when there was none.
func (x *Index) requestOf(id string) *request {
	e := x.requests[id]
	if e == nil {
		e = &request{}
		x.requests[id] = e
	}
	return e
}

// setPending adds or updates a pending instance.
func (x *Index) setPending(to Request) {
	r := x.requestOf(to.ID)
	if r.Request == to && (r.queue != nil || r.reserved) {
		return
	}
	reserved, node, device := r.reserved, r.nodeID, r.usbLocation
	x.removeUsage(r)
	x.dequeue(r)
	r.Request, r.rank = to, x.aging.rank(&to)
	if reserved {
		r.reserved, r.usbLocation = true, device
		x.addUsage(r, node)
		return
	}
	x.enqueue(r)
}

// setPlaced adds or updates an instance that uses capacity of a node. Capacity that Place reserved for
// it becomes the instance's own.
func (x *Index) setPlaced(i Instance) {
	r := x.requestOf(i.ID)
	if (r.reserved || r.queue != nil) && !i.PlacedAt.IsZero() {
		x.rates.add(i.GroupID, i.PlacedAt)
	}
	if r.reserved {
		r.reserved = false
		x.changeCount++
	}
	if r.Request != i.Request || r.nodeID != i.NodeID {
		x.dequeue(r)
		x.removeUsage(r)
		r.Request, r.rank, r.slot = i.Request, x.aging.rank(&i.Request), i.Slot
		x.addUsage(r, i.NodeID)
	}
	x.setSlot(r, i.Slot)
	x.setPull(r, i.Pulling, i.Progress)
}

// RemoveInstance removes an instance that no longer exists, and releases its capacity.
func (x *Index) RemoveInstance(id string) {
	r := x.requests[id]
	if r == nil {
		return
	}
	delete(x.requests, id)
	x.dequeue(r)
	x.removeUsage(r)
}

// UndoPlacement undoes an assignment that could not be stored: the capacity is free again and the
// request is pending again, with its age. The turn of its owner stays used.
func (x *Index) UndoPlacement(id string) {
	r := x.requests[id]
	if r == nil || !r.reserved {
		return
	}
	x.removeUsage(r)
	x.enqueue(r)
}

// PendingCount returns the number of pending requests.
func (x *Index) PendingCount() int { return x.pendingCount }

// enqueue adds a request to the request group of its constraints.
func (x *Index) enqueue(r *request) {
	p := x.requestGroupFor(r.constraints())
	c := p.classOf(r.version())
	if p.pendingCount == 0 {
		x.idleGroups.remove(p)
		p.groupQueue = x.groupQueueOf(p.constraints.group)
	}
	if c.pendingCount == 0 {
		x.idleClasses.remove(c)
	}
	p.pendingCount++
	c.pendingCount++
	x.pendingCount++
	r.class = c
	l := c.queuesToJoin()
	l.push(r, p.groupQueue.addPending(r.Owner), x.aging)
	p.updateQueuePosition(l)
	x.updateGroupPosition(p)
}

// dequeue removes a request from its request group. Empty request groups and classes are kept for a
// while, since many requests have equal constraints.
func (x *Index) dequeue(r *request) {
	if r.queue == nil {
		return
	}
	c, l, o := r.class, r.queue.fairQueue, r.queue.owner
	p, t := c.group, c.group.groupQueue
	r.class = nil
	l.remove(r, x.aging)
	p.updateQueuePosition(l)
	p.pendingCount--
	c.pendingCount--
	x.pendingCount--
	if c.pendingCount == 0 {
		x.retainClass(c)
	}
	x.updateGroupPosition(p)
	x.removePending(t, o)
	if p.pendingCount == 0 {
		x.endWait(p)
		p.groupQueue = nil
		x.retainGroup(p)
	}
}
