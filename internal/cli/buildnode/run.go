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
		Short: "Run the agent of this node",
		Long: `run runs the agent until it is stopped: it pulls templates, starts and stops VMs and reports them to the
controller. VMs outlive the agent; the next run manages them again.

On request of the controller, the agent downloads and verifies another version of this program and
replaces itself with it; VMs continue. That version is stored in the data directory and used at each
start. A version that does not reach the controller is rolled back to the previous one.

The driver auto uses what is installed, and the log names the choice with its reason: for macOS guests tart,
otherwise anka; for all others QEMU, next to the former only if its guests have the architecture of the node.`,
		Example: `  buildnode run
  buildnode run --metrics-listen 127.0.0.1:2113
  buildnode run --driver sim     # simulated VMs, without a hypervisor`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.DataDir, err = g.openDataDir(); err != nil {
				return err
			}
			identity, err := o.DataDir.Identity()
			if err != nil {
				return err
			}
			if o.controllers, err = openControllers(o.DataDir, identity, nil); err != nil {
				return err
			}
			if o.Shipper, err = newShipper(identity, o.controllers); err != nil {
				return err
			}
			if o.Logger, err = obs.Logger(o.Shipper.Tee(cmd.ErrOrStderr(), "node"), g.logLevel, "node"); err != nil {
				return cli.Usage(err)
			}
			o.controllers.SetLogger(o.Logger)
			defer startShipping(cmd.Context(), o.Shipper)()
			return runNode(cmd.Context(), o)
		},
	}
	addRunFlags(cmd, &o)
	return cmd
}

// addRunFlags adds the options of the agent to a command.
func addRunFlags(cmd *cobra.Command, o *NodeOptions) {
	addDriver(cmd, o)
	cmd.Flags().BoolVar(&o.AllowDowngrade, "allow-downgrade", false, "allow updates to older signed versions")
	cmd.Flags().StringVar(&o.UpdateKeys, "update-key", "",
		"file with the trusted public keys of agent packages (default: those from the first join)")
	cmd.Flags().StringVar(&o.License.LicenseFile, "license-file", "",
		"license file of this node; if the license has expired, the node gets no new VMs (default: only the license "+
			"of its hypervisor counts)")
	cmd.Flags().StringVar(&o.License.AuthorityFile, "license-authority", "",
		"file with the public keys of the license authority (default: authority.pub in /etc/buildyard and in the "+
			"user's configuration directory)")
	cmd.Flags().StringVar(&o.RegistryMirror, "registry-mirror", "",
		"URL of a mirror of the registry near this node, for pulls; the registry is used when it fails (default: none)")
	addLazyPull(cmd, o)
	addPeers(cmd, &o.Peers)
	cmd.Flags().StringVar(&o.MetricsAddr, "metrics-listen",
		"", "listen address host:port of Prometheus metrics at /metrics (default: disabled)")
	for _, name := range []string{"update-key", "license-file", "license-authority"} {
		_ = cmd.MarkFlagFilename(name) // "service install" makes the paths of such flags absolute
	}
}

// addDriver adds the options of the hypervisor to a command.
func addDriver(cmd *cobra.Command, o *NodeOptions) {
	cmd.Flags().StringVar(&o.Driver, "driver", DriverAuto,
		"hypervisor driver: auto (what is installed: tart, otherwise anka, and qemu), qemu, tart or anka (macOS "+
			"guests), or sim for simulated VMs")
	cmd.Flags().StringVar(&o.GuestUser, "guest-user", "",
		"user of SSH logins in macOS guests without a guest agent (default: admin)")
	cmd.Flags().StringVar(&o.GuestPasswordFile, "guest-password-file", "",
		"file with the password of --guest-user (default: the password is admin)")
	_ = cmd.MarkFlagFilename("guest-password-file")
	cmd.Flags().StringVar(&o.QEMUUser, "run-as", "",
		"user that QEMU runs as when this program runs as root (default: buildyard if it exists, else user ID 65525)")
	cmd.Flags().BoolVar(&o.RequireIsolation, "require-isolation", false,
		"refuse to start VMs while the firewall rules that isolate guests from this host are missing")
	cmd.Flags().StringVar(&o.Bridge, "bridge", "",
		"bridge of this host, or network interface of a Mac, for network mode bridge (default: the mode is refused)")
	cmd.Flags().StringVar(&o.VNCListenAddr, "vnc-listen", "",
		"listen address of VM consoles with a VNC password, such as 0.0.0.0 (default: 127.0.0.1)")
	o.vlans.add(cmd.Flags())
	_ = cmd.RegisterFlagCompletionFunc("driver",
		cobra.FixedCompletions(driverNames, cobra.ShellCompDirectiveNoFileComp))
}

// serveNode runs the agent until the context ends, the agent cannot continue, or it is to be
// replaced by another version of itself.
func serveNode(ctx context.Context, o NodeOptions) (err error) {
	node, err := OpenNode(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	o.Logger.InfoContext(ctx, "agent started", "driver", node.Host.Driver, "hypervisor", node.Host.Version,
		"accelerator", node.Host.Accelerator, "version", obs.FullVersion())
	if err := o.DataDir.SetLastError(""); err != nil {
		return err
	}
	err = node.Run(ctx)
	if farm.CodeOf(err) == farm.CodeUnauthenticated { // the status command shows it
		err = errors.Join(err, o.DataDir.SetLastError(err.Error()))
	}
	return err
}
