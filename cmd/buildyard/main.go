// Command buildyard runs the services of a build cloud and the operator's commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/buildyard/buildyard/internal/cli/buildyard"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := buildyard.Main(ctx, os.Args[1:], buildyard.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
