package cloud

import (
	"cmp"
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
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/farm"
)

func poolCommand(s cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use: "pool", Aliases: []string{"pools"}, GroupID: CommandGroup,
		Short: "Manage warm pools",
		Long: `pool manages warm pools. A pool keeps VMs of a template version running ahead, the standbys. A start of the
version that fits claims one and need not wait for a boot. Standbys use slots; where a request finds no
free slot, a standby ends for it.`,
		Example: `  buildyard pool create nightly debian:v12 --min-idle 4 --max-age 12h
  buildyard pool show nightly`,
	}, poolList(s), poolShow(s), poolCreate(s), poolUpdate(s), poolDelete(s))
}

var poolView = tableView[api.Pool]{
	itemID: func(p api.Pool) string { return p.ID },
	columns: []column[api.Pool]{
		{title: "ID", value: func(p api.Pool) any { return p.ID }},
		{title: "NAME", value: func(p api.Pool) any { return p.Name }},
		{title: "TEMPLATE", value: func(p api.Pool) any {
			return templateTag(cmp.Or(p.TemplateName, p.TemplateID), p.Tag)
		}},
		{title: "READY", value: func(p api.Pool) any { return fmt.Sprintf("%d of %d", p.Ready, p.Wanted) }},
		{title: "BOOTING", value: func(p api.Pool) any { return p.Booting }},
		{title: "HITS", value: func(p api.Pool) any { return p.Stats.Hits + p.Stats.EarlyHits }},
		{title: "MISSES", value: func(p api.Pool) any { return p.Stats.Misses }},
		{title: "SLOT HOURS", value: func(p api.Pool) any { return fmt.Sprintf("%.1f", p.Stats.SlotHours) }},
		{title: "SAVED", value: func(p api.Pool) any {
			return time.Duration(p.Stats.SavedSeconds * float64(time.Second)).Round(time.Second).String()
		}},
		{title: "GROUP", wideOnly: true, value: func(p api.Pool) any {
			if p.GroupID == nil {
				return ""
			}
			return *p.GroupID
		}},
		{title: "PROBLEM", wideOnly: true, value: func(p api.Pool) any { return p.Problem }},
	},
}

func poolList(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listOptions
	cmd := a.addForItems(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List warm pools", Args: cobra.NoArgs,
		Long: `list shows the pools, how many standbys are ready of those wanted now, how many starts claimed one (hits) and
how many found none (misses), what the standbys cost in slot hours, and the time that claims saved.`,
		Example: `  buildyard pool list -o wide`,
	}, func(cmd *cobra.Command, _ []string) error {
		look := func(ctx context.Context) ([]api.Pool, error) { return a.API.Pools(ctx, o.ListOptions) }
		return showItems(cmd.Context(), &a, &o, poolView, look)
	})
	o.add(cmd, "filter", "watch")
	return cmd
}

func poolShow(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	return a.addForItems(&cobra.Command{
		Use: "show POOL", Aliases: []string{"get"}, Short: "Show a warm pool", Args: cobra.ExactArgs(1),
		Long:              `show shows a pool with its standbys.`,
		Example:           `  buildyard pool show nightly`,
		ValidArgsFunction: pools.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		id, err := pools.find(cmd.Context(), a.API, args[0])
		if err != nil {
			return err
		}
		got, err := callAPI(cmd.Context(),
			func(ctx context.Context) (api.Pool, error) { return a.API.Pool(ctx, id) })
		if err != nil {
			return pools.nameNotFound(err, args[0])
		}
		return printOne(&a, got, got.value.ID, printPool)
	})
}

func printPool(g *cli.Grid, p api.Pool) {
	printDetails(g, poolView, p)
	for _, w := range p.Schedule {
		g.Row("window", farm.PoolWindow(w).String())
	}
	putRow(g, "standbys otherwise", strconv.Itoa(p.MinIdle))
	putRow(g, "time zone", p.TimeZone)
	if p.MaxAge > 0 {
		g.Row("maximum age", (time.Duration(p.MaxAge) * time.Second).String())
	}
	putRow(g, "early hits", p.Stats.EarlyHits)
	putRow(g, "yielded", p.Stats.Yielded)
	putRow(g, "replaced", p.Stats.Replaced)
	putRow(g, "failed", p.Stats.Failed)
	for _, b := range p.Standbys {
		g.Row("standby", strings.TrimSpace(b.InstanceID+" "+b.State+" "+b.NodeName+" "+b.Message))
	}
}

// poolFlags are the options of a pool that is created or changed.
type poolFlags struct {
	Command
	minIdle  int
	group    string
	maxAge   string
	timeZone string
	windows  []string
}

func (o *poolFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.IntVar(&o.minIdle, "min-idle", 1, "standbys while no window of the schedule applies")
	fs.StringVar(&o.group, "group", "", "node group of the starts that it is for; none: starts without a group")
	fs.StringVar(&o.maxAge, "max-age", "", "replace standbys of this age, such as 12h or 2d; 0: never")
	fs.StringVar(&o.timeZone, "time-zone", "", "time zone of the windows, such as Europe/Berlin; default UTC")
	fs.StringArrayVar(&o.windows, "window", nil,
		"other number for a time, such as mon-fri@08:00-18:00=10; repeatable; none: no windows")
	groups.completeFlag(cmd, "group")
}

