package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// serveFiles is the bare file server of Go's standard library, without TLS, until the context ends.
func serveFiles(ctx context.Context, address, dir string) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("GET /", http.FileServer(http.Dir(dir)))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
