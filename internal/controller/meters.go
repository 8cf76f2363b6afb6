package controller

import (
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/metric"
)

// meters are the metrics that a controller counts itself.
type meters struct {
	rounds *metric.Histogram // of the scheduler

	cacheJobs cacheJobMetrics
}

func newMeters() meters {
	return meters{rounds: metric.NewHistogram(metric.Short), cacheJobs: newCacheJobMeters()}
}

// Families returns the metrics of the controller. Each replica counts what it sees of the records,
// so that a sum over replicas counts everything as often as the number of replicas.
func (c *Controller) Families() []metric.Family {
	return append(slices.Concat(c.Usage.Families(), c.licenseFamilies(), c.cacheJobFamilies()),
		metric.HistogramFamily("buildyard_scheduler_round_seconds",
			"Time of a round of the scheduler, its writes included", c.meters.rounds),
		metric.GaugeFamily("buildyard_polls_parked", "Waiting node polls",
			func() float64 { return float64(c.Link.WaitingPolls()) }),
		metric.GaugeFamily("buildyard_consoles", "Consoles of VMs that are open or wait for their node",
			func() float64 { return float64(c.Consoles.Count()) }),
		metric.CounterFamily("buildyard_consoles_shown_total", "Consoles that a node has shown", &c.Consoles.Shown),
		metric.GaugeFamily("buildyard_history_records", "History records",
			func() float64 { return float64(c.tables.History.Len()) }),
		metric.GaugeFamily("buildyard_event_records", "Records of events that are kept until all targets have them",
			func() float64 { return float64(c.tables.Events.Len()) }),
		metric.GaugeFamily("buildyard_alarms", "Alarms in the status of the controller",
			func() float64 { return float64(len(c.Alarms())) }),
		metric.GaugeFamily("buildyard_leader", "1 if leader, else 0",
			func() float64 { return truth(c.keeping.Load()) }),
	)
}

// licenseFamilies returns the metrics of the license.
func (c *Controller) licenseFamilies() []metric.Family {
	return []metric.Family{
		{
			Name: "buildyard_license_info", Kind: metric.KindGauge, Labels: []string{"tier"},
			Help: "Always 1; the label has the tier of the active license",
			Read: func(s *metric.Series) { s.Value(1, string(c.Tier())) },
		},
		{
			Name: "buildyard_license_expires_timestamp_seconds", Kind: metric.KindGauge,
			Help: "License expiry (Unix seconds); absent without an end",
			Read: func(s *metric.Series) {
				if at := c.opts.Licence.Expires(); !at.IsZero() {
					s.Value(float64(at.Unix()))
				}
			},
		},
	}
}

// each adds counts under their one label.
func each(s *metric.Series, counts map[string]int) {
	for label, n := range counts {
		s.Value(float64(n), label)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// round records the duration of a scheduler round that started at began.
func (m meters) round(began time.Time) { m.rounds.Observe(time.Since(began)) }
