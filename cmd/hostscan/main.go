// Command hostscan watches a host for vulnerable packages, and asks the service that does.
package main

import (
	"context"
	"os"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/hostscan"
)

func main() {
	ctx, stop := cli.Signals(context.Background())
	code := hostscan.Main(ctx, os.Args[1:], hostscan.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
