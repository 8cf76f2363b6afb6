package buildnode

import (
	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/hv/tart"
	"github.com/buildyard/buildyard/internal/obs"
)

// forwardVerb is the command that the agent starts for each VM of tart with port rules or a screen.
const forwardVerb = "forward"

// forwardCommand is hidden: only the agent uses it.
func forwardCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:    forwardVerb + " <tart home> <tart program> <leases file> <vm>",
		Short:  "Forward the ports of one VM",
		Long:   `forward is started by the agent. It holds the host ports of one macOS guest and ends with its VM.`,
		Args:   cobra.ExactArgs(tart.ForwarderArgs),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := obs.Logger(cmd.ErrOrStderr(), g.logLevel, "forward")
			if err != nil {
				return cli.Usage(err)
			}
			return tart.Forward(cmd.Context(), args, log)
		},
	}
}
