package buildyard

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/cloud"
	"github.com/buildyard/buildyard/internal/config"
)

func nodeCommand(io Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use: "node", Aliases: []string{"nodes"}, GroupID: cloud.CommandGroup,
		Short: "Manage nodes",
		Long:  `node manages the machines that run VMs. NODE is an ID, a unique prefix of an ID, or a name.`,
		Example: `  buildyard node token | buildnode join http://controller.example:8090 --token-file -
  buildyard node adopt mac-03 --keep`,
	}, cloud.TokenCommand(io, readStoredToken))
}

// readStoredToken returns the permanent join token that a controller has stored in its data directory: dir or, with
// "", the one of the settings. The error wraps fs.ErrNotExist when the directory has none.
func readStoredToken(dir string) (string, error) {
	if dir == "" {
		values, err := config.Load(tableOf(config.ControllerTable, config.DataDir), config.Sources{Env: os.LookupEnv})
		if err != nil {
			return "", err
		}
		dir = values.String(config.DataDir)
	}
	raw, err := os.ReadFile(filepath.Join(dir, tokenFile))
	if err != nil {
		return "", fmt.Errorf(
			"join token not found in %s; run this on the controller's machine with its --data-dir, after its first "+
				"start, or create another token with a credential: %w", dir, err)
	}
	return strings.TrimSpace(string(raw)), nil
}
