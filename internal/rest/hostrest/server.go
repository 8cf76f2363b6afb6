package hostrest

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/metric"
	"github.com/buildyard/buildyard/internal/scan/host"
)

// Limits for callers.
const (
	maxConnections = 128
	maxRequests    = 64       // at a time
	maxReports     = 4        // of them, readers of the inventory
	maxQueue       = 32       // of them, waiting readers
	maxHeader      = 16 << 10 // the query is part of it
	maxBody        = 64 << 10

	headerTime = 5 * time.Second
	readTime   = 10 * time.Second // of a whole request
	writeTime  = 30 * time.Second // of each part of a response
	idleTime   = time.Minute
	queueTime  = 10 * time.Second // for a waiting reader
	grace      = 5 * time.Second  // for running requests at the end
)

// Options configures the API.
type Options struct {
	Host    *host.Host
	Version string
	Access  Access
	// Metrics are exported in addition to those of the scanner; Expose makes the handler that exports them.
	Metrics []metric.Family
	Expose  func([]metric.Family) (http.Handler, error)
	Push    func() *api.HostPush // returns the status of the reports to a controller; nil: there are none
	Log     *slog.Logger
}

// Server serves the API.
type Server struct {
	o       Options
	log     *slog.Logger
	door    atomic.Pointer[accessCheck]
	paths   map[string]map[string]route // path -> method -> route
	places  chan struct{}               // of requests
	queue   chan struct{}               // of waiting requests among them
	reports chan struct{}
	refused metric.Counter
	metrics func() (http.Handler, error) // made at the first call
}

// New makes the API of a scanner.
func New(o Options) (*Server, error) {
	s := &Server{o: o, log: o.Log, places: make(chan struct{}, maxRequests), queue: make(chan struct{},
		maxQueue), reports: make(chan struct{}, maxReports)}
	s.metrics = s.exposition()
	s.paths = map[string]map[string]route{}
	for _, r := range s.routes() {
		if s.paths[r.path] == nil {
			s.paths[r.path] = map[string]route{}
		}
		s.paths[r.path][r.method] = r
	}
	return s, s.SetAccess(o.Access)
}

// Serve answers requests until ctx ends, and gives running ones a short time to finish. The listener is closed
// then.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{
		Handler: s, BaseContext: func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: headerTime, ReadTimeout: readTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), DisableGeneralOptionsHandler: true,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(netutil.LimitListener(l, maxConnections)) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop, done := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer done()
	time.AfterFunc(100*time.Millisecond, cancel) // end waiting requests now
	if err := server.Shutdown(stop); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return server.Close()
}
