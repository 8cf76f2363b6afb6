package controller

import (
	"slices"

	"github.com/buildyard/buildyard/internal/metric"
)

// metrics are the metrics that a controller counts itself.
type metrics struct {
	rounds *metric.Histogram // of the scheduler
}

func newMetrics() metrics {
	return metrics{rounds: metric.NewHistogram(metric.Short)}
}

// Families returns the metrics of the controller. Each replica counts what it sees of the records,
// so that a sum over replicas counts everything as often as the number of replicas.
func (c *Controller) Families() []metric.Family {
	families := append(slices.Concat(c.Usage.Families(), c.licenseFamilies(), c.CacheJobs.Families()),
		metric.HistogramFamily("buildyard_scheduler_round_seconds",
			"Duration of a scheduler round with its writes", c.metrics.rounds),
		metric.GaugeFamily("buildyard_node_polls_waiting", "Waiting node polls",
			func() float64 { return float64(c.Link.WaitingPolls()) }),
		metric.GaugeFamily("buildyard_consoles", "Console sessions that are open or wait for their node",
			func() float64 { return float64(c.Consoles.Count()) }),
		metric.CounterFamily("buildyard_console_sessions_total", "Console sessions that a node has connected",
			&c.Consoles.Shown),
		metric.GaugeFamily("buildyard_history_records", "History records",
			func() float64 { return float64(c.tables.History.Len()) }),
		metric.GaugeFamily("buildyard_event_records", "Event records that are not delivered to all targets yet",
			func() float64 { return float64(c.tables.Events.Len()) }),
		metric.GaugeFamily("buildyard_alarms", "Active alarms",
			func() float64 { return float64(len(c.Alarms())) }),
		metric.GaugeFamily("buildyard_leader", "1 if leader, else 0",
			func() float64 { return boolValue(c.keeping.Load()) }),
	)
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

// licenseFamilies returns the metrics of the license.
func (c *Controller) licenseFamilies() []metric.Family {
	return []metric.Family{
		{
			Name: "buildyard_license_info", Kind: metric.KindGauge, Labels: []string{"tier"},
			Help: "Always 1; the label is the tier of the active license",
			Read: func(s *metric.Series) { s.Value(1, string(c.License.Tier())) },
		},
		{
			Name: "buildyard_license_expires_timestamp_seconds", Kind: metric.KindGauge,
			Help: "License expiry (Unix seconds); absent if it does not expire",
			Read: func(s *metric.Series) {
				if at := c.License.Expires(); !at.IsZero() {
					s.Value(float64(at.Unix()))
				}
			},
		},
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
