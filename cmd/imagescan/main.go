// Command imagescan finds known vulnerabilities in VM images, registry templates and folders.
package main

import (
	"context"
	"os"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/imagescan"
)

func main() {
	ctx, stop := cli.Signals(context.Background())
	code := imagescan.Main(ctx, os.Args[1:], imagescan.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	stop()
	os.Exit(code)
}
