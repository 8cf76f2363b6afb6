// Command buildnode runs a build node and the node owner's commands.
package main

import (
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/buildnode"
)

func main() { cli.Program(buildnode.Main) }
