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
	maxConnections   = 128
	maxRequests      = 64       // at a time
	maxReportReaders = 4        // of them, readers of the inventory
	maxQueuedReports = 32       // of them, waiting readers
	maxHeaderBytes   = 16 << 10 // the query is part of it
	maxBodyBytes     = 64 << 10

	headerTimeout   = 5 * time.Second
	readTimeout     = 10 * time.Second // of a whole request
	writeTimeout    = 30 * time.Second // of each part of a response
	idleTimeout     = time.Minute
	queueTimeout    = 10 * time.Second // for a waiting reader
	shutdownTimeout = 5 * time.Second  // for running requests at the end
)

// Options configures the API.
type Options struct {
	Host    *host.Host
	Version string
	Access  Access
	// Metrics are exported in addition to those of the scanner; Expose makes the handler that exports them.
	Metrics           []metric.Family
	NewMetricsHandler func([]metric.Family) (http.Handler, error)
	PushStatus        func() *api.HostPush // returns the status of the reports to a controller; nil: there are none
	Log               *slog.Logger
}

// Server serves the API.
type Server struct {
	opts            Options
	log             *slog.Logger
	access          atomic.Pointer[accessCheck]
	routesByPath    map[string]map[string]route // path -> method -> route
	requestSlots    chan struct{}               // of requests
	reportQueue     chan struct{}               // of waiting requests among them
	reportSlots     chan struct{}
	refusedRequests metric.Counter
	metricsHandler  func() (http.Handler, error) // made at the first call
}

// New makes the API of a scanner.
func New(o Options) (*Server, error) {
	s := &Server{opts: o, log: o.Log, requestSlots: make(chan struct{}, maxRequests), reportQueue: make(chan struct{},
		maxQueuedReports), reportSlots: make(chan struct{}, maxReportReaders)}
	s.metricsHandler = s.newMetricsHandler()
	s.routesByPath = map[string]map[string]route{}
	for _, r := range s.routes() {
		if s.routesByPath[r.path] == nil {
			s.routesByPath[r.path] = map[string]route{}
		}
		s.routesByPath[r.path][r.method] = r
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
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelDebug), DisableGeneralOptionsHandler: true,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(netutil.LimitListener(l, maxConnections)) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop, done := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer done()
	time.AfterFunc(100*time.Millisecond, cancel) // end waiting requests now
	if err := server.Shutdown(stop); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return server.Close()
}
