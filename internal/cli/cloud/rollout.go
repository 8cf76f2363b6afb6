package cloud

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
)

// rolloutInterval is how often a waiting command asks for the state of a rollout.
const rolloutInterval = time.Second

// The states of a rollout that a waiting command distinguishes.
const (
	rolloutRunning   = "Running"
	rolloutCompleted = "Completed"
)

// RolloutCommand returns the command for rollouts of agent packages.
func RolloutCommand(s cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use:   "rollout",
		Short: "Roll out agent packages in batches",
		Long: `rollout updates the agents of all nodes to the packages of the controller, a batch at a time. Nodes of
canary groups come first. An Offline node takes no slot and follows when it is back. The rollout stops
automatically when more nodes have failed than --max-failures allows: an update failed, or a node went
Offline during its update or afterwards.

While there is a rollout of a package, nodes do not install that package automatically.`,
		Example: `  buildyard package rollout start --canary test --canary-wait 10m --batch 10% --wait
  buildyard package rollout status
  buildyard package rollout pause --reason "release day"
  buildyard package rollout resume`,
	}, rolloutStart(s), rolloutStatus(s),
		rolloutChange(s, "pause", "Pause the rollout", "pause begins no further updates. Those that continue end."),
		rolloutChange(s, "resume", "Resume the rollout",
			"resume continues a rollout that was paused or has stopped. Nodes whose update has failed try again; the "+
				"failures until\nthen no longer count."),
		rolloutChange(s, "abort", "Abort the rollout",
			"abort ends the rollout and the updates that continue. Nodes that were updated stay so."))
}

func rolloutStart(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var r api.StartRollout
	var canaryWait time.Duration
	batch := "10%"
	var w waitOptions
	cmd := a.Add(&cobra.Command{
		Use: "start", Short: "Start a rollout", Args: cobra.NoArgs,
		Long: `start begins a rollout of the present packages. With --wait the command waits until every node that is in
contact is updated; it fails if the rollout stops.`,
		Example: `  buildyard package rollout start --batch 5 --wait --timeout 2h
  buildyard package rollout start --canary test --canary-wait 30m --max-failures 2`,
	}, func(cmd *cobra.Command, _ []string) error {
		if err := parseBatch(batch, &r); err != nil {
			return cli.Usage(err)
		}
		if canaryWait != 0 {
			r.CanaryWait = canaryWait.String()
		}
		return a.showRollout(cmd.Context(), &w,
			func(ctx context.Context) (api.AgentRollout, error) { return a.API.StartRollout(ctx, r) })
	})
	fs := cmd.Flags()
	fs.StringSliceVar(&r.CanaryGroups, "canary", nil, "node groups whose nodes come first, by name or ID")
	fs.DurationVar(&canaryWait, "canary-wait", 0, "time that the canary nodes must be Active before the others follow")
	fs.StringVar(&batch, "batch", batch, "nodes that update at a time: a number, or a share of those in contact")
	fs.IntVar(&r.MaxFailures, "max-failures", 0, "number of failed nodes with which the rollout continues")
	w.addWaitFlags(cmd, "until the rollout has ended")
	return cmd
}

// parseBatch reads a number of nodes, or a share such as 10%.
func parseBatch(text string, r *api.StartRollout) error {
	number, isShare := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(number)
	switch {
	case err != nil || n < 1 || isShare && n > 100:
		return fmt.Errorf("invalid --batch %q: want a number of nodes such as 5, or a share such as 10%%", text)
	case isShare:
		r.BatchPercent = n
	default:
		r.BatchNodes = n
	}
	return nil
}

func rolloutStatus(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var w waitOptions
	cmd := a.Add(&cobra.Command{
		Use: "status", Short: "Show the rollout", Args: cobra.NoArgs,
		Long: `status shows the last rollout and how far each node is: pending, offline, updating, updated, failed, lost
(its node went Offline during its update or afterwards), or skipped (no package for its platform).`,
		Example: `  buildyard package rollout status
  buildyard package rollout status -o json | jq .counts`,
	}, func(cmd *cobra.Command, _ []string) error { return a.showRollout(cmd.Context(), &w, a.API.Rollout) })
	w.addWaitFlags(cmd, "until the rollout has ended")
	return cmd
}

