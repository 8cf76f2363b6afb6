package buildyard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/rest"
)

// listener is one HTTP server on one address. It is bound at creation, so that its actual
// address is known before anything starts.
type listener struct {
	server      *http.Server
	netListener net.Listener
	servesTLS   bool                   // serves TLS
	hostCheck   *rest.HostCheckOptions // checks of requests before the handler; nil: none
	slowClients *rest.ConcurrencyLimit
}

// listen binds an address; port 0 lets the system choose.
func listen(ctx context.Context, name, addr string, log *slog.Logger) (*listener, error) {
	var config net.ListenConfig
	socket, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s cannot listen on %s: %w", name, addr, err)
	}
	return newListener(socket, log), nil
}

func newListener(socket net.Listener, log *slog.Logger) *listener {
	return &listener{netListener: socket, server: &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),

		DisableGeneralOptionsHandler: true, // OPTIONS * passes the guard like every other request
	}}
}

// enableTLS enables TLS if the port has it.
func (l *listener) enableTLS(e *portTLS) {
	if e.server != nil {
		l.server.TLSConfig, l.servesTLS = e.server.Config(), true
	}
}

// enableProtection rejects cross-site requests and disconnects slow clients, according to the settings.
func (l *listener) enableProtection(v *config.Values, log *slog.Logger) {
	l.hostCheck = frontOptions(v, l.netListener, log)
	l.slowClients = rest.NewConcurrencyLimit("slow clients", config.MaxSlowClients, v.Int(config.MaxSlowClients))
	l.netListener = rest.LimitSlowClients(l.netListener, l.slowClients, !v.Bool(config.IngressNginx))
}

// frontOptions returns the options of the checks that precede all others for requests of a
// listener.
func frontOptions(v *config.Values, socket net.Listener, log *slog.Logger) *rest.HostCheckOptions {
	guarded := v.Bool(config.EnableAuth)
	return &rest.HostCheckOptions{
		LoopbackOnly: rest.IsLoopback(socket), AnyHost: guarded && v.Bool(config.IngressNginx),
		Hosts: v.List(config.AllowedHosts), HostsSetting: config.AllowedHosts,
		Guarded: guarded, Logger: log,
	}
}

// scheme returns the URL scheme of the listener.
func (l *listener) scheme() string {
	if l.servesTLS {
		return "https://"
	}
	return "http://"
}

// url returns the address for clients on this machine.
func (l *listener) url() string {
	addr, _ := l.netListener.Addr().(*net.TCPAddr)
	host := addr.IP.String()
	if addr.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return l.scheme() + net.JoinHostPort(host, fmt.Sprint(addr.Port))
}

// serve answers requests until the context ends, then waits up to grace for open ones.
// The context of long polls is canceled immediately.
func (l *listener) serve(ctx context.Context, handler http.Handler, grace time.Duration) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if l.hostCheck != nil {
		handler = rest.HostCheck(*l.hostCheck, handler)
		base = rest.WithSlowClients(base, l.slowClients)
	}
	l.server.Handler = handler
	l.server.BaseContext = func(net.Listener) context.Context { return base }
	failed := make(chan error, 1)
	go func() { failed <- l.accept() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop, done := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer done()
	time.AfterFunc(100*time.Millisecond, cancel)
	if err := l.server.Shutdown(stop); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return l.server.Close()
}

func (l *listener) accept() error {
	if !l.servesTLS {
		return l.server.Serve(l.netListener)
	}
	secure, plain := rest.SplitPlainHTTP(l.netListener)
	other := rest.NewPlainHTTPServer()
	other.ErrorLog = l.server.ErrorLog
	var work sync.WaitGroup
	defer work.Wait()
	defer func() { _ = other.Close() }()
	work.Go(func() { _ = other.Serve(plain) }) // until the listener is closed
	return l.server.ServeTLS(secure, "", "")   // the certificate comes from the port settings
}

func (l *listener) close() error { return l.netListener.Close() }
