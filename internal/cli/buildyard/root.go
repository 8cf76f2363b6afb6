package buildyard

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/buildnode"
	"github.com/buildyard/buildyard/internal/cli/cloud"
	"github.com/buildyard/buildyard/internal/cli/diagnose"
	"github.com/buildyard/buildyard/internal/cli/mirrorcommand"
	"github.com/buildyard/buildyard/internal/cli/releases"
	"github.com/buildyard/buildyard/internal/cli/storecommand"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/selfexec"
)

// Streams are the standard streams of a command: the result goes to Out, the rest to Err.
type Streams = cli.Streams

// Main runs the program and returns its exit code.
func Main(ctx context.Context, args []string, io Streams) int {
	return cli.Run(ctx, newCommand(io), args)
}

// serviceGroup is the ID of the command group of services in the help.
const serviceGroup = "services"

// newCommand returns the program's command tree.
func newCommand(io Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "buildyard",
		Short: "Run and manage a build cloud",
		Long: `buildyard runs the services of a build cloud, and has the client commands for a running one.

  buildyard init         set up authentication before the first start: create the root token
  buildyard up           run controller and registry in one process, without other services
  buildyard demo         the same with a node on this machine and one real VM
  buildyard node token   print the join token for nodes

  buildyard instance start TEMPLATE --wait    and list, show, terminate, save ...
  buildyard node list                         and config, drain, adopt ...

Settings come from flags, the environment (SVC_...) and a file (--config); --print-config shows them
with their sources. Client commands find the controller by --controller, SVC_CONTROLLER or a context
of client.yaml (buildyard context --help).

With -o json client commands print the body of the API response, or the action if there is no
response. "buildyard completion bash" (zsh, fish) enables shell completion of IDs, names and tags.

` + cli.ExitCodes,
		Version: obs.FullVersion(),
	}
	root.SetOut(io.Out)
	root.SetErr(io.Err)
	root.AddGroup(&cobra.Group{ID: serviceGroup, Title: "Services:"},
		&cobra.Group{ID: cloud.CommandGroup, Title: "Client commands:"})
	node := nodeCommand(io)
	node.AddCommand(cloud.NodeCommands(io)...)
	root.AddCommand(initCommand(io), upCommand(io), controllerCommand(io), registryCommand(io), node, backupCommand(io),
		storecommand.RestoreCommand(io), storecommand.Command(io, backupCommand(io)), demoCommand(io),
		licenseCommand(io), packageCommand(io), buildnode.FillCommand(new("warn")),
		cli.VersionCommand("buildyard", io.Out))
	root.AddCommand(cloud.Commands(io)...)
	root.AddCommand(diagnose.Commands(io)...)
	root.AddCommand(releases.Commands(io, controllerAddress)...)
	cli.AcceptOldFlags(root, oldFlags)
	return root
}

// oldFlags are accepted names of flags that have the names of the program buildnode today.
var oldFlags = map[string]string{
	"key-id": "api-key-id", "key-string": "api-key-string", "key-file": "api-key-file",
}

// service is the common interface of the services.
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

// serveCommand returns a command that runs a service until it receives a signal.
func serveCommand(cmd *cobra.Command, table config.Table, s service) *cobra.Command {
	cli.AddFlags(cmd.Flags(), table)
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		src := cli.Sources(cmd.Flags())
		src.Vars = os.Environ()
		src, err := addInitSettings(table, src)
		if err != nil {
			return cli.Usage(err)
		}
		if show, _ := cmd.Flags().GetBool("print-config"); show {
			return cli.PrintConfig(cmd.OutOrStdout(), table, src)
		}
		if err := s.ParseFlags(src); err != nil {
			return cli.Usage(err)
		}
		return run(cmd.Context(), s)
	}
	return cmd
}

func run(ctx context.Context, s service) error {
	err := openAndRunService(ctx, s)
	if errors.Is(err, errRestart) {
		path, err := selfexec.Path()
		if err != nil {
			return err
		}
		return selfexec.Exec(path)
	}
	return err
}

func openAndRunService(ctx context.Context, s service) (err error) {
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

func upCommand(io Streams) *cobra.Command {
	return serveCommand(&cobra.Command{
		Use: "up", GroupID: serviceGroup,
		Short: "Run controller and registry in one process",
		Long: `up runs the controller and the registry in one process with an embedded store. A cloud needs no other
service; most clouds start this way.`,
		Example: `  buildyard up
  buildyard up --data-dir ~/cloud --registry-base-path ~/templates
  SVC_REGISTRY=http://build.example:8089 buildyard up`,
	}, config.ControllerTable, &ControllerService{Stderr: io.Err, WithRegistry: true})
}

func controllerCommand(io Streams) *cobra.Command {
	return serveCommand(&cobra.Command{
		Use: "controller", GroupID: serviceGroup,
		Short:   "Run the controller",
		Long:    `controller runs the controller without a registry; --registry is the URL of its registry.`,
		Example: `  buildyard controller --registry http://registry.example:8089`,
	}, config.ControllerTable, &ControllerService{Stderr: io.Err})
}

func registryCommand(io Streams) *cobra.Command {
	cmd := serveCommand(&cobra.Command{
		Use: "registry", GroupID: serviceGroup,
		Short: "Run the registry or manage its storage",
		Long: `registry runs the registry of templates. Its subcommands manage a registry's storage, with or without a
running registry.`,
		Example: `  buildyard registry --base-path /srv/templates --listen-addr :8089
  buildyard registry check`,
	}, config.RegistryTable, &RegistryService{Stderr: io.Err})
	cmd.AddCommand(storageCommands(io)...)
	cmd.AddCommand(mirrorcommand.Command(io))
	return cmd
}
