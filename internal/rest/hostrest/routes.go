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
	handle       func(*http.Request, query) (any, error) // returns the body
	stream       func(*streamWriter, query) error        // writes the body in parts
	handler      http.HandlerFunc                        // writes the answer, which has no envelope
	public       bool                                    // no token is required
	changesState bool                                    // it changes something
}

// routes is the table of routes.
func (s *Server) routes() []route {
	return []route{
		{method: "GET", path: "/v1/status", handle: s.status},
		{method: "POST", path: "/v1/real-time-scan/start", handle: s.startRealTime, changesState: true},
		{method: "POST", path: "/v1/real-time-scan/stop", handle: s.stop, changesState: true},
		{method: "POST", path: "/v1/full-scan", handle: s.fullScan, changesState: true},
		{method: "POST", path: "/v1/report/reset", handle: s.reset, changesState: true},
		{method: "GET", path: "/v1/report", stream: s.streamReport},
		{method: "POST", path: "/v1/report", stream: s.streamReport},
		{method: "GET", path: "/v1/report/packages", stream: s.streamPackages},
		{method: "POST", path: "/v1/report/packages", stream: s.streamPackages},
		{method: "GET", path: "/v1/report/vulnerabilities", stream: s.streamVulnerabilities},
		{method: "POST", path: "/v1/report/vulnerabilities", stream: s.streamVulnerabilities},
		{method: "GET", path: "/v1/marks", handle: s.marks},
		// A job marks itself, without the token: a mark can be neither moved nor removed.
		{method: "POST", path: "/v1/marks", handle: s.mark},
		{method: "GET", path: "/metrics", handler: s.serveMetrics},
		{method: "GET", path: "/livez", handler: serveAlive, public: true},
		{method: "GET", path: "/readyz", handler: serveAlive, public: true},
	}
}

// findRoute returns the route of a request.
func (s *Server) findRoute(w http.ResponseWriter, r *http.Request) (route, error) {
	methods := s.routesByPath[foldPath(r.URL.Path)]
	if methods == nil {
		return route{}, failure{http.StatusNotFound, fmt.Sprintf("%q not found", clip(r.URL.Path))}
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
		return route{}, failure{http.StatusMethodNotAllowed, fmt.Sprintf("%s accepts only %s", r.URL.Path,
			strings.Join(allowed, " or "))}
	}
	return found, nil
}

// foldPath merges repeated slashes of a path and removes one at its end, as the controller does. Unlike there no path
// has names, so escaped slashes need not be told apart.
func foldPath(path string) string {
	elements := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	return "/" + strings.Join(elements, "/")
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range map[string]string{
		"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin",
		"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
	} {
		w.Header().Set(name, value)
	}
	if !acquireSlot(s.requestSlots) {
		s.writeError(w, r, errTooManyRequests)
		return
	}
	defer releaseSlot(s.requestSlots)
	found, err := s.findRoute(w, r)
	if refused := s.access.Load().authorize(r, found); refused != nil {
		s.refusedRequests.Inc()
		w.Header().Del("Allow")
		err = refused // an unauthenticated caller does not learn which routes exist
	}
	var q query
	if err == nil {
		q, err = readQuery(w, r)
	}
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	// The request was read. Its deadline would end a waiting request.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	s.serveRoute(w, r, found, q)
}

func (s *Server) serveRoute(w http.ResponseWriter, r *http.Request, found route, q query) {
	switch {
	case found.handler != nil:
		setWriteDeadline(w)
		found.handler(w, r)
	case found.stream != nil:
		s.streamResponse(w, r, found, q)
	default:
		body, err := found.handle(r, q)
		if err != nil {
			s.writeError(w, r, err)
			return
		}
		s.writeSuccess(w, body)
	}
}

func (s *Server) status(*http.Request, query) (any, error) {
	out := encode.Status(s.opts.Host.Status())
	out.Version = s.opts.Version
	if s.opts.PushStatus != nil {
		out.Push = s.opts.PushStatus()
	}
	return out, nil
}

func (s *Server) startRealTime(_ *http.Request, q query) (any, error) {
	return stateResponse(s.opts.Host.StartRealTime(q.Path))
}

func (s *Server) stop(r *http.Request, _ query) (any, error) {
	return stateResponse(s.opts.Host.Stop(r.Context()))
}

func (s *Server) fullScan(_ *http.Request, q query) (any, error) {
	return stateResponse(s.opts.Host.FullScan(host.FullScanOptions{Path: q.Path, ThenRealTime: q.RealTime}))
}

func (s *Server) reset(r *http.Request, _ query) (any, error) {
	return stateResponse(s.opts.Host.Reset(r.Context()))
}

// mark records that a job begins.
func (s *Server) mark(r *http.Request, q query) (any, error) {
	m, err := s.opts.Host.Mark(r.Context(), q.Job, q.Path)
	if err != nil {
		return nil, err
	}
	return encode.Mark(m, s.opts.Host.Gap(m)), nil
}

// marks lists the marked jobs, or one of them.
func (s *Server) marks(_ *http.Request, q query) (any, error) {
	out := []api.HostMark{}
	for _, m := range s.opts.Host.Marks() {
		if q.Job != "" && m.Job != q.Job {
			continue
		}
		one := encode.Mark(m, s.opts.Host.Gap(m))
		if q.Job != "" {
			var err error
			if one.Unevaluated, err = s.opts.Host.Unevaluated(m); err != nil {
				return nil, err
			}
		}
		out = append(out, one)
	}
	return out, nil
}

func stateResponse(state host.State, err error) (any, error) {
	return api.HostState{State: string(state)}, err
}

// serveAlive answers the liveness probe.
func serveAlive(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n"))
}
