package hostrest

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/metric"
	"github.com/buildyard/buildyard/internal/scan/host"
)

// metricPrefix begins the names of all metrics.
const metricPrefix = "buildyard_hostscan_"

// newMetricsHandler returns a function that makes the metrics handler at its first call: the handler takes memory that
// a scanner without collectors does not need.
func (s *Server) newMetricsHandler() func() (http.Handler, error) {
	return sync.OnceValues(func() (http.Handler, error) {
		return s.opts.NewMetricsHandler(append(s.metricFamilies(), s.opts.Metrics...))
	})
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	h, err := s.metricsHandler()
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	h.ServeHTTP(w, r)
}

// statusCache returns one status to all metric families of a collection, which read it one after the other.
type statusCache struct {
	fetch func() host.Status

	mu        sync.Mutex // guards the fields below
	fetchedAt time.Time
	cached    host.Status
}

func (s *statusCache) status() host.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.fetchedAt) > time.Second {
		s.cached, s.fetchedAt = s.fetch(), time.Now()
	}
	return s.cached
}

// metricFamilies are the metrics of the scanner.
func (s *Server) metricFamilies() []metric.Family {
	shot := &statusCache{fetch: s.opts.Host.Status}
	gauge := func(name, help string, read func(host.Status) float64) metric.Family {
		return metric.GaugeFamily(metricPrefix+name, help, func() float64 { return read(shot.status()) })
	}
	counter := func(name, help string, read func(host.WorkStats) uint64) metric.Family {
		return metric.Family{Name: metricPrefix + name +
			"_total", Kind: metric.KindCounter, Help: help, Read: func(to *metric.Series) {
			to.Value(float64(read(shot.status().Work)))
		}}
	}
	families := []metric.Family{
		stateFamily(shot), mountFamily(shot),
		gauge("packages", "Packages in the inventory",
			func(s host.Status) float64 { return float64(s.Counts.Packages) }),
		gauge("vulnerabilities", "Vulnerabilities of these packages, suppressed ones included",
			func(s host.Status) float64 { return float64(s.Counts.Findings) }),
		gauge("files", "Files in the inventory",
			func(s host.Status) float64 { return float64(s.Counts.Files) }),
		gauge("inventory_bytes", "Size of the inventory on disk",
			func(s host.Status) float64 { return float64(s.Counts.Bytes) }),
		gauge("pending_changes", "Changed files that wait for a scan",
			func(s host.Status) float64 { return float64(s.Pending) }),
		gauge("warnings", "Warnings in the status",
			func(s host.Status) float64 { return float64(len(s.Warnings)) }),
		gauge("database_built_timestamp_seconds",
			"Build time of the vulnerability database (Unix seconds); 0 without one",
			databaseBuilt),
		gauge("last_full_scan_timestamp_seconds", "Start of the last full scan (Unix seconds); 0 before the first",
			lastScanTime),
		counter("full_scans", "Full scans started", func(w host.WorkStats) uint64 { return w.FullScans }),
		counter("changes", "File changes detected", func(w host.WorkStats) uint64 { return w.Changes }),
		counter("rescans", "Directories scanned again because of changes",
			func(w host.WorkStats) uint64 { return w.Rescans }),
		counter("files_read", "Files read", func(w host.WorkStats) uint64 { return w.FilesRead }),
		counter("packages_cataloged", "Packages cataloged", func(w host.WorkStats) uint64 { return w.Packages }),
		counter("vulnerabilities_found", "Vulnerabilities found",
			func(w host.WorkStats) uint64 { return w.Findings }),
		counter("packages_compared", "Packages matched against the vulnerability database",
			func(w host.WorkStats) uint64 { return w.Matched }),
		counter("database_updates", "Database updates installed",
			func(w host.WorkStats) uint64 { return w.Updates }),
		counter("database_update_failures", "Failed database updates",
			func(w host.WorkStats) uint64 { return w.Failures }),
		metric.CounterFamily(metricPrefix+"requests_refused_total", "Requests refused for lack of a valid token",
			&s.refusedRequests),
	}
	return metric.WithOldNames(families, deprecatedNames)
}

// deprecatedNames are the former names of metrics, by their names. They are exported for one release.
var deprecatedNames = map[string]string{
	metricPrefix + "inventory_bytes":          metricPrefix + "catalogue_bytes",
	metricPrefix + "packages_cataloged_total": metricPrefix + "packages_catalogued_total",
}

func stateFamily(shot *statusCache) metric.Family {
	return metric.Family{
		Name: metricPrefix + "state", Kind: metric.KindGauge, Labels: []string{"state"},
		Help: "State of the scanner: 1 for the current state, 0 for the others",
		Read: func(to *metric.Series) {
			now := shot.status().State
			for _, state := range []host.State{host.Idle, host.RealTime, host.RunningFull} {
				to.Value(map[bool]float64{true: 1}[state == now], string(state))
			}
		},
	}
}

func mountFamily(shot *statusCache) metric.Family {
	methods := []string{"fanotify", "inotify", "fsevents", "poll", "none"}
	return metric.Family{
		Name: metricPrefix + "mounts", Kind: metric.KindGauge, Labels: []string{"method"},
		Help: "File systems, by the method that watches them",
		Read: func(to *metric.Series) {
			count := map[string]int{}
			for _, m := range shot.status().Mounts {
				if !slices.Contains(methods, m.Method) {
					m.Method = "none"
				}
				count[m.Method]++
			}
			for _, m := range methods {
				to.Value(float64(count[m]), m)
			}
		},
	}
}

func databaseBuilt(s host.Status) float64 {
	if !s.Database.Present {
		return 0
	}
	return unixSeconds(s.Database.Info.Built)
}

func lastScanTime(s host.Status) float64 {
	if s.LastScan == nil {
		return 0
	}
	return unixSeconds(s.LastScan.Started)
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1e3 }
