package sched

import (
	"slices"
	"time"
)

// The pools and classes that are kept although nothing waits in them: making one
// means to look at every node.
const (
	maxIdlePools   = 32
	maxIdleClasses = 64
)

// lruList is a bounded list of things that are not in use, the longest unused first.
type lruList[T comparable] struct {
	list  []T
	limit int
}

// take removes a thing that is used again or gone.
func (r *lruList[T]) take(v T) {
	if i := slices.Index(r.list, v); i >= 0 {
		r.list = slices.Delete(r.list, i, i+1)
	}
}

// put adds one, and gives the one that has to go for it, if any.
func (r *lruList[T]) put(v T) (oldest T, full bool) {
	r.list = append(r.list, v)
	if len(r.list) <= r.limit {
		return oldest, false
	}
	oldest = r.list[0]
	r.list = slices.Delete(r.list, 0, 1)
	return oldest, true
}

// pool returns the pool of a demand; a new one is shown every node.
func (x *Index) pool(d constraints) *requestGroup {
	p := x.pools[d]
	if p == nil {
		p = &requestGroup{
			want: d, main: newLine(nil), pos: -1,
			classes: map[version]*versionClass{}, kin: map[string]map[*versionClass]struct{}{},
		}
		x.pools[d] = p
		x.attach(p)
	}
	return p
}

// attach computes what a pool holds of groups and nodes.
func (x *Index) attach(p *requestGroup) {
	p.chain, p.groupName = x.chain(p.want.group), p.want.group
	if g := x.groups[p.want.group]; g.Name != "" {
		p.groupName = g.Name
	}
	x.cures.add(p)
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

// chain returns a group and its fallbacks, nearest first; a loop ends where it closes.
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

// retainClass keeps a class that nothing waits in for later.
func (x *Index) retainClass(c *versionClass) {
	if c.held {
		x.release(c)
	}
	c.line, c.since = nil, time.Time{}
	if old, full := x.unused.put(c); full {
		old.pool.forget(old)
	}
}

// deactivate keeps a pool that nothing waits in for later.
func (x *Index) deactivate(p *requestGroup) {
	old, full := x.idle.put(p)
	if !full {
		return
	}
	for _, c := range old.classes {
		x.unused.take(c)
	}
	x.cures.remove(old)
	delete(x.pools, old.want)
}

// drop forgets a node that is gone.
func (p *requestGroup) drop(n *node) {
	p.free.drop(n)
	for _, c := range p.classes {
		c.near.drop(n)
	}
}

// warm lets the classes that wait for what a node has try again, and says whether
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

// wakeIndex finds the pools that a change of a node could cure: by node for those that
// are pinned, else by group and architecture. Those of a place are ordered by memory,
// so that a node asks only those that ask for no more than it has left.
type wakeIndex struct {
	pinned map[string][]*requestGroup
	places map[place][]*requestGroup
}

type place struct{ group, arch string }

func newCures() wakeIndex {
	return wakeIndex{pinned: map[string][]*requestGroup{}, places: map[place][]*requestGroup{}}
}

// places returns where a pool is found.
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
		i, _ := slices.BinarySearchFunc(list, p.want.memoryMB, func(o *requestGroup, mb int) int { return o.want.memoryMB - mb })
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

// each calls f with every pool that the node could cure; with some of them more than once.
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
