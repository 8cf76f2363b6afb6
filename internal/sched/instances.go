package sched

// SetInstance adds an instance or replaces its record. One that Place has assigned and whose record
// names no node yet stays assigned.
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

// entry returns the instance of an ID, a new one when there was none.
func (x *Index) entry(id string) *request {
	e := x.requests[id]
	if e == nil {
		e = &request{}
		x.requests[id] = e
	}
	return e
}

// await adds or updates a pending instance.
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

// hold adds or updates an instance that uses capacity of a node. Capacity that Place reserved for
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

// RemoveInstance removes an instance that no longer exists, and releases its capacity.
func (x *Index) RemoveInstance(id string) {
	r := x.requests[id]
	if r == nil {
		return
	}
	delete(x.requests, id)
	x.unqueue(r)
	x.vacate(r)
}

// UndoPlacement undoes an assignment that could not be stored: the capacity is free again and the
// request is pending again, with its age. The turn of its owner stays used.
func (x *Index) UndoPlacement(id string) {
	r := x.requests[id]
	if r == nil || !r.reserved {
		return
	}
	x.vacate(r)
	x.enqueue(r)
}

// Waiting returns the number of pending requests.
func (x *Index) Waiting() int { return x.waiting }

// enqueue adds a request to the request group of its constraints.
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

// unqueue removes a request from its request group. Empty request groups and classes are kept for a
// while, since many requests have equal constraints.
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
