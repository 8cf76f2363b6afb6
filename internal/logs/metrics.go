package logs

import (
	"maps"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/metric"
)

// metrics count the lines of a shipper by their result.
type metrics struct {
	sent    metric.Counter
	dropped metric.Counter
}

// countResult counts sent lines by the result of the request, which may contain one row of the shipper's
// own in addition.
func (m *metrics) countResult(lines int, taken api.LogAppendResult) {
	dropped := min(taken.Dropped, lines)
	m.sent.Add(int64(lines - dropped))
	m.dropped.Add(int64(dropped))
}

// Families returns the metrics of the shippers of a process, by their destination.
func Families(shippers map[string]*Shipper) []metric.Family {
	family := func(name string, kind metric.Kind, help string, pick func(*Shipper) float64) metric.Family {
		return metric.Family{
			Name: name, Kind: kind, Help: help, Labels: []string{"to"},
			Read: func(out *metric.Series) {
				for _, to := range slices.Sorted(maps.Keys(shippers)) {
					out.Value(pick(shippers[to]), to)
				}
			},
		}
	}
	families := []metric.Family{
		family("buildyard_log_lines_sent_total", metric.KindCounter,
			"Log lines sent to the destination",
			func(s *Shipper) float64 { return s.metrics.sent.Value() }),
		family("buildyard_log_lines_dropped_total", metric.KindCounter,
			"Log lines dropped because the queue was full or the destination refused them",
			func(s *Shipper) float64 { return s.metrics.dropped.Value() }),
		family("buildyard_log_lines_waiting", metric.KindGauge, "Log lines that wait to be sent",
			func(s *Shipper) float64 { return float64(s.waitingLines()) }),
	}
	return metric.WithOldNames(families, deprecatedMetricNames)
}

// deprecatedMetricNames are the former names of metrics, by their names. They are exported for one release.
var deprecatedMetricNames = map[string]string{"buildyard_log_lines_dropped_total": "buildyard_log_lines_lost_total"}

// waitingLines returns the number of waiting lines, without those that are being sent.
func (s *Shipper) waitingLines() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}
