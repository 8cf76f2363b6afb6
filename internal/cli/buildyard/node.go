package buildyard

import (
	"fmt"
	"io"
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
	}, tokenCommand(io))
}

func tokenCommand(io Streams) *cobra.Command {
	token := &cobra.Command{
		Use:   "token",
		Short: "Print the join token",
		Long: `token prints the join token of the controller whose data directory is on this machine. The token admits
nodes, which receive the scripts of jobs: keep it secret.`,
		Example: `  buildyard node token | buildnode join http://controller.example:8090 --token-file -`,
		Args:    cobra.NoArgs,
	}
	cli.AddFlags(token.Flags(), config.ControllerTable)
	token.RunE = func(cmd *cobra.Command, _ []string) error {
		if show, _ := cmd.Flags().GetBool("print-config"); show {
			return cli.PrintConfig(io.Out, config.ControllerTable, cli.Sources(cmd.Flags()))
		}
		values, err := config.Load(config.ControllerTable, cli.Sources(cmd.Flags()))
		if err != nil {
			return err
		}
		return printToken(io.Out, values.String(config.DataDir))
	}
	return token
}

func printToken(w io.Writer, dir string) error {
	raw, err := os.ReadFile(filepath.Join(dir, tokenFile))
	if err != nil {
		return fmt.Errorf(
			"join token not found in %s; run this on the controller's machine with its --data-dir, after its first "+
				"start", dir)
	}
	_, err = fmt.Fprintln(w, strings.TrimSpace(string(raw)))
	return err
}
