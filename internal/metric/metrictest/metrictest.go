// Package metrictest reads metrics in tests.
//
// It is not an exporter; that is internal/obs.
//
// Invariant: it changes no metric.
package metrictest

import (
	"strings"

	"github.com/buildyard/buildyard/internal/metric"
)

// Values returns the values of families, as name or name{label,label}; for a histogram its count.
func Values(families []metric.Family) map[string]float64 {
	out := map[string]float64{}
	for _, f := range families {
		name := func(labels []string) string {
			if len(labels) == 0 {
				return f.Name
			}
			return f.Name + "{" + strings.Join(labels, ",") + "}"
		}
		f.Read(&metric.Series{
			Value:        func(v float64, labels ...string) { out[name(labels)] = v },
			Distribution: func(d metric.Distribution, labels ...string) { out[name(labels)] = float64(d.Count) },
		})
	}
	return out
}
