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
	// BinPack fills nodes one after the other instead of spreading VMs over all.
	BinPack bool
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
	options      Options
	aging        agingRank
	nodes        map[string]*node
	groups       map[string]farm.Group
	usages       map[string]*nodeUsage // by node ID; also of unknown nodes
	locations    versionLocations
	requests     map[string]*request
	pendingCount int

	requestGroups   map[constraints]*requestGroup
	wakeIndex       wakeIndex
	idleGroups      lruList[*requestGroup] // request groups without pending requests, kept for the next request
	idleClasses     lruList[*versionClass] // as idle
	groupQueues     map[string]*groupQueue
	readyGroups     indexedHeap[*groupQueue]   // groups with a request that may be placed now
	deferredClasses indexedHeap[*versionClass] // classes that wait for their version
	failingNodes    indexedHeap[*nodeUsage]    // nodes on which starts failed lately
	placementCount  uint64                     // placements so far

	newlyStarved  []*requestGroup            // request groups that have lacked capacity since the last Place
	starvedGroups indexedHeap[*starvedGroup] // those that lacked it before
	reservedNodes int                        // nodes
	lastTurn      placementTurn              // of the last placement
	rates         placementRates             // of the node groups that requests name

	changeCount uint64 // grows with everything that may change a reason
}

// New makes an empty Index.
func New(o Options) *Index {
	return &Index{
		options: o, aging: newAgingRank(o.AgePerSecond),
		nodes: map[string]*node{}, groups: map[string]farm.Group{}, usages: map[string]*nodeUsage{},
		locations: versionLocations{}, requests: map[string]*request{}, requestGroups: map[constraints]*requestGroup{},
		wakeIndex: newWakeIndex(), groupQueues: map[string]*groupQueue{}, rates: placementRates{},
		idleGroups:  lruList[*requestGroup]{limit: maxIdleGroups},
		idleClasses: lruList[*versionClass]{limit: maxIdleClasses},
	}
}

// SetNode adds a node or replaces its description.
func (x *Index) SetNode(to Node) {
	n := x.nodes[to.ID]
	if n == nil {
		n = &node{usage: x.usageOf(to.ID), binPack: x.options.BinPack, tieBreak: tieBreakOf(to.ID)}
		n.usage.node, n.recentFailures = n, len(n.usage.failedStarts)
		x.nodes[to.ID] = n
	}
	if !sameVersions(n.CachedVersions, to.CachedVersions) {
		x.updateCached(n, to.CachedVersions)
	}
	n.Node = to
	n.recompute()
	x.recheckReservation(n)
	x.offerNode(n)
}

// updateCached applies a change of the versions on a node's disk.
func (x *Index) updateCached(n *node, to []farm.NodeTemplate) {
	id := n.usage.id
	for content := range n.cachedContents {
		x.locations.remove(content, id)
	}
	n.setCached(to)
	for content := range n.cachedContents {
		x.locations.add(content, id)
	}
}

// RemoveNode removes a node. The usage of its instances stays known.
func (x *Index) RemoveNode(id string) {
	n := x.nodes[id]
	if n == nil {
		return
	}
	x.updateCached(n, nil)
	n.isRemoved, n.usage.node = true, nil
	delete(x.nodes, id)
	x.recheckReservation(n)
	x.removeIfEmpty(n.usage)
	x.changeCount++
	for _, p := range x.requestGroups {
		p.removeNode(n)
	}
}

// SetGroup adds a group or replaces it. Only its id, name and fallback matter.
func (x *Index) SetGroup(g farm.Group) {
	if x.groups[g.ID] == g {
		return
	}
	x.groups[g.ID] = g
	x.rebuildGroups()
}

// RemoveGroup removes a group. Nodes and instances may still name it.
func (x *Index) RemoveGroup(id string) {
	delete(x.groups, id)
	x.rebuildGroups()
}

// rebuildGroups applies a change of groups, which is rare.
func (x *Index) rebuildGroups() {
	x.changeCount++
	for _, p := range x.requestGroups {
		if p.constraints.group == "" {
			continue
		}
		x.wakeIndex.remove(p)
		x.initGroup(p)
		if p.reservedNode != nil {
			x.recheckReservation(p.reservedNode)
		}
		if p.pendingCount > 0 {
			x.updateGroupPosition(p)
		}
	}
}

// offerNode offers a node to the request groups that it could unblock: it may have become better for
// some. One that accepts nothing now unblocks none.
func (x *Index) offerNode(n *node) {
	x.changeCount++
	if n.isClosed() {
		return
	}
	x.wakeIndex.eachGroup(n, func(p *requestGroup) {
		if !p.updateNode(n) || p.pendingCount == 0 {
			return
		}
		warmed := p.retryDeferred(n)
		if p.heapPos < 0 || warmed {
			x.updateGroupPosition(p)
		}
	})
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
