package sched

import "cmp"

// Locality says how much of a version lies on a node.
type Locality int

// The localities, worst first.
const (
	NothingCached Locality = iota
	OlderCached            // some other version of the template
	VersionCached          // the very version
)

// Score says how well a node suits a request. Fields are compared in their order.
type Score struct {
	Fallback int      // steps from the request's own group; 0 is the group itself
	Locality Locality // more is better
	Load     int      // how full the node is, in millionths; less is better
}

// better says whether s wins over o.
func (s Score) better(o Score) bool {
	if s.Fallback != o.Fallback {
		return s.Fallback < o.Fallback
	}
	if s.Locality != o.Locality {
		return s.Locality > o.Locality
	}
	return s.Load < o.Load
}

// candidate is a node with its score as of when it was last looked at. A score can
// only have become worse since: whatever makes one better starts a new generation.
type candidate struct {
	node  *node
	score Score
}

func (c *candidate) moved(int) {}

func (c *candidate) before(o *candidate) bool {
	if c.score != o.score {
		return c.score.better(o.score)
	}
	return cmp.Less(c.node.ID, o.node.ID)
}

// class holds the candidates of one version inside a pool.
type class struct {
	gen     uint64 // generation of the pool that the candidates belong to
	waiting int    // requests of this class in the pool's queue
	best    heapOf[*candidate]
}

// pool holds the waiting requests of one demand and the nodes that may take them.
// Every request of a pool fits the same nodes, so its first one decides for all.
type pool struct {
	want      demand
	groupName string
	chain     map[string]int // group id -> steps from the request's group; nil is any node

	queue   heapOf[*request]
	classes map[version]*class
	pos     int // in Index.ready, -1 when parked

	open map[*node]struct{} // holds every node that can take a request now; full ones leave lazily
	gen  uint64             // grows when a node got better or came

	reason   Reason // what Why answered
	reasonAt uint64 // Index.changes when it did
}

func (p *pool) moved(pos int) { p.pos = pos }

func (p *pool) before(o *pool) bool { return p.queue[0].before(o.queue[0]) }

// tier gives how far a node is from the request's group, and whether it is within reach.
func (p *pool) tier(n *node) (int, bool) {
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

// score rates a node that no rule refuses.
func (p *pool) score(n *node, v version) Score {
	s := Score{Load: n.load}
	s.Fallback, _ = p.tier(n)
	if _, ok := n.contents[v.content]; ok {
		s.Locality = VersionCached
	} else if _, ok := n.templates[v.template]; ok {
		s.Locality = OlderCached
	}
	return s
}

// look notes whether a node can take the pool's requests.
func (p *pool) look(n *node) {
	if p.refusal(n) != nil {
		delete(p.open, n)
		return
	}
	p.open[n] = struct{}{}
	p.gen++
}

func (p *pool) enqueue(r *request) {
	c := p.classes[r.version()]
	if c == nil {
		c = &class{}
		p.classes[r.version()] = c
	}
	c.waiting++
	r.pool = p
	p.queue.push(r)
}

func (p *pool) dequeue(r *request) {
	p.queue.remove(r.pos)
	r.pool = nil
	c := p.classes[r.version()]
	if c.waiting--; c.waiting == 0 {
		delete(p.classes, r.version())
	}
}

// pick gives the best node for the pool's first request, nil when none has room.
func (p *pool) pick() *candidate {
	v := p.queue[0].version()
	c := p.classes[v]
	if c.gen != p.gen {
		p.rate(c, v)
	}
	for len(c.best) > 0 {
		top := c.best[0]
		switch {
		case p.refusal(top.node) != nil:
			delete(p.open, top.node)
			c.best.remove(0)
		case top.score.Load != top.node.load:
			top.score.Load = top.node.load
			c.best.fix(0)
		default:
			return top
		}
	}
	return nil
}

// rate computes the candidates of a class anew. A node that filled up since it was
// looked at is left to pick.
func (p *pool) rate(c *class, v version) {
	fresh := make([]candidate, 0, len(p.open))
	c.best = make(heapOf[*candidate], 0, len(p.open))
	for n := range p.open {
		fresh = append(fresh, candidate{n, p.score(n, v)})
		c.best = append(c.best, &fresh[len(fresh)-1])
	}
	c.best.init()
	c.gen = p.gen
}
