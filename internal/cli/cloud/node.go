package cloud

import (
	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
)

// NodeCommands are the commands about nodes that ask a controller.
func NodeCommands(s cli.Streams) []*cobra.Command {
	return []*cobra.Command{adoptCommand(s)}
}
