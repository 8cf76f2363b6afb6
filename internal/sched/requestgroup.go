package sched

// requestGroup holds the pending requests with equal constraints and the nodes that may take them.
// Every request of a request group fits the same nodes.
type requestGroup struct {
	constraints     constraints
	groupName       string
	distanceByGroup map[string]int // group id -> steps from the request's group; nil is any node

	groupQueue   *groupQueue // nil without pending requests
	mainQueue    *fairQueue
	readyQueues  indexedHeap[*fairQueue] // fair queues that may be placed from now
	pendingCount int
	heapPos      int // in tenant.ready, -1 when parked

	isNewlyStarved bool          // it is in Index.fresh
	starvation     *starvedGroup // nil while it does not lack capacity
	reservedNode   *node         // reserved for it; nil: none

	deferredClasses   []*versionClass // classes that wait for their version
	classes           map[version]*versionClass
	classesByTemplate map[string]map[*versionClass]struct{} // template id -> its classes

	candidates    nodeHeap // nodes that can take a request; full ones are removed lazily
	improvedNodes []*node  // nodes that improved, not rated again yet

	cachedReason      Reason // the last result of PendingReason
	reasonChangeCount uint64 // Index.changes at that time
}

func (p *requestGroup) setHeapPos(pos int) { p.heapPos = pos }

func (p *requestGroup) before(o *requestGroup) bool { return p.readyQueues[0].before(o.readyQueues[0]) }

// hasCandidates reports whether any node may take a request.
func (p *requestGroup) hasCandidates() bool {
	return len(p.candidates.entries) > 0 || len(p.improvedNodes) > 0
}

// groupDistance returns the distance of a node from the request's group, and whether it is within reach.
func (p *requestGroup) groupDistance(n *node) (int, bool) {
	if p.distanceByGroup == nil {
		return 0, true
	}
	best, in := 0, false
	for _, g := range n.Groups {
		if t, ok := p.distanceByGroup[g]; ok && (!in || t < best) {
			best, in = t, true
		}
	}
	return best, in
}

// scoreNode returns the part of a node's score that all versions share, and whether the
// node can take a request at all.
func (p *requestGroup) scoreNode(n *node) (Score, bool) {
	if n.isRemoved || p.firstExclusion(n) != nil {
		return Score{}, false
	}
	tier, _ := p.groupDistance(n)
	return Score{GroupDistance: tier, Failures: n.recentFailures, Load: n.loadMillionths, BinPack: n.binPack}, true
}

// score rates a node that no rule excludes.
func (p *requestGroup) score(n *node, v version) Score {
	s, _ := p.scoreNode(n)
	s.Locality, s.MissingBytes = n.localityOf(v)
	return s
}

// updateNode records a changed node that can take the group's requests, and reports whether it can.
func (p *requestGroup) updateNode(n *node) bool {
	if p.firstExclusion(n) != nil {
		return false
	}
	if len(p.improvedNodes) == 0 || p.improvedNodes[len(p.improvedNodes)-1] != n {
		p.improvedNodes = append(p.improvedNodes, n)
	}
	if len(p.improvedNodes) > maxImprovedNodes {
		p.rescoreImproved()
	}
	return true
}

// maxImprovedNodes bounds the changes of nodes that a request group defers until it is used.
const maxImprovedNodes = 1000

// rescoreImproved rates the improved nodes again.
func (p *requestGroup) rescoreImproved() {
	for _, n := range p.improvedNodes {
		s, ok := p.scoreNode(n)
		if !ok {
			p.candidates.removeNode(n)
			continue
		}
		p.candidates.setScore(n, s)
		p.eachClassNear(n, func(c *versionClass) { c.updateNode(n) })
	}
	clear(p.improvedNodes)
	p.improvedNodes = p.improvedNodes[:0]
}

// eachClassNear calls f with the classes that may have some content on a node.
func (p *requestGroup) eachClassNear(n *node, f func(*versionClass)) {
	if len(p.classes) <= len(n.largestCached) {
		for _, c := range p.classes {
			f(c)
		}
		return
	}
	for t := range n.largestCached {
		for c := range p.classesByTemplate[t] {
			f(c)
		}
	}
	for _, v := range n.usage.pulls {
		for c := range p.classesByTemplate[v.templateID] {
			f(c)
		}
	}
}

// classOf returns the class of a version.
func (p *requestGroup) classOf(v version) *versionClass {
	c := p.classes[v]
	if c != nil {
		return c
	}
	c = &versionClass{group: p, version: v, heapPos: -1}
	p.classes[v] = c
	if p.classesByTemplate[v.templateID] == nil {
		p.classesByTemplate[v.templateID] = map[*versionClass]struct{}{}
	}
	p.classesByTemplate[v.templateID][c] = struct{}{}
	c.nodesWithContent = p.rateNodesFor(c)
	return c
}

// rateNodesFor returns the nodes that have some content of a class's version, of those that were rated.
func (p *requestGroup) rateNodesFor(c *versionClass) nodeHeap {
	list := make([]candidate, 0, len(p.candidates.indexOf))
	for n := range p.candidates.indexOf {
		if s, ok := c.scoreNode(n); ok {
			list = append(list, candidate{node: n, score: s})
		}
	}
	return newNodeHeap(list)
}

// removeClass removes a class without pending requests.
func (p *requestGroup) removeClass(c *versionClass) {
	delete(p.classes, c.version)
	if delete(p.classesByTemplate[c.version.templateID], c); len(p.classesByTemplate[c.version.templateID]) == 0 {
		delete(p.classesByTemplate, c.version.templateID)
	}
}

// bestNode returns the best node for a request of a class, nil when none has capacity. It is the first
// of those that have some content of the version, or the first of all: one with such content that
// comes first among all is not worse among the former.
func (p *requestGroup) bestNode(c *versionClass) (*node, Score) {
	p.rescoreImproved()
	first := p.candidates.best(p.scoreNode)
	if first == nil {
		return nil, Score{}
	}
	score := p.score(first.node, c.version)
	if near := c.nodesWithContent.best(c.scoreNode); near != nil && near.score.weight() < score.weight() {
		return near.node, near.score
	}
	return first.node, score
}
