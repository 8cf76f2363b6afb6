package cloud

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
)

func groupCommand(s cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use: "group", Aliases: []string{"groups"}, GroupID: CommandGroup,
		Short: "Manage node groups",
		Long: `group manages node groups. An instance that is started in a group runs on a node of the group, or of
its fallback group when the group is full. "buildyard node group" assigns nodes to groups.`,
		Example: `  buildyard group create ci --fallback spare
  buildyard node group add mac-03 ci`,
	}, groupList(s), groupCreate(s), groupUpdate(s), groupDelete(s))
}

var groupView = tableView[api.Group]{
	itemID: func(g api.Group) string { return g.ID },
	columns: []column[api.Group]{
		{title: "ID", value: func(g api.Group) any { return g.ID }},
		{title: "NAME", value: func(g api.Group) any { return g.Name }},
		{title: "FALLBACK", value: func(g api.Group) any {
			if g.FallbackGroupID == nil {
				return ""
			}
			return *g.FallbackGroupID
		}},
		{title: "DESCRIPTION", value: func(g api.Group) any { return g.Description }},
	},
}

func groupList(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listOptions
	cmd := a.addForItems(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List node groups", Args: cobra.NoArgs,
		Long:    `list shows the node groups.`,
		Example: `  buildyard group list -o yaml`,
	}, func(cmd *cobra.Command, _ []string) error {
		look := func(ctx context.Context) ([]api.Group, error) { return a.API.Groups(ctx, o.ListOptions) }
		return showItems(cmd.Context(), &a, &o, groupView, look)
	})
	o.add(cmd, "filter", "watch")
	return cmd
}

// findFallbackGroup finds the group of a flag; "none" removes the fallback.
func (a *Command) findFallbackGroup(ctx context.Context, text string) (string, error) {
	if text == "" || text == client.NoFallback {
		return text, nil
	}
	return groups.find(ctx, a.API, text)
}

func groupCreate(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var description, fallback string
	cmd := a.addForItems(&cobra.Command{
		Use: "create NAME", Short: "Create a node group", Args: cobra.ExactArgs(1),
		Long:    `create creates a node group and shows it.`,
		Example: `  buildyard group create ci --description "build machines" --fallback spare`,
	}, func(cmd *cobra.Command, args []string) error {
		id, err := a.findFallbackGroup(cmd.Context(), fallback)
		if err != nil {
			return err
		}
		r := client.GroupRequest{Name: args[0], FallbackID: id, IdempotencyKey: client.NewKey()}
		if description != "" {
			r.Description = &description
		}
		got, err := callAPI(cmd.Context(),
			func(ctx context.Context) (api.Group, error) { return a.API.CreateGroup(ctx, r) })
		if err != nil {
			return err
		}
		return printOne(&a, got, got.value.ID, func(g *cli.Grid, group api.Group) {
			printDetails(g, groupView, group)
		})
	})
	cmd.Flags().StringVar(&description, "description", "", "description of the group")
	cmd.Flags().StringVar(&fallback, "fallback", "", "fallback group for a full group")
	groups.completeFlag(cmd, "fallback")
	return cmd
}

func groupUpdate(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var r client.GroupRequest
	var description, fallback string
	cmd := a.Add(&cobra.Command{
		Use: "update GROUP", Short: "Update a node group", Args: cobra.ExactArgs(1),
		Long:              `update changes the given fields of a node group; --fallback none removes the fallback.`,
		Example:           `  buildyard group update ci --fallback none`,
		ValidArgsFunction: groups.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) (err error) {
		if cmd.Flags().Changed("description") {
			if description == "" {
				description = " " // for the API "" is not given, and a blank is none
			}
			r.Description = &description
		}
		if r.FallbackID, err = a.findFallbackGroup(cmd.Context(), fallback); err != nil {
			return err
		}
		if r == (client.GroupRequest{}) {
			return cli.Usage(errors.New("no change given; at least one option is required"))
		}
		return a.runOnItem(cmd.Context(), groups, args[0], "changed", func(ctx context.Context, id string) error {
			return a.API.UpdateGroup(ctx, id, r)
		})
	})
	cmd.Flags().StringVar(&r.Name, "name", "", "name")
	cmd.Flags().StringVar(&description, "description", "", "description of the group")
	cmd.Flags().StringVar(&fallback, "fallback", "", "fallback group for a full group; none: no fallback")
	groups.completeFlag(cmd, "fallback")
	return cmd
}

func groupDelete(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var yes cli.Confirmation
	cmd := a.Add(&cobra.Command{
		Use: "delete GROUP...", Aliases: []string{"rm"}, Short: "Delete node groups", Args: cobra.MinimumNArgs(1),
		Long:              `delete removes node groups. Their nodes remain; pending instances of the groups end in Error.`,
		Example:           `  buildyard group delete ci --yes`,
		ValidArgsFunction: groups.completeArgs(0),
	}, func(cmd *cobra.Command, args []string) error {
		ids, err := groups.findAll(cmd.Context(), a.API, args)
		if err != nil {
			return err
		}
		if err := yes.Ask(cmd.Context(), a.Streams, "Delete the node groups %s?",
			strings.Join(args, ", ")); err != nil {
			return err
		}
		return a.printResults(runOnEach(cmd.Context(), ids, "deleted", func(ctx context.Context, id string) error {
			return groups.nameNotFound(a.API.DeleteGroup(ctx, id), id)
		}))
	})
	yes.Add(cmd)
	return cmd
}
