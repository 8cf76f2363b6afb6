package cloud

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
)

func eventCommand(s cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use: "event", Aliases: []string{"events"}, GroupID: CommandGroup,
		Short: "List or watch events",
		Long:  `event shows the events of the cloud: starts, terminations, distributions, node changes.`,
		Example: `  buildyard event list --filter 'name:VMFailedToStart age<1h'
  buildyard event watch`,
	}, eventList(s), eventWatch(s))
}

var eventView = tableView[client.Event]{
	itemID: func(e client.Event) string { return e.ID },
	columns: []column[client.Event]{
		{title: "TIME", value: func(e client.Event) any { return time.Unix(e.Time, 0).Local().Format(time.DateTime) }},
		{title: "EVENT", value: func(e client.Event) any { return e.Name }},
		{title: "TYPE", value: func(e client.Event) any { return e.Type }, wideOnly: true},
		{title: "INSTANCE", value: func(e client.Event) any { return e.InstanceID }},
		{title: "DETAILS", value: eventDetails},
	},
}

// commonEventFields are the fields that every event has.
var commonEventFields = []string{"id", "name", "type", "sub_type", "time", "instance_id", "machineName"}

func eventDetails(e client.Event) any {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(e.All)) {
		value := e.All[key]
		if slices.Contains(commonEventFields, key) || value == nil || value == "" {
			continue
		}
		out = append(out, fmt.Sprint(key, "=", value))
	}
	return strings.Join(out, " ")
}

func eventList(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listOptions
	cmd := a.addForItems(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the newest events", Args: cobra.NoArgs,
		Long:    `list shows the newest events (default: 100, see --limit), the oldest first.`,
		Example: `  buildyard event list --limit 1000 --filter template:0197e1c2*`,
	}, func(cmd *cobra.Command, _ []string) error {
		look := func(ctx context.Context) ([]client.Event, error) {
			return a.API.Events(ctx, client.EventQuery{Filter: o.Filter, After: o.After, Limit: o.Limit})
		}
		return showItems(cmd.Context(), &a, &o, eventView, look)
	})
	o.add(cmd, "filter", "limit", "after")
	return cmd
}

func eventWatch(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listOptions
	cmd := a.addForItems(&cobra.Command{
		Use: "watch", Short: "Watch events", Args: cobra.NoArgs,
		Long: `watch shows new events, or those after the event --after, until it is interrupted. With -o json it
prints one object per line.`,
		Example: `  buildyard event watch -o json | jq -r 'select(.name=="VMFailedToStart") | .instance_id'`,
	}, func(cmd *cobra.Command, _ []string) error { return a.listEvents(cmd.Context(), o) })
	o.add(cmd, "filter", "after")
	return cmd
}

func (a *Command) listEvents(ctx context.Context, o listOptions) error {
	watch := client.EventWatch{Filter: o.Filter, After: o.After, OnInterrupt: a.reportInterrupt}
	for e, err := range a.API.WatchEvents(ctx, watch) {
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		switch a.Output {
		case cli.JSON, cli.YAML:
			raw, err := json.Marshal(e.All)
			if err != nil {
				return err
			}
			if err := a.printDocument(json.RawMessage(raw)); err != nil {
				return err
			}
		case cli.Name:
			if _, err := fmt.Fprintln(a.Out, cli.EscapeName(e.ID)); err != nil {
				return err
			}
		default:
			row := eventView.cells(a.Output, e)
			if err := a.printRows([][]string{row}, eventWidths); err != nil {
				return err
			}
		}
	}
	return nil
}

// eventWidths are the widths of the columns of watched events.
var eventWidths = []int{19, 25, 36, 36, 0}
