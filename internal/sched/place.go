package sched

import (
	"slices"
	"time"
)

// Assignment is one decision of Place.
type Assignment struct {
	RequestID string
	NodeID    string
	Device    string        // location of the USB device assigned to it; "" when it requested none
	Score     Score         // why this node
	Waited    time.Duration // from creation to now
}

// Place assigns pending requests to nodes, at most limit of them, in the order of their turns, and
// reserves their capacity, so that the next call sees it. A request is passed over only when no
// node can take it now, or while it waits for a node that has its version. The caller stores the
// assignments and then calls SetInstance with the new records, or UndoPlacement.
func (x *Index) Place(now time.Time, limit int) []Assignment {
	x.resetFailures(now)
	x.releaseDeferred(now)
	if len(x.fresh)+len(x.short) > 0 {
		x.reserve(now)
	}
	var out []Assignment
	for len(out) < limit && len(x.turn) > 0 {
		r := x.turn[0].next().waiting[0]
		p := r.pool()
		n, score := p.pick(r.class)
		switch {
		case n == nil:
			x.requeue(p)
		case x.waits(r.class, score, now):
			x.deferForLocality(r)
		default:
			x.assign(r, n, now)
			out = append(out, Assignment{r.ID, n.ID, r.device, score, max(0, now.Sub(r.Created))})
		}
	}
	return out
}

// assign reserves capacity for a request.
func (x *Index) assign(r *request, n *node, now time.Time) {
	p := r.pool()
	if x.options.ReserveAfter > 0 {
		x.last = servedTurnOf(r)
	}
	x.serve(r, now)
	x.unqueue(r)
	r.reserved = true
	if r.USB != "" {
		r.device = n.choose(r.USB)
	}
	x.occupy(r, n.ID)
	x.settled(p)
}

// NextDeadline returns the time at which Place may decide otherwise although nothing has
// changed; zero is never.
func (x *Index) NextDeadline() time.Time {
	var next time.Time
	if len(x.short) > 0 && !x.allReserved() {
		next = x.short[0].due
	}
	if len(x.held) > 0 {
		if at := x.nextUnheld(); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// nextUnheld returns when the next class has waited long enough; there is one.
func (x *Index) nextUnheld() time.Time { return x.held[0].since.Add(x.options.LocalityWait) }

// waits reports whether a class that would be placed with this score should wait for a node that
// has its version.
func (x *Index) waits(c *versionClass, s Score, now time.Time) bool {
	if x.options.LocalityWait <= 0 || s.Missing < max(1, x.options.LocalityBytes) || s.Locality >= VersionPulled {
		return false
	}
	if c.since.IsZero() {
		if !x.awaited(c) {
			return false
		}
		c.since = now
	}
	return now.Before(c.since.Add(x.options.LocalityWait))
}

// awaited reports whether a node has the version, or pulls it, and lacks nothing but capacity for
// the class.
func (x *Index) awaited(c *versionClass) bool {
	for id := range x.sources[c.version.content] {
		n := x.nodes[id]
		if n == nil {
			continue
		}
		if f := c.pool.refusal(n); f != nil && (f.name == FilterRoom || f.name == FilterDevice) {
			return true
		}
	}
	return false
}

// deferForLocality moves a request that waits for its version to the queues of its class, so that
// it does not block others.
func (x *Index) deferForLocality(r *request) {
	c, p := r.class, r.pool()
	if !c.held {
		c.held = true
		x.held.push(c)
		p.held = append(p.held, c)
		x.changes++
	}
	c.warm = false
	if c.line == nil {
		c.line = newFairQueue(c)
	}
	if r.queue.line == p.main {
		o := r.queue.owner
		p.main.remove(r, x.rank)
		c.line.push(r, o, x.rank)
	}
	p.show(p.main)
	p.show(c.line)
	x.requeue(p)
}

// releaseDeferred ends the wait of classes that waited long enough for their versions.
func (x *Index) releaseDeferred(now time.Time) {
	for len(x.held) > 0 && !now.Before(x.nextUnheld()) {
		c := x.held[0]
		x.release(c)
		c.pool.show(c.line)
		x.requeue(c.pool)
	}
}

// release ends the wait of a class.
func (x *Index) release(c *versionClass) {
	x.held.remove(c.pos)
	c.pool.held = slices.DeleteFunc(c.pool.held, func(o *versionClass) bool { return o == c })
	c.held, c.warm = false, false
	x.changes++
}

// show updates the position of a fair queue among those of the request group that may be placed
// from.
func (p *requestGroup) show(l *fairQueue) {
	may := len(l.queues) > 0 && !(l.of != nil && l.of.held && !l.of.warm)
	switch {
	case may && l.pos < 0:
		p.lines.push(l)
	case may:
		p.lines.fix(l.pos)
	case l.pos >= 0:
		p.lines.remove(l.pos)
	}
}
