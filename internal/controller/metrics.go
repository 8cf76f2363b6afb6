package controller

import (
	"slices"

	"github.com/buildyard/buildyard/internal/metric"
)

// Families returns the metrics of the controller. Each replica counts what it sees of the records,
// so that a sum over replicas counts everything as often as the number of replicas.
func (c *Controller) Families() []metric.Family {
	families := slices.Concat(
		c.Usage.Families(), licenseFamilies(c.License), c.CacheJobs.Families(), c.placer.Families(),
		c.Consoles.Families(), c.Pools.Families(),
		[]metric.Family{
			metric.GaugeFamily("buildyard_node_polls_waiting", "Waiting node polls",
				func() float64 { return float64(c.Link.WaitingPolls()) }),
			metric.GaugeFamily("buildyard_history_records", "History records",
				func() float64 { return float64(c.tables.History.Len()) }),
			metric.GaugeFamily("buildyard_event_records", "Event records that have not been delivered to all targets",
				func() float64 { return float64(c.tables.Events.Len()) }),
			metric.GaugeFamily("buildyard_alarms", "Active alarms",
				func() float64 { return float64(len(c.Alarms.Active())) }),
			metric.GaugeFamily("buildyard_leader", "1 if leader, else 0",
				func() float64 { return boolValue(c.isLeader.Load()) }),
		})
	return metric.WithOldNames(families, oldNames)
}

// oldNames are the former names of metrics, by their names. They are exported for one release.
var oldNames = map[string]string{
	"buildyard_cache_jobs_open":         "buildyard_errands_open",
	"buildyard_cache_job_nodes_pending": "buildyard_errand_nodes_open",
	"buildyard_cache_job_nodes_total":   "buildyard_errand_nodes_total",
	"buildyard_rollout_nodes":           "buildyard_distributing_nodes",
	"buildyard_node_polls_waiting":      "buildyard_polls_parked",
	"buildyard_console_sessions_total":  "buildyard_consoles_shown_total",
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
