package sched

import (
	"slices"
	"time"
)

// Limits of the request groups and classes that are kept without pending requests: creating one
// requires rating every node.
const (
	maxIdleGroups  = 32
	maxIdleClasses = 64
)

// lruList is a bounded list of unused values, the longest unused first.
type lruList[T comparable] struct {
	items []T
	limit int
}

// remove removes a value that is used again or no longer exists.
func (r *lruList[T]) remove(v T) {
	if i := slices.Index(r.items, v); i >= 0 {
		r.items = slices.Delete(r.items, i, i+1)
	}
}

// add adds a value, and returns the evicted one, if any.
func (r *lruList[T]) add(v T) (oldest T, full bool) {
	r.items = append(r.items, v)
	if len(r.items) <= r.limit {
		return oldest, false
	}
	oldest = r.items[0]
	r.items = slices.Delete(r.items, 0, 1)
	return oldest, true
}

// requestGroupFor returns the request group of constraints; a new one rates every node.
func (x *Index) requestGroupFor(d constraints) *requestGroup {
	p := x.requestGroups[d]
	if p == nil {
		p = &requestGroup{
			constraints: d, mainQueue: newFairQueue(nil), heapPos: -1,
			classes: map[version]*versionClass{}, classesByTemplate: map[string]map[*versionClass]struct{}{},
		}
		x.requestGroups[d] = p
		x.initGroup(p)
	}
	return p
}

// initGroup computes what a request group derives from groups and nodes.
func (x *Index) initGroup(p *requestGroup) {
	p.distanceByGroup, p.groupName = x.groupDistances(p.constraints.group), p.constraints.group
	if g := x.groups[p.constraints.group]; g.Name != "" {
		p.groupName = g.Name
	}
	x.wakeIndex.add(p)
	nodes := x.nodes
	if p.constraints.pinned != "" {
		nodes = map[string]*node{}
		if n := x.nodes[p.constraints.pinned]; n != nil {
			nodes[n.ID] = n
		}
	}
	var list []candidate
	for _, n := range nodes {
		if s, ok := p.scoreNode(n); ok {
			list = append(list, candidate{node: n, score: s})
		}
	}
	p.candidates, p.improvedNodes = newNodeHeap(list), nil
	for _, c := range p.classes {
		c.nodesWithContent = p.rateNodesFor(c)
	}
}

// groupDistances returns a group and its fallbacks, nearest first; a cycle ends where it closes.
func (x *Index) groupDistances(group string) map[string]int {
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
	if c.isDeferred {
		x.endDeferral(c)
	}
	c.ownQueues, c.placeableSince = nil, time.Time{}
	if old, full := x.idleClasses.add(c); full {
		old.group.removeClass(old)
	}
}

// retainGroup keeps a request group without pending requests for later.
func (x *Index) retainGroup(p *requestGroup) {
	old, full := x.idleGroups.add(p)
	if !full {
		return
	}
	for _, c := range old.classes {
		x.idleClasses.remove(c)
	}
	x.wakeIndex.remove(old)
	delete(x.requestGroups, old.constraints)
}

// removeNode removes a node.
func (p *requestGroup) removeNode(n *node) {
	p.candidates.removeNode(n)
	for _, c := range p.classes {
		c.nodesWithContent.removeNode(n)
	}
}

// retryDeferred lets the classes try again that wait for a version which the node has, and reports whether
// there are any.
func (p *requestGroup) retryDeferred(n *node) bool {
	found := false
	for _, c := range p.deferredClasses {
		if l, _ := n.localityOf(c.version); l >= VersionPulled {
			c.retryLocality, found = true, true
			p.updateQueuePosition(c.ownQueues)
		}
	}
	return found
}

// wakeIndex finds the request groups that a change of a node could unblock: by node for those that
// are pinned, else by group and architecture. Those of one key are ordered by memory, so that a
// node visits only those that request no more than it has left.
type wakeIndex struct {
	pinned map[string][]*requestGroup
	byKey  map[wakeKey][]*requestGroup
}

type wakeKey struct{ group, arch string }

func newWakeIndex() wakeIndex {
	return wakeIndex{pinned: map[string][]*requestGroup{}, byKey: map[wakeKey][]*requestGroup{}}
}

// wakeKeys returns the keys under which a request group is listed.
func (p *requestGroup) wakeKeys() []wakeKey {
	if p.distanceByGroup == nil {
		return []wakeKey{{"", p.constraints.arch}}
	}
	var out []wakeKey
	for _, g := range sortedKeys(p.distanceByGroup) {
		out = append(out, wakeKey{g, p.constraints.arch})
	}
	return out
}

func (c *wakeIndex) add(p *requestGroup) {
	if p.constraints.pinned != "" {
		c.pinned[p.constraints.pinned] = append(c.pinned[p.constraints.pinned], p)
		return
	}
	for _, at := range p.wakeKeys() {
		list := c.byKey[at]
		i, _ := slices.BinarySearchFunc(list, p.constraints.memoryMB,
			func(o *requestGroup, mb int) int { return o.constraints.memoryMB - mb })
		c.byKey[at] = slices.Insert(list, i, p)
	}
}

func (c *wakeIndex) remove(p *requestGroup) {
	if p.constraints.pinned != "" {
		removeFrom(c.pinned, p.constraints.pinned, p)
		return
	}
	for _, at := range p.wakeKeys() {
		removeFrom(c.byKey, at, p)
	}
}

func removeFrom[K comparable](m map[K][]*requestGroup, key K, p *requestGroup) {
	list := m[key]
	i := slices.Index(list, p)
	if m[key] = slices.Delete(list, i, i+1); len(m[key]) == 0 {
		delete(m, key)
	}
}

// eachGroup calls f with every request group that the node could unblock; with some of them more than
// once.
func (c *wakeIndex) eachGroup(n *node, f func(*requestGroup)) {
	for _, p := range c.pinned[n.ID] {
		f(p)
	}
	left := n.memoryLeft()
	visit := func(group, arch string) {
		for _, p := range c.byKey[wakeKey{group, arch}] {
			if p.constraints.memoryMB > left {
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
