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
		Use: "group", Aliases: []string{"groups"}, GroupID: Group,
		Short: "Node groups",
		Long: `group makes and changes groups of nodes. An instance that is started in a group runs on one of
its nodes; when they are full it goes to the group's fallback. "buildyard node group" puts
nodes into groups.`,
		Example: `  buildyard group create ci --fallback spare
  buildyard node group add mac-03 ci`,
	}, groupList(s), groupCreate(s), groupUpdate(s), groupDelete(s))
}

var groupView = view[api.Group]{
	id: func(g api.Group) string { return g.ID },
	columns: []column[api.Group]{
		{head: "ID", cell: func(g api.Group) any { return g.ID }},
		{head: "NAME", cell: func(g api.Group) any { return g.Name }},
		{head: "FALLBACK", cell: func(g api.Group) any {
			if g.FallbackGroupID == nil {
				return ""
			}
			return *g.FallbackGroupID
		}},
		{head: "DESCRIPTION", cell: func(g api.Group) any { return g.Description }},
	},
}

func groupList(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listing
	cmd := a.addAll(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the node groups", Args: cobra.NoArgs,
		Long:    `list shows the node groups.`,
		Example: `  buildyard group list -o yaml`,
	}, func(cmd *cobra.Command, _ []string) error {
		look := func(ctx context.Context) ([]api.Group, error) { return a.API.Groups(ctx, o.ListOptions) }
		return show(cmd.Context(), &a, &o, groupView, look)
	})
	o.add(cmd, "filter", "watch")
	return cmd
}

// fallback finds the group that a flag names; "none" removes the fallback.
func (a *Command) fallback(ctx context.Context, text string) (string, error) {
	if text == "" || text == client.NoFallback {
		return text, nil
	}
	return groups.find(ctx, a.API, text)
}

func groupCreate(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var description, fallback string
	cmd := a.addAll(&cobra.Command{
		Use: "create NAME", Short: "Make a node group", Args: cobra.ExactArgs(1),
		Long:    `create makes a node group and shows it.`,
		Example: `  buildyard group create ci --description "build machines" --fallback spare`,
	}, func(cmd *cobra.Command, args []string) error {
		id, err := a.fallback(cmd.Context(), fallback)
		if err != nil {
			return err
		}
		r := client.GroupRequest{Name: args[0], FallbackID: id, IdempotencyKey: client.NewKey()}
		if description != "" {
			r.Description = &description
		}
		got, err := ask(cmd.Context(), func(ctx context.Context) (api.Group, error) { return a.API.CreateGroup(ctx, r) })
		if err != nil {
			return err
		}
		return single(&a, got, got.value.ID, func(g *cli.Grid, group api.Group) {
			details(g, groupView, group)
		})
	})
	cmd.Flags().StringVar(&description, "description", "", "what it is for")
	cmd.Flags().StringVar(&fallback, "fallback", "", "group that takes what finds no room")
	groups.completeFlag(cmd, "fallback")
	return cmd
}

func groupUpdate(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var r client.GroupRequest
	var description, fallback string
	cmd := a.Add(&cobra.Command{
		Use: "update GROUP", Short: "Change a node group", Args: cobra.ExactArgs(1),
		Long:              `update changes a node group. What is not given stays; --fallback none takes the fallback away.`,
		Example:           `  buildyard group update ci --fallback none`,
		ValidArgsFunction: groups.complete(1),
	}, func(cmd *cobra.Command, args []string) (err error) {
		if cmd.Flags().Changed("description") {
			if description == "" {
				description = " " // the API takes "" for not given, and blanks for none
			}
			r.Description = &description
		}
		if r.FallbackID, err = a.fallback(cmd.Context(), fallback); err != nil {
			return err
		}
		if r == (client.GroupRequest{}) {
			return cli.Usage(errors.New("give what is to change"))
		}
		return a.doOne(cmd.Context(), groups, args[0], "changed", func(ctx context.Context, id string) error {
			return a.API.UpdateGroup(ctx, id, r)
		})
	})
	cmd.Flags().StringVar(&r.Name, "name", "", "name")
	cmd.Flags().StringVar(&description, "description", "", "what it is for")
	cmd.Flags().StringVar(&fallback, "fallback", "", "group that takes what finds no room; none: there is none")
	groups.completeFlag(cmd, "fallback")
	return cmd
}

func groupDelete(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var yes cli.Confirmation
	cmd := a.Add(&cobra.Command{
		Use: "delete GROUP...", Aliases: []string{"rm"}, Short: "Remove node groups", Args: cobra.MinimumNArgs(1),
		Long:              `delete removes node groups. Their nodes stay; instances that wait in them end in Error.`,
		Example:           `  buildyard group delete ci --yes`,
		ValidArgsFunction: groups.complete(0),
	}, func(cmd *cobra.Command, args []string) error {
		ids, err := groups.findAll(cmd.Context(), a.API, args)
		if err != nil {
			return err
		}
		if err := yes.Ask(cmd.Context(), a.Streams, "Remove the node groups %s?", strings.Join(args, ", ")); err != nil {
			return err
		}
		return a.outcome(each(cmd.Context(), ids, "deleted", func(ctx context.Context, id string) error {
			return groups.named(a.API.DeleteGroup(ctx, id), id)
		}))
	})
	yes.Add(cmd)
	return cmd
}
