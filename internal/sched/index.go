package sched

import (
	"maps"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// Options tune an Index. The zero value spreads VMs and waits for no version.
type Options struct {
	// AgePerSecond is how many points of priority a second of waiting is worth;
	// 0 is 1000 points in 30 minutes. Ageing cannot be switched off: it is what
	// keeps a request from starving.
	AgePerSecond float64
	// Fit fills nodes one after the other instead of spreading VMs over all.
	Fit bool
	// LocalityWait bounds how long a request may wait for a node that has its
	// version while another one could take it; 0 is not at all.
	LocalityWait time.Duration
	// ReserveAfter is how long requests may find no node with enough room, while others are
	// placed that come behind them, before a node is reserved for them; 0 is indefinitely.
	ReserveAfter time.Duration
	// LocalityBytes is how much would have to be pulled before a request waits so.
	LocalityBytes int64
}

// Index holds nodes, groups and instances. It is not safe for concurrent use: one
// goroutine owns it. Use New.
type Index struct {
	options  Options
	rank     agingRank
	nodes    map[string]*node
	groups   map[string]farm.Group
	rooms    map[string]*nodeUsage // by node id; also of nodes that are not known
	sources  versionLocations
	requests map[string]*request
	waiting  int

	pools   map[constraints]*requestGroup
	cures   wakeIndex
	idle    lruList[*requestGroup] // those that nothing waits in, kept for the next request
	unused  lruList[*versionClass] // as idle
	tenants map[string]*groupQueue
	turn    heapOf[*groupQueue]   // those with a request that may be placed now
	held    heapOf[*versionClass] // those that wait for their version
	failing heapOf[*nodeUsage]    // nodes on which starts failed lately
	placed  uint64                // placements so far

	fresh    []*requestGroup       // those that have been short of room since the last Place
	short    heapOf[*starvedGroup] // those that were so before
	reserved int                   // nodes
	last     servedTurn            // of the last placement

	changes uint64 // grows with everything that may change a reason
}

// New makes an empty Index.
func New(o Options) *Index {
	return &Index{
		options: o, rank: newRanker(o.AgePerSecond),
		nodes: map[string]*node{}, groups: map[string]farm.Group{}, rooms: map[string]*nodeUsage{},
		sources: versionLocations{}, requests: map[string]*request{}, pools: map[constraints]*requestGroup{},
		cures: newCures(), tenants: map[string]*groupQueue{},
		idle: lruList[*requestGroup]{limit: maxIdlePools}, unused: lruList[*versionClass]{limit: maxIdleClasses},
	}
}

// SetNode adds a node or replaces what is known of it.
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

// recache follows a change of the versions on a node's disk.
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

// RemoveNode forgets a node. What its instances take stays known.
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

// RemoveGroup forgets a group. Nodes and instances may still name it.
func (x *Index) RemoveGroup(id string) {
	delete(x.groups, id)
	x.regroup()
}

// regroup follows a change of groups, which is rare.
func (x *Index) regroup() {
	x.changes++
	for _, p := range x.pools {
		if p.want.group == "" {
			continue
		}
		x.cures.remove(p)
		x.attach(p)
		if p.promised != nil {
			x.recheck(p.promised)
		}
		if p.waiting > 0 {
			x.requeue(p)
		}
	}
}

// changed shows a node to the pools that it could cure: it may have become better
// for some. One that takes nothing now cures none.
func (x *Index) changed(n *node) {
	x.changes++
	if n.shut() {
		return
	}
	x.cures.each(n, func(p *requestGroup) {
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
