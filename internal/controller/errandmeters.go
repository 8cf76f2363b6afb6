package controller

import (
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/metric"
	"github.com/buildyard/buildyard/internal/store"
)

// shownCacheJobs are the kinds of cache jobs, as metrics show them.
var shownCacheJobs = []farm.CacheJobKind{farm.CacheJobDistribute, farm.CacheJobRemove}

// cacheJobMetrics counts the nodes that are done with cache jobs, by kind.
type cacheJobMetrics map[farm.CacheJobKind]*metric.Results

func newCacheJobMeters() cacheJobMetrics {
	m := cacheJobMetrics{}
	for _, kind := range shownCacheJobs {
		m[kind] = new(metric.Results)
	}
	return m
}

// recordResults counts the results that were written here.
func (c *Controller) recordResults(changes []store.Change) {
	for _, change := range changes {
		o, is := change.Value().(*farm.CacheJobResult)
		if !is {
			continue
		}
		id, _ := record.SplitCacheJobResultID(change.ID())
		e, _, known := c.tables.CacheJobs.Get(id)
		if !known {
			continue
		}
		if results := c.meters.cacheJobs[e.Kind]; o.Done {
			results.OK.Inc()
		} else {
			results.Failed.Inc()
		}
	}
}

// cacheJobFamilies returns the metrics of distributions and removals.
func (c *Controller) cacheJobFamilies() []metric.Family {
	return []metric.Family{
		{
			Name: "buildyard_errands_open", Kind: metric.KindGauge, Labels: []string{"kind"},
			Help: "Distributions and removals that are open",
			Read: func(s *metric.Series) {
				open, _ := c.openCacheJobs()
				each(s, open)
			},
		},
		{
			Name: "buildyard_errand_nodes_open", Kind: metric.KindGauge, Labels: []string{"kind"},
			Help: "Nodes that open distributions and removals wait for, each as often as it is asked",
			Read: func(s *metric.Series) {
				_, nodes := c.openCacheJobs()
				each(s, nodes)
			},
		},
		{
			Name: "buildyard_errand_nodes_total", Kind: metric.KindCounter, Labels: []string{"kind", "result"},
			Help: "Nodes that are done with a distribution or a removal, by result",
			Read: func(s *metric.Series) {
				for kind, results := range c.meters.cacheJobs {
					s.Value(results.OK.Value(), string(kind), metric.OK)
					s.Value(results.Failed.Value(), string(kind), metric.Failed)
				}
			},
		},
		metric.GaugeFamily("buildyard_distributing_nodes",
			"Nodes that have their turn to pull for distributions, of those that poll this replica",
			func() float64 { return float64(c.Link.Sessions.Pulling()) }),
	}
}

// openCacheJobs counts the open cache jobs, and the nodes that they wait for, by kind.
func (c *Controller) openCacheJobs() (open, nodes map[string]int) {
	open, nodes = map[string]int{}, map[string]int{}
	for _, kind := range shownCacheJobs {
		open[string(kind)], nodes[string(kind)] = 0, 0
	}
	for _, e := range c.tables.CacheJobs.All() {
		if e.Open() {
			open[string(e.Kind)]++
			nodes[string(e.Kind)] += len(e.Nodes) - len(e.Unfit)
		}
	}
	for id := range c.tables.CacheJobResults.All() {
		cacheJob, _ := record.SplitCacheJobResultID(id)
		if e, _, known := c.tables.CacheJobs.Get(cacheJob); known && e.Open() {
			nodes[string(e.Kind)]--
		}
	}
	return open, nodes
}
