package logs

import (
	"maps"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/metric"
)

// meters count the lines of a shipper by their result.
type meters struct {
	sent metric.Counter
	lost metric.Counter
}

// note counts sent lines by the result of the request, which may contain one row of the shipper's
// own in addition.
func (m *meters) note(lines int, taken api.LogAppendResult) {
	dropped := min(taken.Dropped, lines)
	m.sent.Add(int64(lines - dropped))
	m.lost.Add(int64(dropped))
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
	return []metric.Family{
		family("buildyard_log_lines_sent_total", metric.KindCounter,
			"Lines of this program's log that were taken where they are collected",
			func(s *Shipper) float64 { return s.meters.sent.Value() }),
		family("buildyard_log_lines_lost_total", metric.KindCounter,
			"Lines of this program's log that are lost: too many waited, or they were not taken",
			func(s *Shipper) float64 { return s.meters.lost.Value() }),
		family("buildyard_log_lines_waiting", metric.KindGauge, "Lines of this program's log that wait to be sent",
			func(s *Shipper) float64 { return float64(s.waiting()) }),
	}
}

// waiting returns the number of waiting lines, without those that are being sent.
func (s *Shipper) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}