func rolloutChange(s cli.Streams, action, short, long string) *cobra.Command {
	a := Command{Streams: s}
	r := api.ChangeRollout{Action: action}
	cmd := a.Add(&cobra.Command{
		Use: action, Short: short, Args: cobra.NoArgs, Long: long,
		Example: "  buildyard package rollout " + action,
	}, func(cmd *cobra.Command, _ []string) error {
		return a.showRollout(cmd.Context(), &waitOptions{},
			func(ctx context.Context) (api.AgentRollout, error) { return a.API.ChangeRollout(ctx, r) })
	})
	cmd.Flags().StringVar(&r.Reason, "reason", "", "reason, shown with the rollout")
	return cmd
}

// showRollout makes a call and prints the rollout, after it has ended if that is requested.
func (a *Command) showRollout(
	ctx context.Context, w *waitOptions, do func(context.Context) (api.AgentRollout, error),
) error {
	got, err := callAPI(ctx, do)
	if errors.Is(err, client.ErrNotFound) {
		return cli.Exit(cli.ExitNotFound,
			errors.New("there was no rollout; start one with: buildyard package rollout start"))
	}
	if err == nil && w.wait {
		err = w.waitWithTimeout(ctx, "the rollout continues", func(ctx context.Context) error {
			var err error
			got, err = a.awaitRollout(ctx, got)
			return err
		})
	}
	if err != nil {
		return err
	}
	if err := printOne(a, got, got.value.ID, rolloutDetails); err != nil {
		return err
	}
	if r := got.value; w.wait && r.State != rolloutCompleted {
		return fmt.Errorf("the rollout is %s: %s", r.State, cli.EscapeName(r.Reason))
	}
	return nil
}

// awaitRollout waits until a rollout is no longer running.
func (a *Command) awaitRollout(
	ctx context.Context, got response[api.AgentRollout],
) (response[api.AgentRollout], error) {
	m := newProgressMeter(a.Err)
	m.expectItems(got.value.ID)
	defer m.end()
	for got.value.State == rolloutRunning {
		r := got.value
		total := max(1, len(r.Nodes)-r.Counts["offline"]-r.Counts["skipped"])
		m.updateItem(r.ID, fmt.Sprintf("%d of %d updated", r.Counts["updated"], total),
			float64(r.Counts["updated"])/float64(total))
		select {
		case <-time.After(rolloutInterval):
		case <-ctx.Done():
			return got, context.Cause(ctx)
		}
		next, err := callAPI(ctx, a.API.Rollout)
		if err != nil {
			return got, err
		}
		got = next
	}
	return got, nil
}

func rolloutDetails(g *cli.Grid, r api.AgentRollout) {
	g.Row("state", r.State)
	putRow(g, "reason", r.Reason)
	for _, p := range r.Packages {
		g.Row("package", p.OS+"/"+p.Arch, p.Version)
	}
	g.Row("started", timeText(r.Started))
	putRow(g, "started by", r.StartedBy)
	g.Row("nodes", rolloutCounts(r))
	for _, n := range r.Nodes {
		name := n.NodeName
		if n.Canary {
			name += " (canary)"
		}
		g.Row(name, n.Stage, n.AgentVersion, n.Reason)
	}
}

// rolloutCounts returns the numbers of nodes by stage as a text.
func rolloutCounts(r api.AgentRollout) string {
	var list []string
	for _, stage := range []string{"updated", "updating", "pending", "offline", "failed", "lost", "skipped"} {
		if n := r.Counts[stage]; n > 0 {
			list = append(list, fmt.Sprintf("%d %s", n, stage))
		}
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}
