package buildyard

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
)

// asker is what every command has that asks a controller.
type asker struct {
	Streams
	Output cli.Format

	api *apiClient // set before the command runs
}

// add makes cmd one that asks: it gets the options for that, and do runs with them read.
func (a *asker) add(cmd *cobra.Command, do func(cmd *cobra.Command, args []string) error) *cobra.Command {
	addFlags(cmd.Flags(), config.ClientTable)
	a.Output.Add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if show, _ := cmd.Flags().GetBool("print-config"); show {
			return printConfig(a.Out, config.ClientTable, sources(cmd.Flags()))
		}
		if err := a.open(cmd); err != nil {
			return cli.Usage(err)
		}
		return do(cmd, args)
	}
	return cmd
}

func (a *asker) open(cmd *cobra.Command) error {
	values, err := config.Load(config.ClientTable, sources(cmd.Flags()))
	if err != nil {
		return err
	}
	a.api = &apiClient{base: strings.TrimRight(values.String(config.Controller), "/")}
	return nil
}

// family makes a command that only has others beneath it. A misspelt one is refused
// and not answered with help and success.
func family(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(children...)
	return cmd
}
