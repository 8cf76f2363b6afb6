package obs

import (
	"fmt"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/buildyard/buildyard/internal/metric"
)

// Limits of the responses to metric collectors.
const (
	scrapes       = 4 // at a time
	scrapeTimeout = 10 * time.Second
)

// Metrics serves families of metrics, those of the Go runtime and of the process, as
// Prometheus collects them. Two families of one name are an error.
func Metrics(families []metric.Family) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	for _, f := range families {
		if err := registry.Register(collector{f, prometheus.NewDesc(f.Name, f.Help+".", f.Labels, nil)}); err != nil {
			return nil, fmt.Errorf("metric %s: %w", f.Name, err)
		}
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: scrapes, Timeout: scrapeTimeout, ErrorHandling: promhttp.HTTPErrorOnError,
	}), nil
}

// ProgramFamilies returns the metrics of every program: its build, and since when it runs.
func ProgramFamilies(service string, began time.Time) []metric.Family {
	return []metric.Family{
		{
			Name: "buildyard_build_info", Kind: metric.KindGauge, Labels: []string{"service", "version", "go_version"},
			Help: "Always 1; the labels are the service and its build version",
			Read: func(s *metric.Series) { s.Value(1, service, FullVersion(), runtime.Version()) },
		},
		metric.GaugeFamily("buildyard_uptime_seconds", "Time since the process started",
			func() float64 { return time.Since(began).Seconds() }),
	}
}

// collector exposes one family.
type collector struct {
	family metric.Family
	desc   *prometheus.Desc
}

var _ prometheus.Collector = collector{}

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	kind := prometheus.GaugeValue
	if c.family.Kind == metric.KindCounter {
		kind = prometheus.CounterValue
	}
	send := func(m prometheus.Metric, err error) {
		if err != nil {
			m = prometheus.NewInvalidMetric(c.desc, err)
		}
		to <- m
	}
	c.family.Read(&metric.Series{
		Value: func(value float64, labels ...string) {
			send(prometheus.NewConstMetric(c.desc, kind, value, labels...))
		},
		Distribution: func(d metric.Distribution, labels ...string) {
			send(prometheus.NewConstHistogram(c.desc, d.Count, d.Sum, d.Buckets, labels...))
		},
	})
}
