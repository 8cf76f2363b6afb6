package buildyard

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/obs"
)

// Streams are where a command speaks: the answer goes to Out, the rest to Err.
type Streams struct {
	Out, Err io.Writer
}

// Main runs the program and gives its exit code.
func Main(ctx context.Context, args []string, io Streams) int {
	cmd := newCommand(io)
	cmd.SetArgs(args)
	return cli.Run(ctx, cmd)
}

// newCommand makes the program's command tree.
func newCommand(io Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "buildyard",
		Short: "Run a cloud of build nodes: virtual machines from versioned templates, on demand",
		Long: `buildyard runs the services of a build cloud.

  buildyard up           controller and registry in one process, no other service needed
  buildyard demo         the same with a node on this machine and one real VM, to look at
  buildyard node token   the secret that a node needs to join
  buildyard backup FILE  everything the controller keeps, in one file; restore brings it back
  buildyard node adopt   decide about VMs that nobody owns
  buildyard maintenance  pause what is removed or given up by itself
  buildyard license      make, sign and look at licence keys

Settings come from flags, from the environment (SVC_...) and from a file (--config);
--print-config shows them and where each came from.

Exit codes: 0 done, 1 failed, 2 wrong usage.`,
		Version: obs.FullVersion(),
	}
	root.SetOut(io.Out)
	root.SetErr(io.Err)
	root.AddCommand(upCommand(io), controllerCommand(io), registryCommand(io), nodeCommand(io), maintenanceCommand(io),
		backupCommand(io), restoreCommand(io), demoCommand(io), licenseCommand(io))
	return root
}

// service is what the serving commands have in common.
type service interface {
	ParseFlags(src config.Sources) error
	Open(ctx context.Context) error
	Run(ctx context.Context) error
	Close() error
}

var (
	_ service = (*ControllerService)(nil)
	_ service = (*RegistryService)(nil)
)

// serveCommand makes a command that runs a service until it is told to stop.
func serveCommand(cmd *cobra.Command, table config.Table, s service) *cobra.Command {
	addFlags(cmd.Flags(), table)
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		src := sources(cmd.Flags())
		if show, _ := cmd.Flags().GetBool("print-config"); show {
			return printConfig(cmd.OutOrStdout(), table, src)
		}
		if err := s.ParseFlags(src); err != nil {
			return cli.Usage(err)
		}
		return run(cmd.Context(), s)
	}
	return cmd
}

func run(ctx context.Context, s service) (err error) {
	defer func() {
		if e := s.Close(); err == nil {
			err = e
		}
	}()
	if err := s.Open(ctx); err != nil {
		return err
	}
	return s.Run(ctx)
}

func printConfig(w io.Writer, table config.Table, src config.Sources) error {
	values, err := config.Load(table, src)
	if err != nil {
		return err
	}
	return values.Print(w)
}

func upCommand(io Streams) *cobra.Command {
	return serveCommand(&cobra.Command{
		Use:   "up",
		Short: "Run controller and registry in one process",
		Long: `up runs the controller and the registry in one process with an embedded store:
everything that a cloud on one machine needs, and the way most clouds begin.`,
		Example: `  buildyard up
  buildyard up --data-dir ~/cloud --registry-base-path ~/templates
  SVC_REGISTRY=http://build.example:8089 buildyard up`,
	}, config.ControllerTable, &ControllerService{Stderr: io.Err, WithRegistry: true})
}

func controllerCommand(io Streams) *cobra.Command {
	return serveCommand(&cobra.Command{
		Use:     "controller",
		Short:   "Run the controller alone",
		Long:    `controller runs the controller alone; --registry says where its registry is.`,
		Example: `  buildyard controller --registry http://registry.example:8089`,
	}, config.ControllerTable, &ControllerService{Stderr: io.Err})
}

func registryCommand(io Streams) *cobra.Command {
	cmd := serveCommand(&cobra.Command{
		Use:   "registry",
		Short: "Run the registry alone, or look after its storage",
		Long: `registry runs the registry of templates alone. The commands beneath it look after a
storage, beside a running registry or without one.`,
		Example: `  buildyard registry --base-path /srv/templates --listen-addr :8089
  buildyard registry check`,
	}, config.RegistryTable, &RegistryService{Stderr: io.Err})
	cmd.AddCommand(storageCommands(io)...)
	return cmd
}
