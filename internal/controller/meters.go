package controller

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/metric"
)

// meters are the metrics that a controller counts itself.
type meters struct {
	rounds *metric.Histogram // of the scheduler
	parked *atomic.Int64     // waiting polls

	cacheJobs cacheJobMetrics
}

func newMeters() meters {
	return meters{rounds: metric.NewHistogram(metric.Short), parked: new(atomic.Int64), cacheJobs: newCacheJobMeters()}
}

// Families returns the metrics of the controller. Each replica counts what it sees of the records,
// so that a sum over replicas counts everything as often as the number of replicas.
func (c *Controller) Families() []metric.Family {
	t := c.tally
	at := func(read func(statsSnapshot) float64) func() float64 {
		return func() float64 { return read(t.count(c.now())) }
	}
	return append(slices.Concat(c.stateFamilies(), c.cacheJobFamilies()),
		metric.GaugeFamily("buildyard_capacity_used_vms", "VMs that take room, on all nodes", at(func(n statsSnapshot) float64 { return float64(n.slots) })),
		metric.GaugeFamily("buildyard_queue_depth", "Requests that wait for a node", at(func(n statsSnapshot) float64 { return float64(n.queue) })),
		metric.GaugeFamily("buildyard_queue_oldest_wait_seconds", "How long the oldest request that waits for a node has waited", at(func(n statsSnapshot) float64 { return seconds(n.oldest) })),
		metric.HistogramFamily("buildyard_queue_wait_seconds", "Time from a request to its node", t.queued),
		metric.HistogramFamily("buildyard_start_seconds", "Time from a request to its running VM", t.booted),
		metric.CounterFamily("buildyard_instances_placed_total", "Instances that got a node", &t.placed),
		metric.CounterFamily("buildyard_instances_started_total", "Instances whose VM came up", &t.started),
		metric.CounterFamily("buildyard_instances_failed_total", "Instances that went to Error", &t.failed),
		metric.CounterFamily("buildyard_instances_terminated_total", "Instances that ended", &t.ended),
		metric.HistogramFamily("buildyard_scheduler_round_seconds", "Time of a round of the scheduler, its writes included", c.meters.rounds),
		metric.GaugeFamily("buildyard_polls_parked", "Waiting node polls", func() float64 { return float64(c.meters.parked.Load()) }),
		metric.GaugeFamily("buildyard_consoles", "Consoles of VMs that are open or wait for their node", func() float64 { return float64(c.Consoles.Count()) }),
		metric.CounterFamily("buildyard_consoles_shown_total", "Consoles that a node has shown", &c.Consoles.Shown),
		metric.GaugeFamily("buildyard_history_records", "History records", func() float64 { return float64(c.tables.History.Len()) }),
		metric.GaugeFamily("buildyard_event_records", "Records of events that are kept until all targets have them", func() float64 { return float64(c.tables.Events.Len()) }),
		metric.GaugeFamily("buildyard_alarms", "Alarms in the status of the controller", func() float64 { return float64(len(c.Alarms())) }),
		metric.GaugeFamily("buildyard_leader", "1 if leader, else 0", func() float64 { return truth(c.keeping.Load()) }),
	)
}

// stateFamilies returns the metrics that count by state.
func (c *Controller) stateFamilies() []metric.Family {
	return []metric.Family{
		{
			Name: "buildyard_instances", Kind: metric.KindGauge, Labels: []string{"state"}, Help: "Instances by state",
			Read: func(s *metric.Series) { each(s, c.tally.count(c.now()).states) },
		},
		{
			Name: "buildyard_nodes", Kind: metric.KindGauge, Labels: []string{"state"}, Help: "Nodes by state",
			Read: func(s *metric.Series) {
				states, _ := c.nodeCount()
				each(s, states)
			},
		},
		metric.GaugeFamily("buildyard_capacity_vms", "Schedulable VM capacity", func() float64 {
			_, capacity := c.nodeCount()
			return float64(capacity)
		}),
		{
			Name: "buildyard_license_info", Kind: metric.KindGauge, Labels: []string{"tier"},
			Help: "Always 1; the label has the tier of the active license",
			Read: func(s *metric.Series) { s.Value(1, string(c.Tier())) },
		},
		{
			Name: "buildyard_license_expires_timestamp_seconds", Kind: metric.KindGauge, Help: "License expiry (Unix seconds); absent without an end",
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

// park counts a waiting poll; the returned function ends it.
func (m meters) park() func() {
	m.parked.Add(1)
	return func() { m.parked.Add(-1) }
}

// round records the duration of a scheduler round that started at began.
func (m meters) round(began time.Time) { m.rounds.Observe(time.Since(began)) }
