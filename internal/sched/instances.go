package sched

// SetInstance adds an instance or replaces what is known of it. One that Place has
// assigned and whose record says nothing of a node yet stays assigned.
func (x *Index) SetInstance(i Instance) {
	switch {
	case i.Ended, i.Node != "" && !i.Holds:
		x.RemoveInstance(i.ID)
	case i.Node == "":
		x.await(i.Request)
	default:
		x.hold(i)
	}
}

// entry returns the instance of an id, a new one when there was none.
func (x *Index) entry(id string) *request {
	e := x.requests[id]
	if e == nil {
		e = &request{}
		x.requests[id] = e
	}
	return e
}

// await takes over an instance that waits.
func (x *Index) await(to Request) {
	r := x.entry(to.ID)
	if r.Request == to && (r.queue != nil || r.reserved) {
		return
	}
	reserved, node, device := r.reserved, r.node, r.device
	x.vacate(r)
	x.unqueue(r)
	r.Request, r.rank = to, x.rank.rank(&to)
	if reserved {
		r.reserved, r.device = true, device
		x.occupy(r, node)
		return
	}
	x.enqueue(r)
}

// hold takes over an instance that has room on a node. Room that Place reserved for
// it becomes the instance's own.
func (x *Index) hold(i Instance) {
	r := x.entry(i.ID)
	if r.reserved {
		r.reserved = false
		x.changes++
	}
	if r.Request != i.Request || r.node != i.Node {
		x.unqueue(r)
		x.vacate(r)
		r.Request, r.rank = i.Request, x.rank.rank(&i.Request)
		x.occupy(r, i.Node)
	}
	x.pull(r, i.Pulling, i.Progress)
}

// RemoveInstance forgets an instance that is gone, and gives back its room.
func (x *Index) RemoveInstance(id string) {
	r := x.requests[id]
	if r == nil {
		return
	}
	delete(x.requests, id)
	x.unqueue(r)
	x.vacate(r)
}

// UndoPlacement takes back an assignment that could not be stored: the room is free
// again and the request waits again, with its age. The turn that its owner had is
// not given back.
func (x *Index) UndoPlacement(id string) {
	r := x.requests[id]
	if r == nil || !r.reserved {
		return
	}
	x.vacate(r)
	x.enqueue(r)
}

// Waiting returns the number of requests that wait for a node.
func (x *Index) Waiting() int { return x.waiting }

// enqueue files a request in the pool of its demand.
func (x *Index) enqueue(r *request) {
	p := x.pool(r.demand())
	c := p.class(r.version())
	if p.waiting == 0 {
		x.idle.take(p)
		p.tenant = x.tenant(p.want.group)
	}
	if c.waiting == 0 {
		x.unused.take(c)
	}
	p.waiting++
	c.waiting++
	x.waiting++
	r.class = c
	l := c.queues()
	l.push(r, p.tenant.joins(r.Owner), x.rank)
	p.show(l)
	x.requeue(p)
}

// unqueue takes a request out of its pool. Pools and classes that nothing waits in
// are kept for a while, since requests come in kinds.
func (x *Index) unqueue(r *request) {
	if r.queue == nil {
		return
	}
	c, l, o := r.class, r.queue.line, r.queue.owner
	p, t := c.pool, c.pool.tenant
	r.class = nil
	l.remove(r, x.rank)
	p.show(l)
	p.waiting--
	c.waiting--
	x.waiting--
	if c.waiting == 0 {
		x.retainClass(c)
	}
	x.requeue(p)
	x.leaves(t, o)
	if p.waiting == 0 {
		x.settled(p)
		p.tenant = nil
		x.deactivate(p)
	}
}
