package hostrest

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/rest/hostrest/encode"
	"github.com/buildyard/buildyard/internal/scan/host"
)

// route is one route of the API. It has one of do, tell and raw.
type route struct {
	method, path string
	do           func(*http.Request, query) (any, error) // returns the body
	tell         func(*answer, query) error              // writes the body in parts
	raw          http.HandlerFunc                        // writes the answer, which has no envelope
	free         bool                                    // no token is required
	changes      bool                                    // it changes something
}

// routes is the table of routes.
func (s *Server) routes() []route {
	return []route{
		{method: "GET", path: "/v1/status", do: s.status},
		{method: "POST", path: "/v1/real-time-scan/start", do: s.startRealTime, changes: true},
		{method: "POST", path: "/v1/real-time-scan/stop", do: s.stop, changes: true},
		{method: "POST", path: "/v1/full-scan", do: s.fullScan, changes: true},
		{method: "POST", path: "/v1/report/reset", do: s.reset, changes: true},
		{method: "GET", path: "/v1/report", tell: s.report},
		{method: "POST", path: "/v1/report", tell: s.report},
		{method: "GET", path: "/v1/report/packages", tell: s.packages},
		{method: "POST", path: "/v1/report/packages", tell: s.packages},
		{method: "GET", path: "/v1/report/vulnerabilities", tell: s.vulnerabilities},
		{method: "POST", path: "/v1/report/vulnerabilities", tell: s.vulnerabilities},
		{method: "GET", path: "/metrics", raw: s.showMetrics},
		{method: "GET", path: "/livez", raw: alive, free: true},
		{method: "GET", path: "/readyz", raw: alive, free: true},
	}
}

// find returns the route of a request.
func (s *Server) find(w http.ResponseWriter, r *http.Request) (route, error) {
	methods := s.paths[strings.TrimSuffix(r.URL.Path, "/")]
	if methods == nil {
		return route{}, failure{http.StatusNotFound, fmt.Sprintf("%q not found", clipped(r.URL.Path))}
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	found, ok := methods[method]
	if !ok {
		var allowed []string
		for m := range methods {
			allowed = append(allowed, m)
		}
		slices.Sort(allowed)
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		return route{}, failure{http.StatusMethodNotAllowed, fmt.Sprintf("%s is asked with %s", r.URL.Path,
			strings.Join(allowed, " or "))}
	}
	return found, nil
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range map[string]string{
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
	} {
		w.Header().Set(name, value)
	}
	if !take(s.places) {
		s.fail(w, r, errCrowded)
		return
	}
	defer leave(s.places)
	found, err := s.find(w, r)
	if refused := s.door.Load().admit(r, found); refused != nil {
		s.refused.Inc()
		w.Header().Del("Allow")
		err = refused // an unauthenticated caller does not learn which routes exist
	}
	var q query
	if err == nil {
		q, err = readQuery(w, r)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	// The request was read. Its deadline would end a waiting request.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	s.answer(w, r, found, q)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, found route, q query) {
	switch {
	case found.raw != nil:
		limitWrite(w)
		found.raw(w, r)
	case found.tell != nil:
		s.tell(w, r, found, q)
	default:
		body, err := found.do(r, q)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		s.succeed(w, body)
	}
}

func (s *Server) status(*http.Request, query) (any, error) {
	out := encode.Status(s.o.Host.Status())
	out.Version = s.o.Version
	if s.o.Push != nil {
		out.Push = s.o.Push()
	}
	return out, nil
}

func (s *Server) startRealTime(_ *http.Request, q query) (any, error) {
	return stateOf(s.o.Host.StartRealTime(q.Path))
}

func (s *Server) stop(r *http.Request, _ query) (any, error) {
	return stateOf(s.o.Host.Stop(r.Context()))
}

func (s *Server) fullScan(_ *http.Request, q query) (any, error) {
	return stateOf(s.o.Host.FullScan(host.Scan{Path: q.Path, ThenRealTime: q.RealTime}))
}

func (s *Server) reset(r *http.Request, _ query) (any, error) {
	return stateOf(s.o.Host.Reset(r.Context()))
}

func stateOf(state host.State, err error) (any, error) {
	return api.HostState{State: string(state)}, err
}

// alive answers the liveness probe.
func alive(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}
