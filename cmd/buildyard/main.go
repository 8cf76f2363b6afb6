// Command buildyard runs the services of a build cloud and its client and operator commands.
package main

import (
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/buildyard"
)

func main() { cli.Main(buildyard.Main) }
