// Command buildnode runs a build node and the node owner's commands.
package main

import (
	"context"
	"os"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/buildnode"
)

func main() {
	ctx, stop := cli.Signals(context.Background())
	code := buildnode.Main(ctx, os.Args[1:], buildnode.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
