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
	server *http.Server
	socket net.Listener
	secure bool               // serves TLS
	shield *rest.FrontOptions // checks of requests before the handler; nil: none
	slow   *rest.ConcurrencyLimit
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
	return &listener{socket: socket, server: &http.Server{
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
		l.server.TLSConfig, l.secure = e.server.Config(), true
	}
}

// protect rejects cross-site requests and disconnects slow clients, according to the settings.
func (l *listener) protect(v *config.Values, log *slog.Logger) {
	l.shield = frontOptions(v, l.socket, log)
	l.slow = rest.NewConcurrencyLimit("slow clients", config.MaxSlowClients, v.Int(config.MaxSlowClients))
	l.socket = rest.LimitSlowReaders(l.socket, l.slow, !v.Bool(config.IngressNginx))
}

// frontOptions returns the options of the checks that precede all others for requests of a
// listener.
func frontOptions(v *config.Values, socket net.Listener, log *slog.Logger) *rest.FrontOptions {
	guarded := v.Bool(config.EnableAuth)
	return &rest.FrontOptions{
		Loopback: rest.IsLoopback(socket), AnyHost: guarded && v.Bool(config.IngressNginx),
		Hosts: v.List(config.AllowedHosts), Setting: config.AllowedHosts,
		Guarded: guarded, Logger: log,
	}
}

// scheme returns the URL scheme of the listener.
func (l *listener) scheme() string {
	if l.secure {
		return "https://"
	}
	return "http://"
}

// url returns the address for clients on this machine.
func (l *listener) url() string {
	addr, _ := l.socket.Addr().(*net.TCPAddr)
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
	if l.shield != nil {
		handler = rest.Front(*l.shield, handler)
		base = rest.WithSlowClients(base, l.slow)
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
	if !l.secure {
		return l.server.Serve(l.socket)
	}
	secure, plain := rest.SplitPlainHTTP(l.socket)
	other := rest.NewPlainHTTPServer()
	other.ErrorLog = l.server.ErrorLog
	var work sync.WaitGroup
	defer work.Wait()
	defer func() { _ = other.Close() }()
	work.Go(func() { _ = other.Serve(plain) }) // until the listener is closed
	return l.server.ServeTLS(secure, "", "")   // the certificate comes from the port settings
}

func (l *listener) close() error { return l.socket.Close() }
