package sched

// requestGroup holds the pending requests with equal constraints and the nodes that may take them.
// Every request of a request group fits the same nodes.
type requestGroup struct {
	want      constraints
	groupName string
	chain     map[string]int // group id -> steps from the request's group; nil is any node

	tenant  *groupQueue // nil without pending requests
	main    *fairQueue
	lines   heapOf[*fairQueue] // fair queues that may be placed from now
	waiting int
	pos     int // in tenant.ready, -1 when parked

	fresh    bool          // it is in Index.fresh
	shortage *starvedGroup // nil while it does not lack capacity
	promised *node         // reserved for it; nil: none

	held    []*versionClass // classes that wait for their version
	classes map[version]*versionClass
	kin     map[string]map[*versionClass]struct{} // template id -> its classes

	free   nodeHeap // nodes that can take a request; full ones are removed lazily
	better []*node  // nodes that improved, not rated again yet

	reason   Reason // the last result of WaitReason
	reasonAt uint64 // Index.changes at that time
}

func (p *requestGroup) moved(pos int) { p.pos = pos }

func (p *requestGroup) before(o *requestGroup) bool { return p.lines[0].before(o.lines[0]) }

// open reports whether any node may take a request.
func (p *requestGroup) open() bool { return len(p.free.heap) > 0 || len(p.better) > 0 }

// tier returns the distance of a node from the request's group, and whether it is within reach.
func (p *requestGroup) tier(n *node) (int, bool) {
	if p.chain == nil {
		return 0, true
	}
	best, in := 0, false
	for _, g := range n.Groups {
		if t, ok := p.chain[g]; ok && (!in || t < best) {
			best, in = t, true
		}
	}
	return best, in
}

// rate returns the part of a node's score that all versions share, and whether the
// node can take a request at all.
func (p *requestGroup) rate(n *node) (Score, bool) {
	if n.gone || p.refusal(n) != nil {
		return Score{}, false
	}
	tier, _ := p.tier(n)
	return Score{Fallback: tier, Failures: n.failures, Load: n.load, Fit: n.fit}, true
}

// score rates a node that no rule excludes.
func (p *requestGroup) score(n *node, v version) Score {
	s, _ := p.rate(n)
	s.Locality, s.Missing = n.has(v)
	return s
}

// look records a changed node that can take the group's requests, and reports whether it can.
func (p *requestGroup) look(n *node) bool {
	if p.refusal(n) != nil {
		return false
	}
	if len(p.better) == 0 || p.better[len(p.better)-1] != n {
		p.better = append(p.better, n)
	}
	if len(p.better) > maxBetter {
		p.freshen()
	}
	return true
}

// maxBetter bounds the changes of nodes that a request group defers until it is used.
const maxBetter = 1000

// freshen rates the improved nodes again.
func (p *requestGroup) freshen() {
	for _, n := range p.better {
		s, ok := p.rate(n)
		if !ok {
			p.free.drop(n)
			continue
		}
		p.free.put(n, s)
		p.each(n, func(c *versionClass) { c.look(n) })
	}
	clear(p.better)
	p.better = p.better[:0]
}

// each calls f with the classes that may have some content on a node.
func (p *requestGroup) each(n *node, f func(*versionClass)) {
	if len(p.classes) <= len(n.templates) {
		for _, c := range p.classes {
			f(c)
		}
		return
	}
	for t := range n.templates {
		for c := range p.kin[t] {
			f(c)
		}
	}
	for _, v := range n.room.pulls {
		for c := range p.kin[v.template] {
			f(c)
		}
	}
}

// class returns the class of a version.
func (p *requestGroup) class(v version) *versionClass {
	c := p.classes[v]
	if c != nil {
		return c
	}
	c = &versionClass{pool: p, version: v, pos: -1}
	p.classes[v] = c
	if p.kin[v.template] == nil {
		p.kin[v.template] = map[*versionClass]struct{}{}
	}
	p.kin[v.template][c] = struct{}{}
	c.near = p.nearTo(c)
	return c
}

// nearTo returns the nodes that have some content of a class's version, of those that were rated.
func (p *requestGroup) nearTo(c *versionClass) nodeHeap {
	list := make([]candidate, 0, len(p.free.by))
	for n := range p.free.by {
		if s, ok := c.rate(n); ok {
			list = append(list, candidate{node: n, score: s})
		}
	}
	return fill(list)
}

// forget removes a class without pending requests.
func (p *requestGroup) forget(c *versionClass) {
	delete(p.classes, c.version)
	if delete(p.kin[c.version.template], c); len(p.kin[c.version.template]) == 0 {
		delete(p.kin, c.version.template)
	}
}

// pick returns the best node for a request of a class, nil when none has capacity. It is the first
// of those that have some content of the version, or the first of all: one with such content that
// comes first among all is not worse among the former.
func (p *requestGroup) pick(c *versionClass) (*node, Score) {
	p.freshen()
	first := p.free.top(p.rate)
	if first == nil {
		return nil, Score{}
	}
	score := p.score(first.node, c.version)
	if near := c.near.top(c.rate); near != nil && near.score.weight() < score.weight() {
		return near.node, near.score
	}
	return first.node, score
}
