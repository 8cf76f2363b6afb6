package sched

import (
	"slices"
	"time"
)

// Limits of the request groups and classes that are kept without pending requests: creating one
// requires rating every node.
const (
	maxIdlePools   = 32
	maxIdleClasses = 64
)

// lruList is a bounded list of unused values, the longest unused first.
type lruList[T comparable] struct {
	list  []T
	limit int
}

// take removes a value that is used again or no longer exists.
func (r *lruList[T]) take(v T) {
	if i := slices.Index(r.list, v); i >= 0 {
		r.list = slices.Delete(r.list, i, i+1)
	}
}

// put adds a value, and returns the evicted one, if any.
func (r *lruList[T]) put(v T) (oldest T, full bool) {
	r.list = append(r.list, v)
	if len(r.list) <= r.limit {
		return oldest, false
	}
	oldest = r.list[0]
	r.list = slices.Delete(r.list, 0, 1)
	return oldest, true
}

// pool returns the request group of constraints; a new one rates every node.
func (x *Index) pool(d constraints) *requestGroup {
	p := x.pools[d]
	if p == nil {
		p = &requestGroup{
			want: d, main: newFairQueue(nil), pos: -1,
			classes: map[version]*versionClass{}, kin: map[string]map[*versionClass]struct{}{},
		}
		x.pools[d] = p
		x.attach(p)
	}
	return p
}

// attach computes what a request group derives from groups and nodes.
func (x *Index) attach(p *requestGroup) {
	p.chain, p.groupName = x.chain(p.want.group), p.want.group
	if g := x.groups[p.want.group]; g.Name != "" {
		p.groupName = g.Name
	}
	x.wakes.add(p)
	nodes := x.nodes
	if p.want.pinned != "" {
		nodes = map[string]*node{}
		if n := x.nodes[p.want.pinned]; n != nil {
			nodes[n.ID] = n
		}
	}
	var list []candidate
	for _, n := range nodes {
		if s, ok := p.rate(n); ok {
			list = append(list, candidate{node: n, score: s})
		}
	}
	p.free, p.better = fill(list), nil
	for _, c := range p.classes {
		c.near = p.nearTo(c)
	}
}

// chain returns a group and its fallbacks, nearest first; a cycle ends where it closes.
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

// retainClass keeps a class without pending requests for later.
func (x *Index) retainClass(c *versionClass) {
	if c.held {
		x.release(c)
	}
	c.line, c.since = nil, time.Time{}
	if old, full := x.unused.put(c); full {
		old.pool.forget(old)
	}
}

// deactivate keeps a request group without pending requests for later.
func (x *Index) deactivate(p *requestGroup) {
	old, full := x.idle.put(p)
	if !full {
		return
	}
	for _, c := range old.classes {
		x.unused.take(c)
	}
	x.wakes.remove(old)
	delete(x.pools, old.want)
}

// drop removes a node.
func (p *requestGroup) drop(n *node) {
	p.free.drop(n)
	for _, c := range p.classes {
		c.near.drop(n)
	}
}

// warm lets the classes try again that wait for a version which the node has, and reports whether
// there are any.
func (p *requestGroup) warm(n *node) bool {
	found := false
	for _, c := range p.held {
		if l, _ := n.has(c.version); l >= VersionPulled {
			c.warm, found = true, true
			p.show(c.line)
		}
	}
	return found
}

// wakeIndex finds the request groups that a change of a node could unblock: by node for those that
// are pinned, else by group and architecture. Those of one key are ordered by memory, so that a
// node visits only those that request no more than it has left.
type wakeIndex struct {
	pinned map[string][]*requestGroup
	places map[place][]*requestGroup
}

type place struct{ group, arch string }

func newWakeIndex() wakeIndex {
	return wakeIndex{pinned: map[string][]*requestGroup{}, places: map[place][]*requestGroup{}}
}

// places returns the keys under which a request group is listed.
func (p *requestGroup) places() []place {
	if p.chain == nil {
		return []place{{"", p.want.arch}}
	}
	var out []place
	for _, g := range sortedKeys(p.chain) {
		out = append(out, place{g, p.want.arch})
	}
	return out
}

func (c *wakeIndex) add(p *requestGroup) {
	if p.want.pinned != "" {
		c.pinned[p.want.pinned] = append(c.pinned[p.want.pinned], p)
		return
	}
	for _, at := range p.places() {
		list := c.places[at]
		i, _ := slices.BinarySearchFunc(list, p.want.memoryMB,
			func(o *requestGroup, mb int) int { return o.want.memoryMB - mb })
		c.places[at] = slices.Insert(list, i, p)
	}
}

func (c *wakeIndex) remove(p *requestGroup) {
	if p.want.pinned != "" {
		removeFrom(c.pinned, p.want.pinned, p)
		return
	}
	for _, at := range p.places() {
		removeFrom(c.places, at, p)
	}
}

func removeFrom[K comparable](m map[K][]*requestGroup, key K, p *requestGroup) {
	list := m[key]
	i := slices.Index(list, p)
	if m[key] = slices.Delete(list, i, i+1); len(m[key]) == 0 {
		delete(m, key)
	}
}

// each calls f with every request group that the node could unblock; with some of them more than
// once.
func (c *wakeIndex) each(n *node, f func(*requestGroup)) {
	for _, p := range c.pinned[n.ID] {
		f(p)
	}
	left := n.memoryLeft()
	visit := func(group, arch string) {
		for _, p := range c.places[place{group, arch}] {
			if p.want.memoryMB > left {
				return
			}
			f(p)
		}
	}
	visit("", "")
	visit("", n.Arch)
	for _, g := range n.Groups {
		visit(g, "")
		visit(g, n.Arch)
	}
}
