package buildnode

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/internal/agent/hostcheck"
	"github.com/buildyard/buildyard/internal/agent/service"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/selfexec"
)

// installOptions are the options of service install.
type installOptions struct {
	*ServiceOptions
	agent NodeOptions // only its flags are used
	Env   []string
	Print bool
}

func serviceInstall(common *ServiceOptions) *cobra.Command {
	o := installOptions{ServiceOptions: common}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install and start the service",
		Long: `install writes the service file, starts the service and checks the host. The options of the agent (those of
buildnode run) are written to the file. Repeated, it replaces the file and restarts the agent if
something has changed; options that are not repeated are removed.`,
		Example: `  sudo buildnode service install --metrics-listen :2113    # Linux
  buildnode service install                                # macOS, as the user that is logged in
  buildnode service install --print                        # show the file, change nothing`,
		Args: cobra.NoArgs,
	}
	addRunFlags(cmd, &o.agent)
	var agentFlags []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { agentFlags = append(agentFlags, f.Name) })
	agentFlags = append(agentFlags, "log-level")
	cmd.Flags().StringArrayVar(&o.Env, "env", nil,
		"environment variable NAME=VALUE of the agent, not for secrets (repeatable)")
	cmd.Flags().BoolVar(&o.Print, "print", false, "print the service file, and change nothing")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		definition, err := o.definition(cmd.Flags(), agentFlags)
		if err != nil {
			return err
		}
		return o.run(cmd.Context(), definition)
	}
	return cmd
}

// installAfterJoin installs and starts the service of a node that has joined, with the default options of the agent.
func (g *globals) installAfterJoin(ctx context.Context) error {
	o := installOptions{ServiceOptions: &ServiceOptions{globals: g}}
	definition, err := o.definition(pflag.NewFlagSet("", pflag.ContinueOnError), nil)
	if err != nil {
		return err
	}
	return o.run(ctx, definition)
}

// definition returns what the service runs: this program with those of the agent's flags that were given.
func (o *installOptions) definition(flags *pflag.FlagSet, agentFlags []string) (d service.Definition, err error) {
	if d.Program, err = selfexec.Path(); err != nil {
		return d, fmt.Errorf("find the path of this program: %w", err)
	}
	at, err := o.openDataDir()
	if err != nil {
		return d, err
	}
	d.Args, d.Env = []string{"run", "--data-dir", at.Path()}, o.Env
	flags.Visit(func(f *pflag.Flag) {
		if err != nil || !slices.Contains(agentFlags, f.Name) {
			return
		}
		var values []string
		if values, err = flagValues(f); err == nil {
			d.Args = append(d.Args, values...)
		}
	})
	return d, err
}

// flagValues returns a flag as arguments. The service runs in another directory: paths are made absolute.
func flagValues(f *pflag.Flag) ([]string, error) {
	values := []string{f.Value.String()}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		values = list.GetSlice()
	}
	args := make([]string, len(values))
	for i, value := range values {
		if _, isFile := f.Annotations[cobra.BashCompFilenameExt]; isFile && value != "" {
			var err error
			if value, err = filepath.Abs(value); err != nil {
				return nil, fmt.Errorf("--%s: %w", f.Name, err)
			}
			if _, err := os.Stat(value); err != nil {
				return nil, cli.Usage(fmt.Errorf("--%s: %w", f.Name, err))
			}
		}
		args[i] = "--" + f.Name + "=" + value
	}
	return args, nil
}

func (o *installOptions) run(ctx context.Context, d service.Definition) error {
	s, err := o.open()
	if err != nil {
		return err
	}
	if o.Print {
		text, err := s.Render(d)
		if err != nil {
			return err
		}
		_, err = o.Out.Write(text)
		return err
	}
	if err := o.checkUser(); err != nil {
		return err
	}
	if err := o.printSteps(s.Install(ctx, d)); err != nil {
		return err
	}
	o.warn(ctx)
	return nil
}

// warn prints what keeps this host from being a node.
func (o *installOptions) warn(ctx context.Context) {
	if at, err := o.openDataDir(); err == nil {
		if _, err := at.Identity(); farm.CodeOf(err) == farm.CodeNotFound {
			_, _ = fmt.Fprintln(o.Err,
				"warning: this node has not joined a cloud; the service waits for: buildnode join")
		}
	}
	for _, c := range o.checkHost(ctx) {
		if c.Outcome == hostcheck.Problem {
			_, _ = fmt.Fprintf(o.Err, "warning: %s: %s\n  remedy: %s\n", c.Name, cli.EscapeName(c.Detail),
				cli.EscapeName(c.Remedy))
		}
	}
}
