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
	rooms    map[string]*room // by node id; also of nodes that are not known
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
		rooms: map[string]*room{}, requests: map[string]*request{}, pools: map[demand]*pool{},
	}
}

// SetNode adds a node or replaces what is known of it.
func (x *Index) SetNode(n Node) {
	e := x.nodes[n.ID]
	if e == nil {
		e = &node{room: x.rooms[n.ID]}
		x.nodes[n.ID] = e
	}
	e.set(n)
	x.changed(e)
}

// RemoveNode forgets a node. What its instances take stays known.
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

// await takes over an instance that waits.
func (x *Index) await(r Request) {
	e := x.requests[r.ID]
	switch {
	case e == nil:
		e = &request{}
		x.requests[r.ID] = e
	case e.Request == r && (e.pool != nil || e.reserved):
		return
	case e.reserved:
		node := e.node
		x.vacate(e)
		e.Request, e.rank = r, x.rank.rank(&r)
		x.occupy(e, node)
		return
	}
	x.vacate(e)
	x.unqueue(e)
	e.Request, e.rank = r, x.rank.rank(&r)
	x.queue(e)
}

// hold takes over an instance that has room on a node. Room that Place reserved for
// it becomes the instance's own.
func (x *Index) hold(i Instance) {
	e := x.requests[i.ID]
	if e == nil {
		e = &request{}
		x.requests[i.ID] = e
	}
	if e.reserved {
		e.reserved = false
		x.changes++
	}
	if e.Request == i.Request && e.node == i.Node {
		return
	}
	x.unqueue(e)
	x.vacate(e)
	e.Request, e.rank = i.Request, x.rank.rank(&i.Request)
	x.occupy(e, i.Node)
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

// Unplace takes back an assignment that could not be stored: the room is free
// again and the request waits again, with its age.
func (x *Index) Unplace(id string) {
	r := x.requests[id]
	if r == nil || !r.reserved {
		return
	}
	r.reserved = false
	x.vacate(r)
	x.queue(r)
}

// Used gives what instances take of a node, those included that Place has assigned
// to it. VMs that nobody owns are not in it.
func (x *Index) Used(node string) Load {
	if r := x.rooms[node]; r != nil {
		return r.taken
	}
	return Load{}
}

// StartFailed notes that a start failed on a node.
func (x *Index) StartFailed(_ string, _ time.Time) {}

// Wake gives the time at which Place may decide otherwise although nothing has
// changed; zero is never.
func (x *Index) Wake() time.Time { return time.Time{} }

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
// calls SetInstance with the new records, or Unplace.
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
		r.reserved = true
		x.occupy(r, best.node.ID)
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

// occupy gives an instance its room on a node, which need not be known yet.
func (x *Index) occupy(r *request, id string) {
	e := x.rooms[id]
	if e == nil {
		e = &room{}
		x.rooms[id] = e
	}
	r.node = id
	e.taken = e.taken.plus(loadOf(r.VCPU, r.MemoryMB))
	if r.USB != "" {
		if e.usb == nil {
			e.usb = map[string]string{}
		}
		e.usb[r.ID] = r.USB
	}
	x.changes++
	if n := x.nodes[id]; n != nil {
		n.room = e
		n.recount()
	}
}

// vacate gives back the room of an instance.
func (x *Index) vacate(r *request) {
	if r.node == "" {
		return
	}
	e := x.rooms[r.node]
	e.taken = e.taken.minus(loadOf(r.VCPU, r.MemoryMB))
	delete(e.usb, r.ID)
	n := x.nodes[r.node]
	if e.empty() {
		delete(x.rooms, r.node)
		if n != nil {
			n.room = nil
		}
	}
	r.node, r.reserved = "", false
	if n != nil {
		n.recount()
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
