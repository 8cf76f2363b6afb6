package sched

import (
	"maps"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// Options are the options of an Index. The zero value spreads VMs and waits for no version.
type Options struct {
	// AgePerSecond is how many points of priority a second of waiting is worth; 0 is 1000 points in
	// 30 minutes. Aging cannot be switched off: it prevents starvation.
	AgePerSecond float64
	// Fit fills nodes one after the other instead of spreading VMs over all.
	Fit bool
	// LocalityWait bounds how long a request may wait for a node that has its
	// version while another one could take it; 0 is not at all.
	LocalityWait time.Duration
	// ReserveAfter is how long requests may find no node with enough capacity, while others are
	// placed that rank behind them, before a node is reserved for them; 0 is indefinitely.
	ReserveAfter time.Duration
	// LocalityBytes is the minimum number of bytes to pull for which a request waits in this way.
	LocalityBytes int64
}

// Index holds nodes, groups and instances. It is not safe for concurrent use: one
// goroutine owns it. Use New.
type Index struct {
	options  Options
	rank     agingRank
	nodes    map[string]*node
	groups   map[string]farm.Group
	rooms    map[string]*nodeUsage // by node ID; also of unknown nodes
	sources  versionLocations
	requests map[string]*request
	waiting  int

	pools   map[constraints]*requestGroup
	wakes   wakeIndex
	idle    lruList[*requestGroup] // request groups without pending requests, kept for the next request
	unused  lruList[*versionClass] // as idle
	tenants map[string]*groupQueue
	turn    heapOf[*groupQueue]   // groups with a request that may be placed now
	held    heapOf[*versionClass] // classes that wait for their version
	failing heapOf[*nodeUsage]    // nodes on which starts failed lately
	placed  uint64                // placements so far

	fresh    []*requestGroup       // request groups that have lacked capacity since the last Place
	short    heapOf[*starvedGroup] // those that lacked it before
	reserved int                   // nodes
	last     servedTurn            // of the last placement

	changes uint64 // grows with everything that may change a reason
}

// New makes an empty Index.
func New(o Options) *Index {
	return &Index{
		options: o, rank: newAgingRank(o.AgePerSecond),
		nodes: map[string]*node{}, groups: map[string]farm.Group{}, rooms: map[string]*nodeUsage{},
		sources: versionLocations{}, requests: map[string]*request{}, pools: map[constraints]*requestGroup{},
		wakes: newWakeIndex(), tenants: map[string]*groupQueue{},
		idle: lruList[*requestGroup]{limit: maxIdlePools}, unused: lruList[*versionClass]{limit: maxIdleClasses},
	}
}

// SetNode adds a node or replaces its description.
func (x *Index) SetNode(to Node) {
	n := x.nodes[to.ID]
	if n == nil {
		n = &node{room: x.room(to.ID), fit: x.options.Fit, tie: tieOf(to.ID)}
		n.room.node, n.failures = n, len(n.room.failed)
		x.nodes[to.ID] = n
	}
	if !sameVersions(n.Cached, to.Cached) {
		x.recache(n, to.Cached)
	}
	n.Node = to
	n.recount()
	x.recheck(n)
	x.changed(n)
}

// recache applies a change of the versions on a node's disk.
func (x *Index) recache(n *node, to []farm.NodeTemplate) {
	id := n.room.id
	for content := range n.contents {
		x.sources.drop(content, id)
	}
	n.cache(to)
	for content := range n.contents {
		x.sources.add(content, id)
	}
}

// RemoveNode removes a node. The usage of its instances stays known.
func (x *Index) RemoveNode(id string) {
	n := x.nodes[id]
	if n == nil {
		return
	}
	x.recache(n, nil)
	n.gone, n.room.node = true, nil
	delete(x.nodes, id)
	x.recheck(n)
	x.tidy(n.room)
	x.changes++
	for _, p := range x.pools {
		p.drop(n)
	}
}

// SetGroup adds a group or replaces it. Only its id, name and fallback matter.
func (x *Index) SetGroup(g farm.Group) {
	if x.groups[g.ID] == g {
		return
	}
	x.groups[g.ID] = g
	x.regroup()
}

// RemoveGroup removes a group. Nodes and instances may still name it.
func (x *Index) RemoveGroup(id string) {
	delete(x.groups, id)
	x.regroup()
}

// regroup applies a change of groups, which is rare.
func (x *Index) regroup() {
	x.changes++
	for _, p := range x.pools {
		if p.want.group == "" {
			continue
		}
		x.wakes.remove(p)
		x.attach(p)
		if p.promised != nil {
			x.recheck(p.promised)
		}
		if p.waiting > 0 {
			x.requeue(p)
		}
	}
}

// changed offers a node to the request groups that it could unblock: it may have become better for
// some. One that accepts nothing now unblocks none.
func (x *Index) changed(n *node) {
	x.changes++
	if n.isClosed() {
		return
	}
	x.wakes.each(n, func(p *requestGroup) {
		if !p.look(n) || p.waiting == 0 {
			return
		}
		warmed := p.warm(n)
		if p.pos < 0 || warmed {
			x.requeue(p)
		}
	})
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
