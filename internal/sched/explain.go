package sched

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"
)

// NodeReason explains why one node cannot take a request, or how well it suits.
type NodeReason struct {
	NodeID   string
	NodeName string
	Filter   Filter // "" when the node can take the request now
	Text     string // as in "is offline", or the score in words
	Label    string // short form of Text for a count of nodes, as in "offline"; "" when Filter is
	Score    Score  // when Filter is ""
}

// Explain describes every node with respect to a pending request: those that can take it first and
// best first, then the others by name. It returns nil for a request that is not pending.
func (x *Index) Explain(requestID string, now time.Time) []NodeReason {
	r := x.requests[requestID]
	if r == nil || r.queue == nil {
		return nil
	}
	x.resetFailures(now)
	p := r.requestGroup()
	out := make([]NodeReason, 0, len(x.nodes))
	for _, n := range x.nodes {
		e := NodeReason{NodeID: n.ID, NodeName: n.Name}
		if f := p.firstExclusion(n); f != nil {
			e.Filter, e.Text, e.Label = f.name, f.nodeText(p, n), labelFor(f.name, n)
		} else {
			e.Score = p.score(n, r.version())
			e.Text = e.Score.Text()
		}
		out = append(out, e)
	}
	slices.SortFunc(out, compareReasons)
	return out
}

// Exclusion returns the first filter by which a node cannot take a request, regardless of what is free on it or
// reserved for another; "" for none.
func (x *Index) Exclusion(r Request, nodeID string) Filter {
	n := x.nodes[nodeID]
	if n == nil {
		return FilterState
	}
	p := x.requestGroups[r.constraints()]
	if p == nil {
		p = &requestGroup{constraints: r.constraints(), distanceByGroup: x.groupDistances(r.GroupID)}
	}
	for _, f := range filterRules {
		if !capacityFilters[f.name] && f.excludes(p, n) {
			return f.name
		}
	}
	return ""
}

// capacityFilters are those that depend on what is free on a node.
var capacityFilters = map[Filter]bool{FilterReserved: true, FilterFull: true, FilterUSBBusy: true}

// maxFullGroups bounds the kinds of requests that a fullFinder compares with the nodes.
const maxFullGroups = 100

// fullFinder finds those of some nodes that lack nothing but free capacity for a request. It compares requests with
// equal constraints with the nodes once.
type fullFinder struct {
	index *Index
	nodes []string
	known map[*requestGroup][]string
}

// find returns the group of a request, and its nodes: none if it is not pending, or if a node can take it now.
func (f *fullFinder) find(id string) (p *requestGroup, full []string) {
	r := f.index.requests[id]
	if r == nil || r.queue == nil {
		return nil, nil
	}
	p = r.requestGroup()
	full, ok := f.known[p]
	if !ok && len(f.known) < maxFullGroups {
		full = f.index.fullFor(p, f.nodes)
		f.known[p] = full
	}
	return p, full
}

// FullFor returns, for pending requests that no node can take now, those of some nodes that lack nothing but free
// capacity for them. Requests without such a node are left out.
func (x *Index) FullFor(requests iter.Seq[string], nodes []string) (of [][]string) {
	finder := fullFinder{x, nodes, map[*requestGroup][]string{}}
	for id := range requests {
		if _, full := finder.find(id); len(full) > 0 {
			of = append(of, full)
		}
	}
	return of
}

// Releasable are VMs of a node that may end for a request: the IDs of their instances, in the order in which they do.
// The first ones, as many as Ending says, end in any case.
type Releasable struct {
	IDs    []string
	Ending int
}

// releasing are the Releasable of a node that are left, and what it uses when those that end for requests have ended
// and the requests are placed.
type releasing struct {
	Releasable
	used Load
}

