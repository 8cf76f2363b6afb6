package buildnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/agent/hostcheck"
	"github.com/buildyard/buildyard/internal/agent/service"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/farm"
)

// nodeService is the agent as a service of this machine.
type nodeService interface {
	Render(d service.Definition) ([]byte, error)
	Install(ctx context.Context, d service.Definition) (steps []string, err error)
	Uninstall(ctx context.Context) (steps []string, err error)
	Status(ctx context.Context) (service.Status, error)
	LogCommand(o service.LogOptions) []string
}

var (
	_ nodeService = (*service.Systemd)(nil)
	_ nodeService = (*service.Launchd)(nil)
)

// ServiceOptions are the options of the commands below service.
type ServiceOptions struct {
	*globals
	Dir    string // of the service file; "": that of the service manager
	Output cli.Format
}

func serviceCommand(g *globals) *cobra.Command {
	o := &ServiceOptions{globals: g}
	cmd := cli.Family(&cobra.Command{
		Use:   "service",
		Short: "Run the agent as a service",
		Long: `service makes the agent a service of the operating system: a unit of systemd on Linux, a LaunchAgent of launchd
on macOS. The service restarts an agent that fails, and starts it with the machine (Linux) or when its
user logs in (macOS). VMs outlive every restart, and the end, of the service.

On macOS, run these commands as the user that is logged in on the screen, without sudo: macOS guests
need the session and the keychain of that user. Logging out ends the VMs.`,
	}, serviceInstall(o), serviceUninstall(o), serviceStatus(o), serviceLogs(o))
	cmd.PersistentFlags().StringVar(&o.Dir, "service-dir", "",
		"directory of the service file (default: "+service.DefaultUnitDir+"; on macOS ~/Library/LaunchAgents)")
	return cmd
}

// open returns the service of this machine.
func (o *ServiceOptions) open() (nodeService, error) {
	dir := o.Dir
	if dir != "" {
		var err error
		if dir, err = filepath.Abs(dir); err != nil {
			return nil, fmt.Errorf("find --service-dir: %w", err)
		}
	}
	switch runtime.GOOS {
	case "linux":
		return service.NewSystemd(dir), nil
	case "darwin":
		home, err := os.UserHomeDir()
		return service.NewLaunchd(dir, home, os.Getuid()), err
	}
	return nil, farm.Refused("Services of %s are not supported", runtime.GOOS)
}

// checkUser refuses users that cannot change the service.
func (o *ServiceOptions) checkUser() error {
	switch root := os.Geteuid() == 0; {
	case runtime.GOOS == "linux" && !root && o.Dir == "":
		return farm.Refused("Only root can change services of this machine; use sudo")
	case runtime.GOOS == "darwin" && root:
		return farm.Refused("The service belongs to the user that is logged in on the screen; run this without sudo")
	}
	return nil
}

// printSteps prints what was done, also before an error.
func (o *ServiceOptions) printSteps(steps []string, err error) error {
	for _, step := range steps {
		_, printErr := fmt.Fprintln(o.Out, cli.EscapeName(step))
		err = errors.Join(err, printErr)
	}
	return err
}

func serviceUninstall(o *ServiceOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "uninstall",
		Short: "Stop and remove the service",
		Long: `uninstall stops the agent and removes its service file. VMs continue, and the data directory stays; to remove
them, leave the cloud first: buildnode disjoin.`,
		Example: `  sudo buildnode service uninstall    # Linux
  buildnode service uninstall         # macOS`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkUser(); err != nil {
				return err
			}
			s, err := o.open()
			if err != nil {
				return err
			}
			return o.printSteps(s.Uninstall(cmd.Context()))
		},
	}
}

// serviceState is the JSON output of service status.
type serviceState struct {
	service.Status
	DataDir string             `json:"data_dir"`
	Checks  []hostcheck.Result `json:"checks"`
}

func serviceStatus(o *ServiceOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the service and check the host",
		Long: `status shows the state of the service and checks whether this host can run VMs unattended, with the remedy of
each problem. On macOS it checks automatic login, the login keychain, sleep, the lease time of the
DHCP server, softnet and access to the local network.`,
		Example: `  buildnode service status
  buildnode service status --output json | jq '.checks[] | select(.outcome == "problem")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.status(cmd.Context()) },
	}
	o.Output.Add(cmd)
	return cmd
}

func (o *ServiceOptions) status(ctx context.Context) error {
	s, err := o.open()
	if err != nil {
		return err
	}
	status, err := s.Status(ctx)
	if err != nil {
		return err
	}
	at, err := o.openDataDir()
	if err != nil {
		return err
	}
	state := serviceState{status, at.Path(), o.checkHost(ctx)}
	return o.Output.Write(o.Out, state, state.table)
}

// checkHost checks this host. A node that has not joined has the default reserve.
func (o *ServiceOptions) checkHost(ctx context.Context) []hostcheck.Result {
	options := hostcheck.Options{OS: runtime.GOOS, User: os.Getenv("USER"), Reserve: bytesize.DefaultReserve}
	if current, err := user.Current(); err == nil {
		options.User = current.Username
	}
	if at, err := o.openDataDir(); err == nil {
		options.Dir = at.Path()
		if identity, err := at.Identity(); err == nil {
			options.Reserve = identity.DiskReserve
		}
	}
	return hostcheck.Run(ctx, options)
}

func (s serviceState) table(g *cli.Grid) {
	g.Row("service", s.Name+" ("+s.Manager+")")
	g.Row("file", s.File+map[bool]string{false: " (not installed)"}[s.Installed])
	state := s.State
	if s.Running {
		state += fmt.Sprintf(", process %d", s.PID)
	}
	g.Row("state", state)
	g.Row("starts automatically", map[bool]string{true: "yes", false: "no"}[s.Enabled])
	if s.LastExit != "" {
		g.Row("last exit", s.LastExit)
	}
	if s.Restarts > 0 {
		g.Row("restarts", s.Restarts)
	}
	g.Row("data", s.DataDir)
	for _, c := range s.Checks {
		g.Row("check", c.Name+": "+string(c.Outcome)+", "+c.Detail)
		if c.Remedy != "" {
			g.Row("", "remedy: "+c.Remedy)
		}
	}
}

func serviceLogs(o *ServiceOptions) *cobra.Command {
	var selected service.LogOptions
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Show the log of the service",
		Long: `logs prints the last lines of the agent's log: from the journal on Linux, from ~/Library/Logs/buildnode.log on
macOS.`,
		Example: `  buildnode service logs
  buildnode service logs --lines 20 --follow`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := o.open()
			if err != nil {
				return err
			}
			return service.ShowLog(cmd.Context(), s.LogCommand(selected), o.Out, o.Err)
		},
	}
	cmd.Flags().UintVarP(&selected.Lines, "lines", "n", 100, "number of last lines")
	cmd.Flags().BoolVarP(&selected.Follow, "follow", "f", false, "wait for more lines")
	return cmd
}
