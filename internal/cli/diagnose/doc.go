// Package diagnose has the commands of buildyard by which an operator finds what is wrong: doctor, top and
// support-bundle.
//
// It is not the commands about single records, which are in internal/cli/cloud, nor the checks themselves, which are
// in internal/doctor. It needs the API only; on the controller's machine it also looks at the data directory.
//
// Invariant: these commands change nothing in the cloud.
package diagnose

import (
	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
)

// Commands returns the commands.
func Commands(s cli.Streams) []*cobra.Command {
	return []*cobra.Command{doctorCommand(s), topCommand(s), supportBundleCommand(s)}
}