// Releases returns, for pending requests that no node can take now, which VMs have to end: of the node where the
// fewest have to that do not end already. Requests for which the end of all of them does not suffice on any node are
// left out, and those after the first limit results.
func (x *Index) Releases(requests iter.Seq[string], vms map[string]Releasable, limit int) (of [][]string) {
	left, nodes := map[string]releasing{}, []string{}
	for _, id := range slices.Sorted(maps.Keys(vms)) {
		if n := x.nodes[id]; n != nil {
			left[id], nodes = releasing{vms[id], n.usedLoad}, append(nodes, id)
		}
	}
	finder := fullFinder{x, nodes, map[*requestGroup][]string{}}
	for id := range requests {
		if len(of) == limit {
			break
		}
		p, full := finder.find(id)
		if len(full) == 0 {
			continue
		}
		best, ok := x.fewestReleased(p, full, left)
		if !ok {
			finder.known[p] = nil // nor is there enough for the next one: what is left only shrinks
			continue
		}
		v := left[best.node]
		of = append(of, v.IDs[min(v.Ending, best.count):best.count])
		left[best.node] = releasing{
			Releasable{v.IDs[best.count:], max(0, v.Ending-best.count)}, best.used.add(p.constraints.vmLoad()),
		}
	}
	return of
}

// release is how many VMs of a node, from the first one, end for a request, and what the node uses then.
type release struct {
	node  string
	count int
	used  Load
}

// fewestReleased returns where the fewest VMs have to end for a request that do not end already; false where the end of
// all of them does not suffice on any of the nodes.
func (x *Index) fewestReleased(p *requestGroup, nodes []string, left map[string]releasing) (best release, ok bool) {
	fewest := 0
	for _, id := range nodes {
		v := left[id]
		r, suffices := x.countReleased(p, id, v)
		if ends := max(0, r.count-v.Ending); suffices && (!ok || ends < fewest) {
			best, ok, fewest = r, true, ends
		}
	}
	return best, ok
}

// countReleased returns how many of a node's VMs have to end before it has capacity for a request; false: the end of
// all of them does not suffice.
func (x *Index) countReleased(p *requestGroup, id string, v releasing) (release, bool) {
	n := *x.nodes[id]
	n.usedLoad = v.used
	for count := 0; ; count++ {
		if n.hasCapacityFor(p.constraints) {
			return release{id, count, n.usedLoad}, true
		}
		if count == len(v.IDs) {
			return release{}, false
		}
		if r := x.requests[v.IDs[count]]; r != nil && r.nodeID == id {
			n.usedLoad = n.usedLoad.sub(r.load())
		}
	}
}

func (x *Index) fullFor(p *requestGroup, nodes []string) (full []string) {
	if p.hasCandidates() {
		return nil
	}
	for _, id := range nodes {
		if n := x.nodes[id]; n != nil {
			if f := p.firstExclusion(n); f != nil && f.name == FilterFull {
				full = append(full, id)
			}
		}
	}
	return full
}

func compareReasons(a, b NodeReason) int {
	switch {
	case a.Filter == "" && b.Filter == "":
		return cmp.Or(cmp.Compare(a.Score.weight(), b.Score.weight()),
			cmp.Compare(tieBreakOf(a.NodeID), tieBreakOf(b.NodeID)),
			cmp.Compare(a.NodeID, b.NodeID))
	case a.Filter == "":
		return -1
	case b.Filter == "":
		return 1
	}
	return cmp.Or(cmp.Compare(a.NodeName, b.NodeName), cmp.Compare(a.NodeID, b.NodeID))
}

// CountReasons groups the nodes that cannot take a request by filter and label: what may pass with time comes first,
// and larger numbers inside one filter.
func CountReasons(list []NodeReason) []FilterCount {
	labels := map[FilterCount]int{}
	for _, r := range list {
		if r.Filter != "" {
			labels[FilterCount{Filter: r.Filter, Label: r.Label}]++
		}
	}
	return sortedCounts(labels)
}

// IsTemporary reports whether the reason of a filter may pass with time.
func (f Filter) IsTemporary() bool { return temporaryFilters[f] }
