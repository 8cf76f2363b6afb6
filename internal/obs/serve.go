package obs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/buildyard/buildyard/internal/metric"
)

// MetricsOptions define where metrics are served, and which.
type MetricsOptions struct {
	Addr     string // host:port; port 0 lets the system choose
	Path     string // "": /metrics
	Families []metric.Family
	// WrapHandler handles requests of a listener before they are answered; nil: none.
	WrapHandler func(l net.Listener, next http.Handler) http.Handler
	Logger      *slog.Logger
}

// MetricsServer serves the metrics of one process on a separate address: clients need no credential
// of the API, and reach nothing else there. It listens from its creation on.
type MetricsServer struct {
	server   *http.Server
	listener net.Listener
	path     string
}

// ListenMetrics binds the address.
func ListenMetrics(ctx context.Context, o MetricsOptions) (*MetricsServer, error) {
	if o.Path == "" {
		o.Path = "/metrics"
	}
	handler, err := Metrics(o.Families)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+o.Path, handler)
	var config net.ListenConfig
	socket, err := config.Listen(ctx, "tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("metrics server cannot listen on %s: %w", o.Addr, err)
	}
	var front http.Handler = mux
	if o.WrapHandler != nil {
		front = o.WrapHandler(socket, mux)
	}
	return &MetricsServer{path: o.Path, listener: socket, server: &http.Server{
		Handler: front, ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug), MaxHeaderBytes: 64 << 10,
		ReadTimeout: 10 * time.Second, WriteTimeout: 2 * scrapeTimeout, IdleTimeout: 2 * time.Minute,
	}}, nil
}

// URL returns the URL of the metrics, for clients on this machine.
func (s *MetricsServer) URL() string {
	addr, _ := s.listener.Addr().(*net.TCPAddr)
	host := addr.IP.String()
	if addr.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, fmt.Sprint(addr.Port)) + s.path
}

// Run serves until ctx ends.
func (s *MetricsServer) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = s.server.Close() })
	defer stop()
	if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}

// Close releases the address when Run was not called.
func (s *MetricsServer) Close() error {
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
