package cachejobs

import (
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/metric"
	"github.com/buildyard/buildyard/internal/store"
)

// kinds are the kinds of cache jobs, as metrics show them.
var kinds = []farm.CacheJobKind{farm.CacheJobDistribute, farm.CacheJobRemove}

// metrics counts the nodes that are done with cache jobs, by kind.
type metrics map[farm.CacheJobKind]*metric.Results

func newMetrics() metrics {
	m := metrics{}
	for _, kind := range kinds {
		m[kind] = new(metric.Results)
	}
	return m
}

// CountResults counts the results that were written here.
func (j *Jobs) CountResults(written []store.Change) {
	for _, change := range written {
		result, is := change.Value().(*farm.CacheJobResult)
		if !is {
			continue
		}
		id, _ := record.SplitCacheJobResultID(change.ID())
		job, _, known := j.db.Tables.CacheJobs.Get(id)
		if !known {
			continue
		}
		if results := j.metrics[job.Kind]; result.Done {
			results.OK.Inc()
		} else {
			results.Failed.Inc()
		}
	}
}

// Families returns the metrics of cache jobs.
func (j *Jobs) Families() []metric.Family {
	return []metric.Family{
		{
			Name: "buildyard_cache_jobs_open", Kind: metric.KindGauge, Labels: []string{"kind"},
			Help: "Unfinished cache jobs (distributions and removals)",
			Read: func(s *metric.Series) {
				open, _ := j.countOpen()
				addValues(s, open)
			},
		},
		{
			Name: "buildyard_cache_job_nodes_pending", Kind: metric.KindGauge, Labels: []string{"kind"},
			Help: "Nodes that have not finished a cache job, counted once per job",
			Read: func(s *metric.Series) {
				_, nodes := j.countOpen()
				addValues(s, nodes)
			},
		},
		{
			Name: "buildyard_cache_job_nodes_total", Kind: metric.KindCounter, Labels: []string{"kind", "result"},
			Help: "Nodes that finished a cache job, by result",
			Read: func(s *metric.Series) {
				for kind, results := range j.metrics {
					s.Value(results.OK.Value(), string(kind), metric.OK)
					s.Value(results.Failed.Value(), string(kind), metric.Failed)
				}
			},
		},
		metric.GaugeFamily("buildyard_rollout_nodes",
			"Nodes that poll this replica and now pull for distributions",
			func() float64 { return float64(j.opts.Pulling()) }),
	}
}

// addValues adds counts under their one label.
func addValues(s *metric.Series, counts map[string]int) {
	for label, n := range counts {
		s.Value(float64(n), label)
	}
}

// countOpen counts the open cache jobs, and the nodes that they wait for, by kind.
func (j *Jobs) countOpen() (open, nodes map[string]int) {
	open, nodes = map[string]int{}, map[string]int{}
	for _, kind := range kinds {
		open[string(kind)], nodes[string(kind)] = 0, 0
	}
	for _, job := range j.db.Tables.CacheJobs.All() {
		if job.IsOpen() {
			open[string(job.Kind)]++
			nodes[string(job.Kind)] += len(job.Nodes) - len(job.WrongArchNodes) - len(job.WrongOSNodes)
		}
	}
	for id := range j.db.Tables.CacheJobResults.All() {
		of, _ := record.SplitCacheJobResultID(id)
		if job, _, known := j.db.Tables.CacheJobs.Get(of); known && job.IsOpen() {
			nodes[string(job.Kind)]--
		}
	}
	return open, nodes
}
