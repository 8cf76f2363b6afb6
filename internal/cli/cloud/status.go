package cloud

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
)

// CommandGroup is the ID of the group of client commands, in the program's help.
const CommandGroup = "cloud"

// serviceRunning is the status of a service without problems.
const serviceRunning = "Running"

func statusCommand(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var w waitOptions
	cmd := a.Add(&cobra.Command{
		Use: "status", Short: "Show controller and registry status", Args: cobra.NoArgs, GroupID: CommandGroup,
		Long: `status shows the version of the controller, the status of its registry, the alarms and the
outages of nodes.

Nodes that are Offline or Unhealthy are grouped by their cause, one row for each group: since when, what the nodes
share, how many instances they hold, and when the first of these goes to Error.

The exit code is 0 when nothing is wrong, 1 while there are alarms, and 5 when the controller or its
registry does not run. --wait waits until both run; alarms do not matter to it.`,
		Example: `  buildyard status || echo "needs an operator"
  buildyard status --wait --timeout 1m
  buildyard status -o json | jq -r '.alarms[]?'`,
	}, func(cmd *cobra.Command, _ []string) error {
		if !w.wait {
			return a.printStatus(cmd.Context(), statusProblem)
		}
		err := w.waitWithTimeout(cmd.Context(), "", a.awaitRunning)
		if err != nil {
			return err
		}
		return a.printStatus(cmd.Context(), serviceProblem)
	})
	w.addWaitFlags(cmd, "until controller and registry run")
	return cmd
}

// printStatus shows the status, and returns the error that check finds in it.
func (a *Command) printStatus(ctx context.Context, check func(api.ControllerStatus) error) error {
	got, err := callAPI(ctx, a.API.Status)
	if err != nil {
		return err
	}
	disk, diskErr := a.API.RegistryDisk(ctx)
	err = printOne(a, got, a.API.Address(), func(g *cli.Grid, st api.ControllerStatus) {
		g.Row("controller", st.Status)
		g.Row("version", st.Version)
		g.Row("license", st.License)
		g.Row("registry", st.RegistryStatus)
		g.Row("registry address", st.RegistryAddress)
		if diskErr == nil {
			g.Row("registry disk", bytesize.Format(disk.Free)+" of "+bytesize.Format(disk.Total)+" free")
		}
		if st.Maintenance != nil {
			g.Row("maintenance", "on "+st.Maintenance.Reason)
		}
		for _, alarm := range st.Alarms {
			g.Row("alarm", alarm)
		}
		for _, outage := range st.Outages {
			g.Row("outage", outageText(outage))
		}
	})
	if err != nil {
		return err
	}
	return check(got.value)
}

// outageText describes an outage: "200 of 400 nodes Offline (no contact) since ..., all of group ci, ...".
func outageText(o api.Outage) string {
	text := fmt.Sprintf("%d of %s %s", o.Nodes, cli.Plural(o.Of, "node"), o.State)
	if o.Reason != "" {
		text += " (" + cli.EscapeName(o.Reason) + ")"
	}
	text += " since " + timeText(o.FirstContactLost)
	if len(o.Groups) > 0 && o.Groups[0].Nodes == o.Nodes {
		text += ", in group " + cli.EscapeName(o.Groups[0].Name)
	}
	if o.AddressPrefix != "" {
		text += ", addresses in " + o.AddressPrefix
	}
	if o.Instances > 0 {
		text += ", " + cli.Plural(o.Instances, "instance")
	}
	if !o.ErrorAt.IsZero() {
		text += fmt.Sprintf(", %d to Error from %s", o.InstancesAtRisk, timeText(o.ErrorAt))
	}
	return text
}

// serviceProblem returns the error of a service that does not run.
func serviceProblem(st api.ControllerStatus) error {
	switch {
	case st.Status != serviceRunning:
		return cli.Exit(cli.ExitUnreachable, fmt.Errorf("controller status is %s; see its log", st.Status))
	case st.RegistryStatus != serviceRunning:
		return cli.Exit(cli.ExitUnreachable, fmt.Errorf(
			"the controller cannot use the registry at %s (status %s); check that it runs: \"buildyard doctor\"",
			st.RegistryAddress, st.RegistryStatus))
	}
	return nil
}

// statusProblem is serviceProblem, or the error of a cloud that has alarms.
func statusProblem(st api.ControllerStatus) error {
	if err := serviceProblem(st); err != nil || len(st.Alarms) == 0 {
		return err
	}
	return cli.Exit(cli.ExitFailed, fmt.Errorf("%s active", cli.Plural(len(st.Alarms), "alarm")))
}

// statusInterval is the time between two calls of a command that waits for the services.
const statusInterval = 250 * time.Millisecond

// awaitRunning waits until controller and registry run. When the wait ends before, the error has the last failure.
func (a *Command) awaitRunning(ctx context.Context) error {
	var last error
	for {
		st, err := a.API.Status(ctx)
		if err == nil {
			err = serviceProblem(st)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && last == nil:
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %s", context.Cause(ctx), last.Error()) // without the exit code of last
		case !mayRunLater(err):
			return err
		}
		last = advise(err, a.target())

		select {
		case <-ctx.Done():
		case <-time.After(statusInterval):
		}
	}
}

// mayRunLater reports whether a service may run later although a call has failed. A certificate that is not trusted
// stays so.
func mayRunLater(err error) bool {
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
		return false
	}
	return cli.CodeOf(err) == cli.ExitUnreachable || errors.Is(err, client.ErrUnreachable) ||
		errors.Is(err, client.ErrUnavailable)
}
