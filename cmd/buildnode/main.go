// Command buildnode runs a build node and the node owner's commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/buildyard/buildyard/internal/cli/buildnode"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := buildnode.Main(ctx, os.Args[1:], buildnode.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
