package cloud

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
)

// statsOptions are the options of stats that show a history.
type statsOptions struct {
	over, node, group string
}

func statsCommand(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o statsOptions
	cmd := a.Add(&cobra.Command{
		Use: "stats", Short: "Show cloud statistics", Args: cobra.NoArgs, GroupID: CommandGroup,
		Long: `stats shows the number of instances and nodes in each state, the capacity and the queue times.

With --range it shows a history instead, a row for each step that was measured: of the cloud, or with
--node or --group of a node or the nodes of a group. That of a node begins with the start of the
controller.`,
		Example: `  buildyard stats -o json | jq .queue_depth
  buildyard stats --range 24h --group ci`,
	}, func(cmd *cobra.Command, _ []string) error {
		if o != (statsOptions{}) {
			return a.showSeries(cmd.Context(), o)
		}
		got, err := callAPI(cmd.Context(), a.API.Stats)
		if err != nil {
			return err
		}
		return printOne(&a, got, "", statsRows)
	})
	cmd.Flags().StringVar(&o.over, "range", "",
		"show the history of 1h (default with --node or --group), 6h, 24h or 7d")
	cmd.Flags().StringVar(&o.node, "node", "", "show the history of this node")
	cmd.Flags().StringVar(&o.group, "group", "", "show the history of the nodes of this group")
	cmd.MarkFlagsMutuallyExclusive("node", "group")
	_ = cmd.RegisterFlagCompletionFunc("range", cobra.FixedCompletions(
		[]string{api.RangeHour, api.RangeQuarter, api.RangeDay, api.RangeWeek}, cobra.ShellCompDirectiveNoFileComp))
	nodes.completeFlag(cmd, "node")
	groups.completeFlag(cmd, "group")
	return cmd
}

func statsRows(g *cli.Grid, st api.ControllerStats) {
	g.Row("capacity used", st.CapacityUsed, "of", st.Capacity)
	g.Row("slots", st.Slots.Capacity, "free", st.Slots.Free)
	g.Row("slots of running instances", st.Slots.Running, "failed", st.Slots.Failed)
	g.Row("slots of orphaned VMs", st.Slots.Orphaned, "other", st.Slots.Other)
	g.Row("pending", st.QueueDepth, "oldest", secondsText(st.OldestWait))
	g.Row("average queue time", secondsText(st.AverageQueueTime))
	g.Row("starts in the last hour", st.StartsLastHour, "failed", st.FailuresLastHour)
	g.Row("terminations in the last hour", st.TerminationsLastHour)
	for _, state := range slices.Sorted(maps.Keys(st.Instances)) {
		putRow(g, "instances "+state, st.Instances[state])
	}
	for _, state := range slices.Sorted(maps.Keys(st.Nodes)) {
		putRow(g, "nodes "+state, st.Nodes[state])
	}
	g.Row("controller uptime", secondsText(st.Uptime))
}

// showSeries prints a history.
func (a *Command) showSeries(ctx context.Context, o statsOptions) error {
	if o.over == "" {
		o.over = api.RangeHour
	}
	call := func(ctx context.Context) (api.Series, error) { return a.API.Series(ctx, o.over) }
	switch {
	case o.node != "":
		id, err := nodes.find(ctx, a.API, o.node)
		if err != nil {
			return err
		}
		call = func(ctx context.Context) (api.Series, error) { return a.API.NodeSeries(ctx, o.over, id) }
	case o.group != "":
		id, err := groups.find(ctx, a.API, o.group)
		if err != nil {
			return err
		}
		call = func(ctx context.Context) (api.Series, error) { return a.API.GroupSeries(ctx, o.over, id) }
	}
	got, err := callAPI(ctx, call)
	if err != nil {
		return err
	}
	return printOne(a, got, "", func(g *cli.Grid, s api.Series) {
		g.Row("TIME", "RUNNING", "SLOTS", "CAPACITY", "ACTIVE", "OFFLINE", "PENDING", "STARTS", "FAILED", "START P95",
			"CPU")
		for _, p := range s.Points {
			g.Row(timeText(p.Time), p.Running, orDash(p.SlotsUsed), orDash(p.Capacity), orDash(p.ActiveNodes),
				orDash(p.OfflineNodes), p.Queue, p.Starts, p.Failures, secondsOrDash(p.StartP95), orDash(p.CPUUtil))
		}
	})
}

func usageCommand(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var by, over string
	cmd := a.Add(&cobra.Command{
		Use: "usage", Short: "Show the usage by group, owner or template", Args: cobra.NoArgs, GroupID: CommandGroup,
		Long: `usage shows the hours in which instances ran, their starts and failures, and how long they waited, by
group, owner or template: those with the most hours first. The row "other" sums up those with little usage.`,
		Example: `  buildyard usage
  buildyard usage --by template --range 7d
  buildyard usage --by owner -o json | jq '.rows[] | [.name, .instance_hours]'`,
	}, func(cmd *cobra.Command, _ []string) error {
		got, err := callAPI(cmd.Context(),
			func(ctx context.Context) (api.UsageReport, error) { return a.API.UsageReport(ctx, by, over) })
		if err != nil {
			return err
		}
		return printOne(&a, got, "", func(g *cli.Grid, r api.UsageReport) {
			g.Row("NAME", "HOURS", "STARTS", "FAILED", "QUEUE P95", "START P95", "KEY")
			for _, row := range r.Rows {
				g.Row(cmp.Or(row.Name, row.Key, "-"), row.InstanceHours, row.Starts, row.Failures,
					secondsOrDash(row.QueueP95), secondsOrDash(row.StartP95), row.Key)
			}
		})
	})
	cmd.Flags().StringVar(&by, "by", api.ByGroup, "group, owner or template")
	cmd.Flags().StringVar(&over, "range", api.RangeDay, "24h or 7d")
	for flag, values := range map[string][]string{
		"by": {api.ByGroup, api.ByOwner, api.ByTemplate}, "range": {api.RangeDay, api.RangeWeek},
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

// orDash returns a number for a table; "-" for one that was not measured.
func orDash(n *float64) any {
	if n == nil {
		return "-"
	}
	return *n
}

func secondsOrDash(n *float64) string {
	if n == nil {
		return "-"
	}
	return secondsText(*n)
}

// secondsText formats a time that the API returns in seconds.
func secondsText(n float64) string {
	return time.Duration(n * float64(time.Second)).Round(time.Millisecond).String()
}
