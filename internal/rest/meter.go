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
	service string
	routes  atomic.Pointer[map[string]*routeMeter] // by pattern; the map is never changed
	none    *routeMeter                            // of requests that match no route
	took    *metric.Histogram                      // duration of routes that do not wait on purpose
	refusal chan<- struct{}                        // receives a value, unless it is full, for each refused request
	mu      sync.Mutex                             // serializes changes of routes
}

// routeMeter counts the requests of one route.
type routeMeter struct {
	timed bool
	codes [len(codes) + 1]metric.Counter // by index of codes; the last one counts all others
}

// codes are the statuses that are counted separately.
var codes = [...]int{
	http.StatusOK, http.StatusNoContent, http.StatusPartialContent, http.StatusNotModified,
	http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
	http.StatusMethodNotAllowed,
	http.StatusConflict, http.StatusPreconditionFailed, http.StatusRequestEntityTooLarge,
	http.StatusRequestedRangeNotSatisfiable,
	http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable,
}

// noRoute is the label for requests that match no route.
const noRoute = "none"

// NewMeter creates the meter of a service. A non-nil refusal channel receives a value for each response with
// status 401, 403 or 429 unless it is full.
func NewMeter(service string, refusal chan<- struct{}) *Meter {
	m := &Meter{
		service: service, refusal: refusal, none: &routeMeter{timed: true}, took: metric.NewHistogram(metric.Short),
	}
	m.routes.Store(&map[string]*routeMeter{})
	return m
}

// add registers routes to count. Routes that are already counted, on another port, keep their counts.
func (m *Meter) add(routes []Route) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(*m.routes.Load())
	for _, route := range routes {
		if all[route.Pattern] == nil {
			all[route.Pattern] = &routeMeter{timed: !route.Hangs && route.Raw == nil}
		}
	}
	m.routes.Store(&all)
}

// Metered counts the requests of next, which serves these routes. Without a meter it returns next itself.
func Metered(m *Meter, routes []Route, next http.Handler) http.Handler {
	if m == nil {
		return next
	}
	m.add(routes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		watched := &statusWriter{ResponseWriter: w, code: http.StatusOK}
		code := 0 // of a response that is cut off
		defer func() { m.count(r.Pattern, code, time.Since(began)) }()
		next.ServeHTTP(watched, r)
		code = watched.code
	})
}

func (m *Meter) count(pattern string, code int, took time.Duration) {
	route := (*m.routes.Load())[pattern]
	if route == nil {
		route = m.none
	}
	i := 0
	for i < len(codes) && codes[i] != code {
		i++
	}
	route.codes[i].Inc()
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		select {
		case m.refusal <- struct{}{}:
		default:
		}
	}
	if route.timed {
		m.took.Observe(took)
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
					m.read(s)
				}
			},
		},
		{
			Name: "buildyard_http_request_seconds", Kind: metric.KindHistogram, Labels: []string{"service"},
			Help: "Duration of requests, without polls and transfers",
			Read: func(s *metric.Series) {
				for _, m := range meters {
					s.Distribution(m.took.Snapshot(), m.service)
				}
			},
		},
	}
}

// read adds the routes and statuses that have occurred to the series.
func (m *Meter) read(s *metric.Series) {
	m.none.read(s, m.service, noRoute)
	for pattern, route := range *m.routes.Load() {
		route.read(s, m.service, pattern)
	}
}

func (r *routeMeter) read(s *metric.Series, service, route string) {
	for i := range r.codes {
		n := r.codes[i].Value()
		if n == 0 {
			continue
		}
		code := "other"
		if i < len(codes) {
			code = strconv.Itoa(codes[i])
		}
		s.Value(n, service, route, code)
	}
}

// statusWriter records the status of a response. All other calls are forwarded.
type statusWriter struct {
	http.ResponseWriter
	code  int
	begun bool
}

var _ io.ReaderFrom = (*statusWriter)(nil)

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(code int) {
	if !w.begun {
		w.code, w.begun = code, code >= http.StatusOK // informational statuses are followed by others
	}
	w.ResponseWriter.WriteHeader(code)
}

// ReadFrom lets the underlying writer send a file directly.
func (w *statusWriter) ReadFrom(src io.Reader) (int64, error) { return io.Copy(w.ResponseWriter, src) }

// Unwrap returns the underlying writer for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
