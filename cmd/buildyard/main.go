// Command buildyard runs the services of a build cloud and the operator's commands.
package main

import (
	"context"
	"os"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/buildyard"
)

func main() {
	ctx, stop := cli.Signals(context.Background())
	code := buildyard.Main(ctx, os.Args[1:], buildyard.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
