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

func newCacheJobMetrics() cacheJobMetrics {
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
		if results := c.metrics.cacheJobs[e.Kind]; o.Done {
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
			Name: "buildyard_cache_jobs_open", Kind: metric.KindGauge, Labels: []string{"kind"},
			Help: "Unfinished cache jobs (distributions and removals)",
			Read: func(s *metric.Series) {
				open, _ := c.openCacheJobs()
				each(s, open)
			},
		},
		{
			Name: "buildyard_cache_job_nodes_pending", Kind: metric.KindGauge, Labels: []string{"kind"},
			Help: "Nodes that have not finished a cache job, counted once per job",
			Read: func(s *metric.Series) {
				_, nodes := c.openCacheJobs()
				each(s, nodes)
			},
		},
		{
			Name: "buildyard_cache_job_nodes_total", Kind: metric.KindCounter, Labels: []string{"kind", "result"},
			Help: "Nodes that finished a cache job, by result",
			Read: func(s *metric.Series) {
				for kind, results := range c.metrics.cacheJobs {
					s.Value(results.OK.Value(), string(kind), metric.OK)
					s.Value(results.Failed.Value(), string(kind), metric.Failed)
				}
			},
		},
		metric.GaugeFamily("buildyard_rollout_nodes",
			"Nodes that poll this replica and now pull for distributions",
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
