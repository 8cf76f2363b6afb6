package buildnode

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/obs"
)

func runCommand(g *globals) *cobra.Command {
	o := NodeOptions{}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the node's agent",
		Long: `run serves the node's controller until it is told to stop: it pulls templates, starts
and ends VMs and reports on them. VMs outlive the agent; the next run finds them again.

When the controller asks for it, the agent loads another version of this program, verifies
it, and becomes it; VMs run on. That version is kept in the data directory, and run becomes
it at each start. One that does not reach the controller makes room for the one before it.`,
		Example: `  buildnode run
  buildnode run --metrics-listen 127.0.0.1:2113
  buildnode run --driver sim     # no hypervisor: simulated VMs, for trying things out`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Home, err = g.home(); err != nil {
				return err
			}
			if o.Shipper, err = newShipper(o.Home); err != nil {
				return err
			}
			if o.Logger, err = obs.Logger(o.Shipper.Tee(cmd.ErrOrStderr(), "node"), g.logLevel, "node"); err != nil {
				return cli.Usage(err)
			}
			defer ship(cmd.Context(), o.Shipper)()
			return runNode(cmd.Context(), o)
		},
	}
	addDriver(cmd, &o)
	cmd.Flags().BoolVar(&o.AllowDowngrade, "allow-downgrade", false, "let the controller replace this agent by an older, signed version")
	cmd.Flags().StringVar(&o.UpdateKeys, "update-key", "", "file with the public keys that agent packages must be signed with (default: those that this node was given when it joined)")
	cmd.Flags().StringVar(&o.Licence.File, "license-file", "", "licence of this node; when it is over the node gets no new VMs (default: it needs none but its hypervisor's)")
	cmd.Flags().StringVar(&o.Licence.Authority, "license-authority", "", "file with the public keys that licences are believed by (default: authority.pub in /etc/buildyard and in the user's configuration folder)")
	cmd.Flags().StringVar(&o.Metrics, "metrics-listen", "", "address host:port on which metrics for Prometheus are served at /metrics (default: none are)")
	return cmd
}

// addDriver adds the options of the hypervisor to a command.
func addDriver(cmd *cobra.Command, o *NodeOptions) {
	cmd.Flags().StringVar(&o.Driver, "driver", DriverQEMU, "hypervisor driver: qemu, or sim for VMs that are only simulated")
	cmd.Flags().StringVar(&o.RunAs, "run-as", "", "user that QEMU runs as when this program is root and that runs nothing else (default: buildyard where there is that user, else number 65525)")
	cmd.Flags().StringVar(&o.Bridge, "bridge", "", "bridge of this host that guests in the network mode bridge are put on (default: the mode is refused)")
	cmd.Flags().StringVar(&o.VNCListen, "vnc-listen", "", "address of this host that the screens of VMs with a VNC password are served on, such as 0.0.0.0 (default: 127.0.0.1)")
	o.vlans.add(cmd.Flags())
	_ = cmd.RegisterFlagCompletionFunc("driver", cobra.FixedCompletions([]string{DriverQEMU, DriverSim}, cobra.ShellCompDirectiveNoFileComp))
}

// serveNode runs the agent until the context ends, the agent cannot continue, or it is to be
// replaced by another version of itself.
func serveNode(ctx context.Context, o NodeOptions) (err error) {
	node, err := OpenNode(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	o.Logger.InfoContext(ctx, "agent runs", "driver", node.Host.Driver, "hypervisor", node.Host.Version, "accelerator", node.Host.Accelerator, "version", obs.FullVersion())
	if err := o.Home.SetLastError(""); err != nil {
		return err
	}
	err = node.Run(ctx)
	if farm.CodeOf(err) == farm.CodeUnauthenticated { // the status command shows it
		err = errors.Join(err, o.Home.SetLastError(err.Error()))
	}
	return err
}
