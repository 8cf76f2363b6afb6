package usage

import "github.com/buildyard/buildyard/internal/metric"

// Families returns the metrics of the instances and nodes.
func (u *Usage) Families() []metric.Family {
	t := u.counters
	at := func(read func(Snapshot) float64) func() float64 {
		return func() float64 { return read(t.count(u.db.Now())) }
	}
	return []metric.Family{
		{
			Name: "buildyard_instances", Kind: metric.KindGauge, Labels: []string{"state"}, Help: "Instances by state",
			Read: func(s *metric.Series) { each(s, t.count(u.db.Now()).States) },
		},
		{
			Name: "buildyard_nodes", Kind: metric.KindGauge, Labels: []string{"state"}, Help: "Nodes by state",
			Read: func(s *metric.Series) {
				states, _ := u.nodeCount()
				each(s, states)
			},
		},
		metric.GaugeFamily("buildyard_capacity_vms", "Schedulable VM capacity", func() float64 {
			_, capacity := u.nodeCount()
			return float64(capacity)
		}),
		metric.GaugeFamily("buildyard_capacity_used_vms", "VMs that use capacity, on all nodes",
			at(func(n Snapshot) float64 { return float64(n.Slots) })),
		metric.GaugeFamily("buildyard_queue_depth", "Pending instances",
			at(func(n Snapshot) float64 { return float64(n.Queue) })),
		metric.GaugeFamily("buildyard_queue_oldest_wait_seconds",
			"Time that the oldest pending instance has waited",
			at(func(n Snapshot) float64 { return seconds(n.Oldest) })),
		metric.HistogramFamily("buildyard_queue_wait_seconds", "Time from a start request to the placement on a node",
			t.queued),
		metric.HistogramFamily("buildyard_start_seconds", "Time from a start request to the running VM", t.booted),
		metric.CounterFamily("buildyard_instances_placed_total", "Instances that were placed on a node", &t.placed),
		metric.CounterFamily("buildyard_instances_started_total", "Instances whose VM started", &t.started),
		metric.CounterFamily("buildyard_instances_failed_total", "Instances that entered the state Error", &t.failed),
		metric.CounterFamily("buildyard_instances_terminated_total", "Instances that entered the state Terminated",
			&t.ended),
	}
}

// each adds counts under their one label.
func each(s *metric.Series, counts map[string]int) {
	for label, n := range counts {
		s.Value(float64(n), label)
	}
}
