package registry

import (
	"context"

	"github.com/buildyard/buildyard/internal/logs/central"
	"github.com/buildyard/buildyard/internal/metric"
)

// metrics counts the work of a registry since it was opened.
type metrics struct {
	pushes    metric.Counter // versions that were published
	pulls     metric.Counter // manifests that were requested
	received  metric.Counter // bytes
	sent      metric.Counter // bytes
	collected metric.Counter // layers
	freed     metric.Counter // bytes of them
	found     metric.Counter // layers found damaged
}

// Families returns the metrics of the registry.
func (r *Registry) Families() []metric.Family {
	m := &r.metrics
	families := []metric.Family{
		metric.GaugeFamily("buildyard_registry_templates", "Templates",
			func() float64 { return float64(len(r.snap.Load().order)) }),
		metric.GaugeFamily("buildyard_registry_versions", "Versions of all templates",
			func() float64 { return float64(r.versions()) }),
		metric.GaugeFamily("buildyard_registry_stored_bytes", "Bytes of all layer files", func() float64 {
			_, size := r.layers()
			return float64(size)
		}),
		metric.GaugeFamily("buildyard_registry_layers", "Layer files", func() float64 {
			n, _ := r.layers()
			return float64(n)
		}),
		metric.GaugeFamily("buildyard_registry_trash_bytes", "Size of the trash when it was last measured",
			func() float64 { return float64(r.trashSize.Load()) }),
		r.diskFamily("buildyard_registry_disk_free_bytes", "Free bytes on the disk of the storage",
			func(free, _ int64) int64 { return free }),
		r.diskFamily("buildyard_registry_disk_size_bytes", "Size of the disk of the storage",
			func(_, total int64) int64 { return total }),
		metric.CounterFamily("buildyard_registry_pushes_total", "Published versions", &m.pushes),
		metric.CounterFamily("buildyard_registry_pulls_total", "Pull requests (manifests served)", &m.pulls),
		metric.CounterFamily("buildyard_registry_received_bytes_total", "Received bytes of layers",
			&m.received),
		metric.CounterFamily("buildyard_registry_sent_bytes_total", "Sent bytes of layers", &m.sent),
		metric.GaugeFamily("buildyard_registry_push_sessions", "Open push sessions",
			func() float64 { return float64(r.openSessions()) }),
		metric.CounterFamily("buildyard_registry_gc_layers_total", "Garbage-collected layers", &m.collected),
		metric.CounterFamily("buildyard_registry_gc_bytes_total",
			"Bytes of garbage-collected layers", &m.freed),
		metric.GaugeFamily("buildyard_registry_scrub_verified_bytes",
			"Bytes verified by the current scrub round",
			func() float64 { return float64(r.scrubStatus().Verified) }),
		metric.GaugeFamily("buildyard_registry_damaged_layers", "Damaged layers",
			func() float64 { return float64(len(r.knownDamage())) }),
		metric.CounterFamily("buildyard_registry_damage_found_total", "Layers found damaged since the start", &m.found),

		r.logFamily("buildyard_registry_log_rows_total", metric.KindCounter,
			"Rows and events written to the central logs", func(s central.Stats) int64 { return s.Rows }),
		r.logFamily("buildyard_registry_log_rows_dropped_total", metric.KindCounter,
			"Rows that the central logs could not write", func(s central.Stats) int64 { return s.Dropped }),
		r.logFamily("buildyard_registry_log_rows_skipped_total", metric.KindCounter,
			"Rows that streams skipped because a reader was too slow",
			func(s central.Stats) int64 { return s.Skipped }),
		r.logFamily("buildyard_registry_log_bytes", metric.KindGauge, "Size of the central logs",
			func(s central.Stats) int64 { return s.Bytes }),
		r.logFamily("buildyard_registry_log_streams", metric.KindGauge, "Open log streams",
			func(s central.Stats) int64 { return int64(s.Streams) }),
	}
	return metric.WithOldNames(families, oldNames)
}

// oldNames are the former names of metrics, by their names. They are exported for one release.
var oldNames = map[string]string{
	"buildyard_registry_gc_layers_total": "buildyard_registry_collected_layers_total",
	"buildyard_registry_gc_bytes_total":  "buildyard_registry_collected_bytes_total",
}

// logFamily returns a metric of the central logs.
func (r *Registry) logFamily(name string, kind metric.Kind, help string, pick func(central.Stats) int64) metric.Family {
	return metric.Family{Name: name, Kind: kind, Help: help, Read: func(s *metric.Series) {
		s.Value(float64(pick(r.Logs().Stats())))
	}}
}

// diskFamily returns a metric of the disk; none when the disk cannot be read.
func (r *Registry) diskFamily(name, help string, pick func(free, total int64) int64) metric.Family {
	return metric.Family{Name: name, Kind: metric.KindGauge, Help: help, Read: func(s *metric.Series) {
		if free, total, err := r.store.Space(context.Background()); err == nil {
			s.Value(float64(pick(free, total)))
		}
	}}
}

func (r *Registry) versions() (n int) {
	for _, e := range r.snap.Load().order {
		n += len(e.t.Versions)
	}
	return n
}

// layers counts the layer files and sums them up.
func (r *Registry) layers() (n int, size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.held {
		size += l.size
	}
	return len(r.held), size
}

// openSessions counts the pushes that are not committed yet.
func (r *Registry) openSessions() (n int) {
	for _, s := range r.allSessions() {
		if s.done() == nil {
			n++
		}
	}
	return n
}
