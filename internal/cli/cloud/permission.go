package cloud

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
)

func base64Line(raw []byte) string { return base64.StdEncoding.EncodeToString(raw) }

func permissionCommand(s cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use: "permission", Aliases: []string{"permissions"}, GroupID: Group,
		Short: "Rights of permission groups on single nodes and templates",
		Long: `permission shows and changes what a permission group may do with single nodes of a controller, or
with --registry single templates of a registry. It works where such rights are switched on
(SVC_ENABLE_RESOURCE_MANAGEMENT). A permission group has the name of a group of users or of a user.`,
		Example: `  buildyard permission list
  buildyard permission set builders node mac-03 list,create_instance
  buildyard permission list builders`,
	}, permissionList(s), permissionSet(s), permissionDelete(s))
}

// right is one right on resources of a type.
type right struct {
	kind, name string
	text       api.PermissionText
}

var rightView = view[right]{
	id: func(r right) string { return r.name },
	columns: []column[right]{
		{head: "TYPE", cell: func(r right) any { return r.kind }},
		{head: "RIGHT", cell: func(r right) any { return r.name }},
		{head: "LABEL", cell: func(r right) any { return r.text.Label }},
		{head: "DESCRIPTION", cell: func(r right) any { return r.text.Description }, wide: true},
	},
}

var resourceView = view[api.Resource]{
	id: func(r api.Resource) string { return r.ID },
	columns: []column[api.Resource]{
		{head: "TYPE", cell: func(r api.Resource) any { return r.Type }},
		{head: "ID", cell: func(r api.Resource) any { return r.ID }},
		{head: "RIGHTS", cell: func(r api.Resource) any { return strings.Join(r.Permissions, ",") }},
		{head: "ID TYPE", cell: func(r api.Resource) any { return r.IDType }, wide: true},
	},
}

func (a *Asker) permissionError(err error) error {
	return a.without404(err, "rights on single resources", "SVC_ENABLE_RESOURCE_MANAGEMENT")
}

func permissionList(s cli.Streams) *cobra.Command {
	a := Asker{Streams: s}
	return a.ofEither(a.addAll(&cobra.Command{
		Use: "list [GROUP]", Aliases: []string{"ls"}, Short: "List rights", Args: cobra.MaximumNArgs(1),
		Long:    `list shows the rights that a permission group has; without a group those that there are.`,
		Example: `  buildyard permission list builders -o yaml`,
	}, func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			got, err := ask(cmd.Context(), func(ctx context.Context) ([]api.Resource, error) { return a.Keys.Resources(ctx, args[0]) })
			if err != nil {
				return a.permissionError(err)
			}
			return list(&a, got, resourceView)
		}
		got, err := ask(cmd.Context(), a.Keys.ResourcePermissions)
		if err != nil {
			return a.permissionError(err)
		}
		flat := answer[[]right]{raw: got.raw}
		for _, kind := range got.value {
			for _, name := range slices.Sorted(maps.Keys(kind.Permissions)) {
				flat.value = append(flat.value, right{kind.ResourceType, name, kind.Permissions[name]})
			}
		}
		return list(&a, flat, rightView)
	}))
}

// resourceID finds the id of a resource, of a node by its name too.
func (a *Asker) resourceID(ctx context.Context, kind, text string) (string, error) {
	switch {
	case kind != typeNode && kind != typeTemplate:
		return "", cli.Usage(fmt.Errorf("%q is no type of resources: give %s or %s", kind, typeNode, typeTemplate))
	case kind == typeNode && a.API != nil:
		return nodes.find(ctx, a.API, text)
	}
	return text, nil
}

// The types of resources.
const (
	typeNode     = "node"
	typeTemplate = "template"
)

// completeTypes offers the types behind the group.
func completeTypes(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 1 {
		return []string{typeNode, typeTemplate}, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// change puts rights of a group on a resource in the place of those that it had; nil takes
// the resource out. Others stay as they are when nobody else changes them meanwhile.
func (a *Asker) change(ctx context.Context, group, kind string, ids, rights []string) error {
	all, err := a.Keys.Resources(ctx, group)
	if err != nil {
		return a.permissionError(err)
	}
	for _, id := range ids {
		i := slices.IndexFunc(all, func(r api.Resource) bool { return r.Type == kind && r.ID == id })
		switch {
		case rights != nil && i >= 0:
			all[i].Permissions = rights
		case rights != nil:
			all = append(all, api.Resource{ID: id, IDType: "id", Type: kind, Permissions: rights})
		case i >= 0:
			all = slices.Delete(all, i, i+1)
		default:
			return cli.Exit(cli.ExitNotFound, fmt.Errorf("the permission group %q has no rights on the %s %q", group, kind, id))
		}
	}
	return a.permissionError(a.Keys.SetResources(ctx, group, all))
}

func permissionSet(s cli.Streams) *cobra.Command {
	a := Asker{Streams: s}
	return a.ofEither(a.Add(&cobra.Command{
		Use: "set GROUP TYPE ID RIGHT[,RIGHT...]", Short: "Give a permission group rights on a node or template", Args: cobra.ExactArgs(4),
		Long: `set makes these the rights of a permission group on one resource, of the type node or template. Its
rights on others stay. Do not change the same group from two places at once.`,
		Example: `  buildyard permission set builders node mac-03 list,create_instance
  buildyard permission set builders template c0847bc9-5d2d-4dbc-ba6a-240f7ff08032 list,pull --registry https://registry.example`,
		ValidArgsFunction: completeTypes,
	}, func(cmd *cobra.Command, args []string) error {
		rights := strings.FieldsFunc(args[3], func(r rune) bool { return r == ',' || r == ' ' })
		if len(rights) == 0 {
			return cli.Usage(errors.New(`give rights: "buildyard permission list" shows those that there are`))
		}
		id, err := a.resourceID(cmd.Context(), args[1], args[2])
		if err != nil {
			return err
		}
		return a.outcome(each(cmd.Context(), []string{id}, "set", func(ctx context.Context, id string) error {
			return a.change(ctx, args[0], args[1], []string{id}, rights)
		}))
	}))
}

func permissionDelete(s cli.Streams) *cobra.Command {
	a := Asker{Streams: s}
	var yes confirmed
	cmd := a.ofEither(a.Add(&cobra.Command{
		Use: "delete GROUP TYPE ID...", Aliases: []string{"rm"}, Short: "Take rights on nodes or templates from a permission group", Args: cobra.MinimumNArgs(3),
		Long:              `delete takes all rights on these resources from a permission group.`,
		Example:           `  buildyard permission delete builders node mac-03 --yes`,
		ValidArgsFunction: completeTypes,
	}, func(cmd *cobra.Command, args []string) error {
		ids := make([]string, len(args)-2)
		for i, text := range args[2:] {
			var err error
			if ids[i], err = a.resourceID(cmd.Context(), args[1], text); err != nil {
				return err
			}
		}
		if err := a.confirm(cmd.Context(), yes, "Take the rights on %s from %s?", strings.Join(args[2:], ", "), args[0]); err != nil {
			return err
		}
		if err := a.change(cmd.Context(), args[0], args[1], ids, nil); err != nil {
			return err
		}
		return a.outcome(each(cmd.Context(), ids, "deleted", func(context.Context, string) error { return nil }))
	}))
	yes.add(cmd)
	return cmd
}
