package usage

import (
	"context"
	"maps"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// run takes samples periodically.
func (s *series) run(ctx context.Context, more func()) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		s.sample()
		more()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// samples are the measurements of one moment.
type samples struct {
	cloud  measurement
	nodes  map[string]measurement // node id -> its measurement
	groups map[string]measurement // group id -> its measurement
}

// sample measures the cloud, its nodes and its groups. It reads the nodes and the sums of the instances.
func (s *series) sample() {
	m, now := s.measure(), s.db.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cloud.each(now, func(p *point) { p.sample(m.cloud) })
	sampleParts(s.nodes, m.nodes, maxNodeSeries, now)
	sampleParts(s.groups, m.groups, maxGroupSeries, now)
}

// sampleParts adds measurements to their timelines, and removes the timelines without one: their nodes or
// groups were deleted.
func sampleParts(of map[string]timeline, measured map[string]measurement, most int, now time.Time) {
	maps.DeleteFunc(of, func(id string, _ timeline) bool {
		_, ok := measured[id]
		return !ok
	})
	for id, m := range measured {
		if t := part(of, id, most); t != nil {
			t.each(now, func(p *point) { p.sample(m) })
		}
	}
}

func (s *series) measure() samples {
	sums := s.counters.count(s.db.Now())
	onNode, waiting := s.counters.parts()
	out := samples{
		cloud: measurement{queue: sums.Queue, slots: sums.Slots},
		nodes: make(map[string]measurement, len(onNode)), groups: map[string]measurement{},
	}
	for id := range s.db.Tables.Groups.All() {
		out.groups[id] = measurement{queue: waiting[id]}
	}
	for id, n := range s.db.Tables.Nodes.All() {
		m := s.measureNode(n, onNode[id])
		out.nodes[id] = m
		out.cloud.running += m.running
		out.cloud.capacity += m.capacity
		out.cloud.active += m.active
		out.cloud.offline += m.offline
		for _, group := range n.Groups {
			if g, ok := out.groups[group]; ok { // groups that were deleted may still be named
				g.include(m)
				out.groups[group] = g
			}
		}
	}
	return out
}

// measureNode measures a node. Of an Offline one nothing is reported, so its instances do not count as running; they
// still use capacity.
func (s *series) measureNode(n *farm.Node, count nodeCount) measurement {
	m := measurement{running: count.running, slots: count.slots}
	switch n.VisibleState() {
	case farm.NodeActive:
		m.active, m.capacity = 1, n.VMLimit(s.db.Tables.NodeInfo(n.ID))
	case farm.NodeOffline:
		m.offline, m.running = 1, 0
		return m
	}
	if s.opts.NodeLoad != nil {
		m.cpu, m.ram, m.hasLoad = s.opts.NodeLoad(n)
	}
	return m
}
