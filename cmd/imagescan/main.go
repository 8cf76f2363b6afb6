// Command imagescan finds known vulnerabilities in VM images, registry templates and directories.
package main

import (
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/imagescan"
)

func main() { cli.Main(imagescan.Main) }
