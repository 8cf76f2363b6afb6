package rest

import (
	"io"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/metric"
)

// Meter counts the requests of one service by route and status.
type Meter struct {
	service       string
	routes        atomic.Pointer[map[string]*routeMeter] // by pattern; the map is never changed
	unroutedMeter *routeMeter                            // of requests that match no route
	durations     *metric.Histogram                      // duration of routes that do not wait on purpose
	// receives a value, unless it is full, for each refused request
	refusals chan<- struct{}
	mu       sync.Mutex // serializes changes of routes
}

// routeMeter counts the requests of one route.
type routeMeter struct {
	measuresDuration bool
	statusCounters   [len(countedStatuses) + 1]metric.Counter // by index of codes; the last one counts all others
}

// countedStatuses are the statuses that are counted separately.
var countedStatuses = [...]int{
	http.StatusOK, http.StatusNoContent, http.StatusPartialContent, http.StatusNotModified,
	http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
	http.StatusMethodNotAllowed,
	http.StatusConflict, http.StatusPreconditionFailed, http.StatusRequestEntityTooLarge,
	http.StatusRequestedRangeNotSatisfiable,
	http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable,
}

// unroutedLabel is the label for requests that match no route.
const unroutedLabel = "none"

// NewMeter creates the meter of a service. A non-nil refusal channel receives a value for each response with
// status 401, 403 or 429 unless it is full.
func NewMeter(service string, refusal chan<- struct{}) *Meter {
	m := &Meter{
		service: service, refusals: refusal, unroutedMeter: &routeMeter{measuresDuration: true},
		durations: metric.NewHistogram(metric.Short),
	}
	m.routes.Store(&map[string]*routeMeter{})
	return m
}

// addRoutes registers routes to count. Routes that are already counted, on another port, keep their counts.
func (m *Meter) addRoutes(routes []Route) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(*m.routes.Load())
	for _, route := range routes {
		if all[route.Pattern] == nil {
			all[route.Pattern] = &routeMeter{measuresDuration: !route.Waits && route.HandleRaw == nil}
		}
	}
	m.routes.Store(&all)
}

// Metered counts the requests of next, which serves these routes. Without a meter it returns next itself.
func Metered(m *Meter, routes []Route, next http.Handler) http.Handler {
	if m == nil {
		return next
	}
	m.addRoutes(routes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		watched := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		code := 0 // of a response that is cut off
		defer func() { m.countRequest(r.Pattern, code, time.Since(began)) }()
		next.ServeHTTP(watched, r)
		code = watched.status
	})
}

func (m *Meter) countRequest(pattern string, code int, took time.Duration) {
	route := (*m.routes.Load())[pattern]
	if route == nil {
		route = m.unroutedMeter
	}
	i := 0
	for i < len(countedStatuses) && countedStatuses[i] != code {
		i++
	}
	route.statusCounters[i].Inc()
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		select {
		case m.refusals <- struct{}{}:
		default:
		}
	}
	if route.measuresDuration {
		m.durations.Observe(took)
	}
}

// Families returns the metrics of several meters, one per service.
func Families(meters ...*Meter) []metric.Family {
	return []metric.Family{
		{
			Name: "buildyard_http_requests_total", Kind: metric.KindCounter,
			Labels: []string{"service", "route", "code"},
			Help:   "Requests, by route and status code",
			Read: func(s *metric.Series) {
				for _, m := range meters {
					m.readSeries(s)
				}
			},
		},
		{
			Name: "buildyard_http_request_seconds", Kind: metric.KindHistogram, Labels: []string{"service"},
			Help: "Duration of requests, without polls and transfers",
			Read: func(s *metric.Series) {
				for _, m := range meters {
					s.Distribution(m.durations.Snapshot(), m.service)
				}
			},
		},
	}
}

// readSeries adds the routes and statuses that have occurred to the series.
func (m *Meter) readSeries(s *metric.Series) {
	m.unroutedMeter.readSeries(s, m.service, unroutedLabel)
	for pattern, route := range *m.routes.Load() {
		route.readSeries(s, m.service, pattern)
	}
}

func (r *routeMeter) readSeries(s *metric.Series, service, route string) {
	for i := range r.statusCounters {
		n := r.statusCounters[i].Value()
		if n == 0 {
			continue
		}
		code := "other"
		if i < len(countedStatuses) {
			code = strconv.Itoa(countedStatuses[i])
		}
		s.Value(n, service, route, code)
	}
}

// statusWriter records the status of a response. All other calls are forwarded.
type statusWriter struct {
	http.ResponseWriter
	status        int
	headerWritten bool
}

var _ io.ReaderFrom = (*statusWriter)(nil)

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(code int) {
	if !w.headerWritten {
		w.status, w.headerWritten = code, code >= http.StatusOK // informational statuses are followed by others
	}
	w.ResponseWriter.WriteHeader(code)
}

// ReadFrom lets the underlying writer send a file directly.
func (w *statusWriter) ReadFrom(src io.Reader) (int64, error) { return io.Copy(w.ResponseWriter, src) }

// Unwrap returns the underlying writer for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
