package rig

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Serve serves HTTP on a free loopback port until the server is closed, and returns its URL. Broken connections are not
// logged.
func Serve(ctx context.Context, handler http.Handler) (url string, server *http.Server, err error) {
	return ServeAt(ctx, "127.0.0.1:0", handler)
}

// ServeAt is Serve at an address, "host:port".
func ServeAt(ctx context.Context, address string, handler http.Handler) (url string, server *http.Server, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return "", nil, err
	}
	server = &http.Server{
		Handler: handler, ReadHeaderTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), server, nil
}
