package cloud

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
)

func maintenanceCommand(streams cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use: "maintenance", GroupID: CommandGroup,
		Short: "Manage maintenance mode",
		Long: `maintenance pauses the automatic and irreversible actions of a cloud: orphaned VMs are not removed,
instances of offline nodes do not end in Error, nothing expires, finished records are kept, and the
registry runs no garbage collection and does not empty its trash. Client requests continue: starts,
terminations, saves, deletions.

Use it before work on the network, the disks or the records. Timeouts that would have passed during
maintenance start again when it ends.`,
		Example: `  buildyard maintenance on --for 2h --reason "new switch in rack 3"
  buildyard maintenance status
  buildyard maintenance off`,
	}, maintenanceOn(streams), maintenanceOff(streams), maintenanceStatus(streams))
}

func maintenanceOn(streams cli.Streams) *cobra.Command {
	a := Command{Streams: streams}
	var length time.Duration
	var reason string
	cmd := a.Add(&cobra.Command{
		Use:   "on",
		Short: "Enable or change maintenance mode",
		Long: `on enables maintenance mode, for the time --for or until "buildyard maintenance off". The mode is stored
with the records of the cloud and survives a restart of the controller.`,
		Example: `  buildyard maintenance on
  buildyard maintenance on --for 90m --reason "restore of the records"`,
		Args: cobra.NoArgs,
	}, func(cmd *cobra.Command, _ []string) error {
		begin := api.BeginMaintenance{Reason: reason}
		if length != 0 {
			begin.For = length.String()
		}
		return a.showMaintenance(cmd.Context(),
			func(ctx context.Context) (api.Maintenance, error) { return a.API.BeginMaintenance(ctx, begin) })
	})
	cmd.Flags().DurationVar(&length, "for", 0, "duration, for example 2h (default: until disabled)")
	cmd.Flags().StringVar(&reason, "reason", "", "reason, shown in the status and in the log")
	return cmd
}

func maintenanceOff(streams cli.Streams) *cobra.Command {
	a := Command{Streams: streams}
	return a.Add(&cobra.Command{
		Use:     "off",
		Short:   "Disable maintenance mode",
		Long:    `off disables maintenance mode. It changes nothing if maintenance mode is off.`,
		Example: `  buildyard maintenance off`,
		Args:    cobra.NoArgs,
	}, func(cmd *cobra.Command, _ []string) error {
		if err := a.API.EndMaintenance(cmd.Context()); err != nil {
			return err
		}
		return a.showMaintenance(cmd.Context(), a.API.Maintenance)
	})
}

func maintenanceStatus(streams cli.Streams) *cobra.Command {
	a := Command{Streams: streams}
	return a.Add(&cobra.Command{
		Use:   "status",
		Short: "Show maintenance mode",
		Long:  `status shows whether maintenance mode is on, since when, until when and why.`,
		Example: `  buildyard maintenance status
  buildyard maintenance status -o json | jq .on`,
		Args: cobra.NoArgs,
	}, func(cmd *cobra.Command, _ []string) error { return a.showMaintenance(cmd.Context(), a.API.Maintenance) })
}

// showMaintenance prints the maintenance mode that a call returns.
func (a *Command) showMaintenance(ctx context.Context, call func(context.Context) (api.Maintenance, error)) error {
	got, err := callAPI(ctx, call)
	if err != nil {
		return err
	}
	return printOne(a, got, "", func(g *cli.Grid, m api.Maintenance) {
		if !m.On {
			g.Row("maintenance", "off")
			return
		}
		until := "disabled manually"
		if !m.Until.IsZero() {
			until = timeText(m.Until)
		}
		g.Row("maintenance", "on")
		g.Row("since", timeText(m.Since))
		g.Row("until", until)
		putRow(g, "reason", m.Reason)
	})
}
