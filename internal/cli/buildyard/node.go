package buildyard

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/config"
)

func nodeCommand(io Streams) *cobra.Command {
	return family(&cobra.Command{Use: "node", Short: "Commands about build nodes"}, tokenCommand(io), adoptCommand(io))
}

func tokenCommand(io Streams) *cobra.Command {
	token := &cobra.Command{
		Use:   "token",
		Short: "Print the secret that a node needs to join",
		Long: `token prints the join token of the controller whose data directory lies on this
machine. Whoever has it can join a node and will be sent the scripts of jobs: keep it secret.`,
		Example: `  buildyard node token | buildnode join http://controller.example:8090 --token-file -`,
		Args:    cobra.NoArgs,
	}
	addFlags(token.Flags(), config.ControllerTable)
	token.RunE = func(cmd *cobra.Command, _ []string) error {
		if show, _ := cmd.Flags().GetBool("print-config"); show {
			return printConfig(io.Out, config.ControllerTable, sources(cmd.Flags()))
		}
		values, err := config.Load(config.ControllerTable, sources(cmd.Flags()))
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
		return fmt.Errorf("there is no join token in %s: run this on the controller's machine, with its --data-dir, after its first start", dir)
	}
	_, err = fmt.Fprintln(w, strings.TrimSpace(string(raw)))
	return err
}
