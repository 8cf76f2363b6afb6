package cloud

import (
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
)

func statsCommand(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	return a.Add(&cobra.Command{
		Use: "stats", Short: "Show cloud statistics", Args: cobra.NoArgs, GroupID: CommandGroup,
		Long:    `stats shows the number of instances and nodes in each state, the capacity and the queue times.`,
		Example: `  buildyard stats -o json | jq .queue_depth`,
	}, func(cmd *cobra.Command, _ []string) error {
		got, err := callAPI(cmd.Context(), a.API.Stats)
		if err != nil {
			return err
		}
		return printOne(&a, got, "", func(g *cli.Grid, st api.ControllerStats) {
			g.Row("capacity used", st.CapacityUsed, "of", st.Capacity)
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
		})
	})
}

// secondsText formats a time that the API returns in seconds.
func secondsText(n float64) string {
	return time.Duration(n * float64(time.Second)).Round(time.Millisecond).String()
}
