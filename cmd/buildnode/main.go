// Command buildnode runs the agent of a node and the commands of its owner.
package main

import (
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/buildnode"
)

func main() { cli.Main(buildnode.Main) }
