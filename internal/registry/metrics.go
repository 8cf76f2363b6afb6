package registry

import (
	"context"

	"github.com/buildyard/buildyard/internal/logs/central"
	"github.com/buildyard/buildyard/internal/metric"
)

// metrics counts the work of a registry since it was opened.
type metrics struct {
	pushes        metric.Counter // versions that were published
	pulls         metric.Counter // manifests that were requested
	receivedBytes metric.Counter // bytes
	sentBytes     metric.Counter // bytes
	gcLayers      metric.Counter // layers
	gcBytes       metric.Counter // bytes of them
	damagedLayers metric.Counter // layers found damaged
}

// Families returns the metrics of the registry.
func (r *Registry) Families() []metric.Family {
	m := &r.metrics
	families := []metric.Family{
		metric.GaugeFamily("buildyard_registry_templates", "Templates",
			func() float64 { return float64(len(r.snapshot.Load().sorted)) }),
		metric.GaugeFamily("buildyard_registry_versions", "Versions of all templates",
			func() float64 { return float64(r.countVersions()) }),
		metric.GaugeFamily("buildyard_registry_stored_bytes", "Bytes of all layer files", func() float64 {
			_, size := r.countLayers()
			return float64(size)
		}),
		metric.GaugeFamily("buildyard_registry_layers", "Layer files", func() float64 {
			n, _ := r.countLayers()
			return float64(n)
		}),
		metric.GaugeFamily("buildyard_registry_trash_bytes", "Size of the trash when it was last measured",
			func() float64 { return float64(r.trashBytes.Load()) }),
		r.diskFamily("buildyard_registry_disk_free_bytes", "Free bytes on the disk of the storage",
			func(free, _ int64) int64 { return free }),
		r.diskFamily("buildyard_registry_disk_size_bytes", "Size of the disk of the storage",
			func(_, total int64) int64 { return total }),
		metric.CounterFamily("buildyard_registry_pushes_total", "Published versions", &m.pushes),
		metric.CounterFamily("buildyard_registry_pulls_total", "Pull requests (manifests served)", &m.pulls),
		metric.CounterFamily("buildyard_registry_received_bytes_total", "Received bytes of layers",
			&m.receivedBytes),
		metric.CounterFamily("buildyard_registry_sent_bytes_total", "Sent bytes of layers", &m.sentBytes),
		metric.GaugeFamily("buildyard_registry_push_sessions", "Open push sessions",
			func() float64 { return float64(r.countOpenSessions()) }),
		metric.CounterFamily("buildyard_registry_gc_layers_total", "Garbage-collected layers", &m.gcLayers),
		metric.CounterFamily("buildyard_registry_gc_bytes_total",
			"Bytes of garbage-collected layers", &m.gcBytes),
		metric.GaugeFamily("buildyard_registry_scrub_verified_bytes",
			"Bytes verified by the current scrub round",
			func() float64 { return float64(r.scrubStatus().Verified) }),
		metric.GaugeFamily("buildyard_registry_damaged_layers", "Damaged layers",
			func() float64 { return float64(len(r.damagedLayers())) }),
		metric.CounterFamily("buildyard_registry_damage_found_total", "Layers found damaged since the start",
			&m.damagedLayers),

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
	return metric.WithOldNames(families, deprecatedMetricNames)
}

// deprecatedMetricNames are the former names of metrics, by their names. They are exported for one release.
var deprecatedMetricNames = map[string]string{
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

func (r *Registry) countVersions() (n int) {
	for _, e := range r.snapshot.Load().sorted {
		n += len(e.template.Versions)
	}
	return n
}

// countLayers counts the layer files and sums them up.
func (r *Registry) countLayers() (n int, size int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.storedLayers {
		size += l.size
	}
	return len(r.storedLayers), size
}

// countOpenSessions counts the pushes that are not committed yet.
func (r *Registry) countOpenSessions() (n int) {
	for _, s := range r.allSessions() {
		if s.committedResult() == nil {
			n++
		}
	}
	return n
}