// request returns the request with the options that were given.
func (o *poolFlags) request(cmd *cobra.Command) (r client.PoolRequest, err error) {
	given := cmd.Flags().Changed
	if given("group") && o.group != client.NoGroup {
		if r.GroupID, err = groups.find(cmd.Context(), o.API, o.group); err != nil {
			return r, err
		}
	} else {
		r.GroupID = o.group
	}
	if given("min-idle") {
		r.MinIdle = &o.minIdle
	}
	if given("max-age") {
		age, err := config.ParseDays(o.maxAge)
		if err != nil || age < 0 {
			return r, cli.Usage(fmt.Errorf("invalid --max-age %q: want a duration such as 12h or 2d", o.maxAge))
		}
		seconds := int64(age / time.Second)
		r.MaxAge = &seconds
	}
	if given("time-zone") {
		r.TimeZone = &o.timeZone
	}
	if given("window") {
		list := []api.PoolWindow{}
		for _, text := range o.windows {
			if text == "none" {
				continue
			}
			w, err := farm.ParsePoolWindow(text)
			if err != nil {
				return r, cli.Usage(fmt.Errorf("--window: %w", err))
			}
			list = append(list, api.PoolWindow(w))
		}
		r.Schedule = &list
	}
	return r, nil
}

func poolCreate(s cli.Streams) *cobra.Command {
	o := poolFlags{Command: Command{Streams: s}}
	cmd := o.addForItems(&cobra.Command{
		Use: "create NAME TEMPLATE[:TAG]", Short: "Create a warm pool", Args: cobra.ExactArgs(2),
		Long: `create creates a pool and shows it. Without a tag it follows the newest version: a new one replaces the
standbys. Each --window has another number of standbys for a time of the week; the first that applies
decides.`,
		Example: `  buildyard pool create nightly debian:v12 --min-idle 4 --max-age 12h
  buildyard pool create day debian --min-idle 0 --window mon-fri@08:00-18:00=10 --time-zone Europe/Berlin`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
			if len(args) != 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeVersions(cmd, nil, text)
		},
	}, func(cmd *cobra.Command, args []string) error {
		r, err := o.request(cmd)
		if err != nil {
			return err
		}
		if r.GroupID == client.NoGroup {
			r.GroupID = ""
		}
		var tag string
		if r.TemplateID, tag, err = o.findTemplate(cmd.Context(), args[1]); err != nil {
			return err
		}
		if tag != "" {
			r.Tag = &tag
		}
		r.Name, r.MinIdle, r.IdempotencyKey = args[0], &o.minIdle, client.NewKey()
		got, err := callAPI(cmd.Context(),
			func(ctx context.Context) (api.Pool, error) { return o.API.CreatePool(ctx, r) })
		if err != nil {
			return err
		}
		return printOne(&o.Command, got, got.value.ID, printPool)
	})
	o.add(cmd)
	return cmd
}

func poolUpdate(s cli.Streams) *cobra.Command {
	o := poolFlags{Command: Command{Streams: s}}
	var name, tag string
	cmd := o.Add(&cobra.Command{
		Use: "update POOL", Aliases: []string{"change"}, Short: "Update a warm pool", Args: cobra.ExactArgs(1),
		Long: `update changes the given fields of a pool. Standbys that no longer fit end, and others boot. --tag "" follows
the newest version.`,
		Example: `  buildyard pool update nightly --min-idle 8
  buildyard pool update nightly --tag v13`,
		ValidArgsFunction: pools.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		r, err := o.request(cmd)
		if err != nil {
			return err
		}
		r.Name = name
		if cmd.Flags().Changed("tag") {
			r.Tag = &tag
		}
		if r == (client.PoolRequest{}) {
			return cli.Usage(errors.New("no change given; at least one option is required"))
		}
		return o.runOnItem(cmd.Context(), pools, args[0], "changed", func(ctx context.Context, id string) error {
			return o.API.UpdatePool(ctx, id, r)
		})
	})
	o.add(cmd)
	cmd.Flags().StringVar(&name, "name", "", "name")
	cmd.Flags().StringVar(&tag, "tag", "", "tag of the version; \"\": the newest version")
	return cmd
}

func poolDelete(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var yes cli.Confirmation
	cmd := a.Add(&cobra.Command{
		Use: "delete POOL...", Aliases: []string{"rm"}, Short: "Delete warm pools", Args: cobra.MinimumNArgs(1),
		Long:              `delete removes pools. Their standbys end; instances that were standbys continue.`,
		Example:           `  buildyard pool delete nightly --yes`,
		ValidArgsFunction: pools.completeArgs(0),
	}, func(cmd *cobra.Command, args []string) error {
		ids, err := pools.findAll(cmd.Context(), a.API, args)
		if err != nil {
			return err
		}
		if err := yes.Ask(cmd.Context(), a.Streams, "Delete the pools %s?", strings.Join(args, ", ")); err != nil {
			return err
		}
		return a.printResults(runOnEach(cmd.Context(), ids, "deleted", func(ctx context.Context, id string) error {
			return pools.nameNotFound(a.API.DeletePool(ctx, id), id)
		}))
	})
	yes.Add(cmd)
	return cmd
}
