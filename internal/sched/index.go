package sched

import (
	"maps"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// Options tune an Index. The zero value is the default.
type Options struct {
	// AgePerSecond is how many points of priority a second of waiting is worth;
	// 0 is 1000 points in 30 minutes. Ageing cannot be switched off: it is what
	// keeps a request from starving.
	AgePerSecond float64
}

// Index holds nodes, groups and waiting requests. It is not safe for concurrent
// use: one goroutine owns it. Use New.
type Index struct {
	rank     ranker
	nodes    map[string]*node
	groups   map[string]farm.Group
	requests map[string]*request
	pools    map[demand]*pool
	ready    heapOf[*pool] // pools with a waiting request and an open node
	changes  uint64        // grows with everything that may change a reason
}

// New makes an empty Index.
func New(o Options) *Index {
	return &Index{
		rank:  newRanker(o.AgePerSecond),
		nodes: map[string]*node{}, groups: map[string]farm.Group{},
		requests: map[string]*request{}, pools: map[demand]*pool{},
	}
}

// SetNode adds a node or replaces what is known of it. Room that Place reserved
// on it stays reserved until Node.Allocs holds the request, RemoveRequest or Unplace.
func (x *Index) SetNode(n Node) {
	e := x.nodes[n.ID]
	if e == nil {
		e = &node{}
		x.nodes[n.ID] = e
	}
	e.set(n)
	x.changed(e)
}

// RemoveNode forgets a node and what was reserved on it.
func (x *Index) RemoveNode(id string) {
	n := x.nodes[id]
	if n == nil {
		return
	}
	delete(x.nodes, id)
	x.changes++
	for _, p := range x.pools {
		delete(p.open, n)
		p.gen++ // a class may still list it
	}
}

// SetGroup adds a group or replaces it. Only its id, name and fallback matter.
func (x *Index) SetGroup(g farm.Group) {
	if old, ok := x.groups[g.ID]; ok && old == g {
		return
	}
	x.groups[g.ID] = g
	x.regroup()
}

// RemoveGroup forgets a group. Nodes and requests may still name it.
func (x *Index) RemoveGroup(id string) {
	if _, ok := x.groups[id]; !ok {
		return
	}
	delete(x.groups, id)
	x.regroup()
}

// SetRequest adds a waiting request or replaces it. One that Place has assigned
// stays assigned.
func (x *Index) SetRequest(r Request) {
	e := x.requests[r.ID]
	if e != nil && e.Request == r {
		return
	}
	if e == nil {
		e = &request{}
		x.requests[r.ID] = e
	}
	x.unqueue(e)
	e.Request, e.rank = r, x.rank.rank(&r)
	if !e.placed {
		x.queue(e)
	}
}

// RemoveRequest forgets a request that is placed or gone, and gives back what was
// reserved for it. After a placement was stored call SetNode with the new record
// first, so that its room is never counted as free in between.
func (x *Index) RemoveRequest(id string) {
	r := x.requests[id]
	if r == nil {
		return
	}
	delete(x.requests, id)
	x.unqueue(r)
	x.release(r)
}

// Unplace takes back an assignment that could not be stored: the room is free
// again and the request waits again, with its age.
func (x *Index) Unplace(id string) {
	r := x.requests[id]
	if r == nil || !r.placed {
		return
	}
	x.release(r)
	x.queue(r)
}

// Waiting gives the number of requests that wait for a node.
func (x *Index) Waiting() int {
	n := 0
	for _, p := range x.pools {
		n += len(p.queue)
	}
	return n
}

// Assignment is one decision of Place.
type Assignment struct {
	RequestID string
	NodeID    string
	Score     Score         // why this node
	Waited    time.Duration // from creation to now
}

// Place assigns waiting requests to nodes, most urgent first, at most limit of them,
// and reserves their room, so that the next call sees it. A request is passed over
// only when no node can take it now. The caller stores the assignments and then
// calls SetNode and RemoveRequest, or Unplace.
func (x *Index) Place(now time.Time, limit int) []Assignment {
	var out []Assignment
	for len(out) < limit && len(x.ready) > 0 {
		p := x.ready[0]
		best := p.pick()
		if best == nil {
			x.ready.remove(0)
			continue
		}
		r := p.queue[0]
		out = append(out, Assignment{r.ID, best.node.ID, best.score, max(0, now.Sub(r.Created))})
		x.unqueue(r)
		r.placed, r.node = true, best.node.ID
		best.node.reserve(r.ID, p.want)
		x.changes++
	}
	return out
}

// queue files a request in the pool of its demand.
func (x *Index) queue(r *request) {
	d := r.demand()
	p := x.pools[d]
	if p == nil {
		p = x.newPool(d)
		x.pools[d] = p
	}
	p.enqueue(r)
	x.wake(p)
}

// unqueue takes a request out of its pool; an empty pool goes.
func (x *Index) unqueue(r *request) {
	p := r.pool
	if p == nil {
		return
	}
	if len(p.queue) == 1 && p.pos >= 0 {
		x.ready.remove(p.pos)
	}
	p.dequeue(r)
	if len(p.queue) == 0 {
		delete(x.pools, p.want)
		return
	}
	if p.pos >= 0 {
		x.ready.fix(p.pos)
	}
}

// release gives back the room of a placed request.
func (x *Index) release(r *request) {
	if !r.placed {
		return
	}
	r.placed = false
	n := x.nodes[r.node]
	if n == nil {
		return
	}
	if _, held := n.reserved[r.ID]; held {
		n.release(r.ID)
		x.changed(n)
	}
}

// changed shows a node to every pool: it may have become better for some.
func (x *Index) changed(n *node) {
	x.changes++
	for _, p := range x.pools {
		p.look(n)
		x.wake(p)
	}
}

// wake files a pool where Place finds it, when it has a request and an open node.
func (x *Index) wake(p *pool) {
	switch {
	case p.pos >= 0:
		x.ready.fix(p.pos)
	case len(p.queue) > 0 && len(p.open) > 0:
		x.ready.push(p)
	}
}

// newPool makes the pool of a demand and shows it every node.
func (x *Index) newPool(d demand) *pool {
	p := &pool{want: d, classes: map[version]*class{}, pos: -1, open: map[*node]struct{}{}, gen: 1}
	x.attach(p)
	return p
}

// attach computes what a pool holds of groups and nodes.
func (x *Index) attach(p *pool) {
	p.chain, p.groupName = x.chain(p.want.group), p.want.group
	if g := x.groups[p.want.group]; g.Name != "" {
		p.groupName = g.Name
	}
	clear(p.open)
	p.gen++
	for _, n := range x.nodes {
		p.look(n)
	}
}

// chain gives a group and its fallbacks, nearest first; a loop ends where it closes.
func (x *Index) chain(group string) map[string]int {
	if group == "" {
		return nil
	}
	steps := map[string]int{}
	for g := group; g != ""; g = x.groups[g].Fallback {
		if _, seen := steps[g]; seen {
			break
		}
		steps[g] = len(steps)
	}
	return steps
}

// regroup follows a change of groups, which is rare.
func (x *Index) regroup() {
	x.changes++
	for _, p := range x.pools {
		if p.want.group != "" {
			x.attach(p)
			x.wake(p)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
