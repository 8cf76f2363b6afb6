package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
	"github.com/sirupsen/logrus"
)

// settings of the registry: files on disk, no log of accesses, everything else as it comes.
const settings = `
version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: DIR}}
`

// serve serves the distribution registry until the context ends.
func serve(ctx context.Context, args []string) (any, error) {
	address, dir := args[0], args[1]
	config, err := configuration.Parse(strings.NewReader(strings.Replace(settings, "DIR", strconv.Quote(dir), 1)))
	if err != nil {
		return nil, err
	}
	logrus.SetOutput(io.Discard)
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("/", handlers.NewApp(ctx, config))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return nil, err
	}
	return nil, nil
}
