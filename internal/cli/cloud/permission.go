package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
)

func permissionCommand(s cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use: "permission", Aliases: []string{"permissions"}, GroupID: CommandGroup,
		Short: "Manage permission groups",
		Long: `permission shows and changes the permissions of permission groups at a controller, or with --registry at
a registry. A permission group has the name of a user group, a user or an API key. Resource rights
on single nodes and templates apply in addition when SVC_ENABLE_RESOURCE_MANAGEMENT is on.`,
		Example: `  buildyard permission known
  buildyard permission set builders list_vms,start_vm,terminate_vm
  buildyard permission set builders list,create_instance --on node/mac-03`,
	}, permissionList(s), permissionInfoCommand(s), permissionSet(s), permissionDelete(s))
}

var permissionGroupView = tableView[api.PermissionGroup]{
	itemID: func(g api.PermissionGroup) string { return g.Name },
	columns: []column[api.PermissionGroup]{
		{title: "NAME", value: func(g api.PermissionGroup) any { return g.Name }},
		{title: "PERMISSIONS", value: func(g api.PermissionGroup) any { return strings.Join(g.Permissions, ",") }},
	},
}

// permissionInfo is a permission, or a resource right.
type permissionInfo struct {
	category string // heading of its category
	name     string
	text     api.PermissionText
}

var permissionView = tableView[permissionInfo]{
	itemID: func(k permissionInfo) string { return k.name },
	columns: []column[permissionInfo]{
		{title: "CATEGORY", value: func(k permissionInfo) any { return k.category }},
		{title: "NAME", value: func(k permissionInfo) any { return k.name }},
		{title: "LABEL", value: func(k permissionInfo) any { return k.text.Label }},
		{title: "DESCRIPTION", value: func(k permissionInfo) any { return k.text.Description }, wideOnly: true},
	},
}

var resourceView = tableView[api.Resource]{
	itemID: func(r api.Resource) string { return r.ID },
	columns: []column[api.Resource]{
		{title: "TYPE", value: func(r api.Resource) any { return r.Type }},
		{title: "ID", value: func(r api.Resource) any { return r.ID }},
		{title: "RIGHTS", value: func(r api.Resource) any { return strings.Join(r.Permissions, ",") }},
		{title: "ID TYPE", value: func(r api.Resource) any { return r.IDType }, wideOnly: true},
	},
}

// permissionError explains an error about permission groups, or about the rights of one on
// resources.
func (a *Command) permissionError(err error, group string, resources bool) error {
	switch {
	case errors.Is(err, client.ErrNotFound) && group != "" && !cli.HasExitCode(err):
		return cli.Exit(cli.ExitNotFound,
			fmt.Errorf("permission group %q not found; see \"buildyard permission list\"", group))
	case resources:
		return a.ignoreNotFound(err, "resource rights", "SVC_ENABLE_RESOURCE_MANAGEMENT")
	}
	return a.ignoreNotFound(err, "permission groups", "SVC_ENABLE_AUTH")
}

func permissionList(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	resources := false
	cmd := a.addRegistryFlag(a.addForItems(&cobra.Command{
		Use: "list [GROUP]", Aliases: []string{"ls"}, Short: "List permission groups", Args: cobra.MaximumNArgs(1),
		Long: `list shows all permission groups with their permissions, or one of them; with --resources the resource
rights of a group on single nodes or templates.`,
		Example: `  buildyard permission list
  buildyard permission list builders --resources -o yaml`,
		ValidArgsFunction: permissionGroupNames,
	}, func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			if resources {
				return cli.Usage(errors.New("--resources requires a group"))
			}
			got, err := callAPI(cmd.Context(), a.KeyAPI.PermissionGroups)
			if err != nil {
				return a.permissionError(err, "", false)
			}
			return printList(&a, got, permissionGroupView)
		}
		if resources {
			got, err := callAPI(cmd.Context(),
				func(ctx context.Context) ([]api.Resource, error) { return a.KeyAPI.Resources(ctx, args[0]) })
			if err != nil {
				return a.permissionError(err, args[0], true)
			}
			return printList(&a, got, resourceView)
		}
		got, err := callAPI(cmd.Context(),
			func(ctx context.Context) (api.PermissionGroup, error) { return a.KeyAPI.PermissionGroup(ctx, args[0]) })
		if err != nil {
			return a.permissionError(err, args[0], false)
		}
		return printOne(&a, got, got.value.Name,
			func(g *cli.Grid, group api.PermissionGroup) { printDetails(g, permissionGroupView, group) })
	}))
	cmd.Flags().BoolVar(&resources, "resources", false, "show resource rights on single nodes or templates")
	return cmd
}

// permissionGroupNames completes the names of permission groups for the first argument.
func permissionGroupNames(cmd *cobra.Command, args []string, text string) (out []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	openKeyAPIForCompletion(cmd, func(ctx context.Context, store keyAPI) {
		all, _ := store.PermissionGroups(ctx) // without groups there is nothing to complete
		for _, g := range all {
			if strings.HasPrefix(g.Name, text) && len(out) < maxCompletions && cli.EscapeName(g.Name) == g.Name {
				out = append(out, g.Name)
			}
		}
	})
	return out, cobra.ShellCompDirectiveNoFileComp
}

func permissionInfoCommand(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	resources := false
	cmd := a.addRegistryFlag(a.addForItems(&cobra.Command{
		Use: "known", Short: "List available permissions", Args: cobra.NoArgs,
		Long: `known shows the permissions of a service; with --resources the resource rights on single nodes of a
controller, or templates of a registry.`,
		Example: `  buildyard permission known -o wide
  buildyard permission known --resources`,
	}, func(cmd *cobra.Command, _ []string) error {
		var flat response[[]permissionInfo]
		if resources {
			got, err := callAPI(cmd.Context(), a.KeyAPI.ResourcePermissions)
			if err != nil {
				return a.permissionError(err, "", true)
			}
			flat.raw = got.raw
			for _, kind := range got.value {
				for _, name := range slices.Sorted(maps.Keys(kind.Permissions)) {
					flat.value = append(flat.value, permissionInfo{kind.ResourceType, name, kind.Permissions[name]})
				}
			}
			return printList(&a, flat, permissionView)
		}
		got, err := callAPI(cmd.Context(), a.KeyAPI.Permissions)
		if err != nil {
			return a.permissionError(err, "", false)
		}
		flat.raw = got.raw
		for _, p := range got.value {
			flat.value = append(flat.value,
				permissionInfo{p.Area, p.Name, api.PermissionText{Label: p.Label, Description: p.Description}})
		}
		return printList(&a, flat, permissionView)
	}))
	cmd.Flags().BoolVar(&resources, "resources", false, "show resource rights on single nodes or templates")
	return cmd
}

// The types of resources.
const (
	typeNode     = "node"
	typeTemplate = "template"
)

// parseResource parses TYPE/ID; a node may also be given by name.
func (a *Command) parseResource(ctx context.Context, text string) (api.Resource, error) {
	kind, id, _ := strings.Cut(text, "/")
	var err error
	switch {
	case kind != typeNode && kind != typeTemplate || id == "":
		return api.Resource{},
			cli.Usage(fmt.Errorf("invalid --on %q: want %s/ID or %s/ID", text, typeNode, typeTemplate))
	case kind == typeNode && a.API != nil:
		id, err = nodes.find(ctx, a.API, id)
	}
	return api.Resource{ID: id, IDType: "id", Type: kind}, err
}

// replaceResourceRights replaces the rights of a group on resources; nil removes them. Other rights stay as they
// are unless another client changes them concurrently.
func (a *Command) replaceResourceRights(ctx context.Context, group string, on []string, rights []string) error {
	all, err := a.KeyAPI.Resources(ctx, group)
	if err != nil {
		return a.permissionError(err, group, true)
	}
	for _, text := range on {
		r, err := a.parseResource(ctx, text)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(had api.Resource) bool { return had.Type == r.Type && had.ID == r.ID })
		r.Permissions = rights
		switch {
		case rights != nil && i >= 0:
			all[i] = r
		case rights != nil:
			all = append(all, r)
		case i >= 0:
			all = slices.Delete(all, i, i+1)
		default:
			return cli.Exit(cli.ExitNotFound,
				fmt.Errorf("rights of permission group %q on %s %q not found", group, r.Type, r.ID))
		}
	}
	return a.permissionError(a.KeyAPI.SetResources(ctx, group, all), group, true)
}

func permissionSet(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var on []string
	cmd := a.addRegistryFlag(a.Add(&cobra.Command{
		Use: "set GROUP PERMISSION[,PERMISSION...]", Short: "Set a group's permissions", Args: cobra.ExactArgs(2),
		Long: `set replaces the permissions of a permission group, and creates the group if necessary. With --on it
replaces the resource rights of the group on these nodes or templates only. Do not change the same
group concurrently.`,
		Example: `  buildyard permission set builders list_vms,start_vm,terminate_vm
  buildyard permission set builders list,create_instance --on node/mac-03
  buildyard permission set builders list,pull --on template/ID --registry https://registry.example`,
		ValidArgsFunction: permissionGroupNames,
	}, func(cmd *cobra.Command, args []string) error {
		names := strings.FieldsFunc(args[1], func(r rune) bool { return r == ',' || r == ' ' })
		if len(names) == 0 {
			return cli.Usage(errors.New(`permissions required; see "buildyard permission known"`))
		}
		return a.printResults(runOnEach(cmd.Context(), args[:1], "set", func(ctx context.Context, group string) error {
			if len(on) > 0 {
				return a.replaceResourceRights(ctx, group, on, names)
			}
			return a.permissionError(a.KeyAPI.SetPermissionGroup(ctx,
				api.PermissionGroup{Name: group, Permissions: names}), "", false)
		}))
	}))
	cmd.Flags().StringSliceVar(&on, "on", nil, "nodes or templates of the rights: node/ID or template/ID")
	return cmd
}

func permissionDelete(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var on []string
	var yes cli.Confirmation
	cmd := a.addRegistryFlag(a.Add(&cobra.Command{
		Use: "delete GROUP", Aliases: []string{"rm"}, Short: "Delete a permission group", Args: cobra.ExactArgs(1),
		Long: `delete removes all permissions and resource rights of a permission group. With --on it removes the
resource rights on these nodes or templates only.`,
		Example: `  buildyard permission delete builders --yes
  buildyard permission delete builders --on node/mac-03`,
		ValidArgsFunction: permissionGroupNames,
	}, func(cmd *cobra.Command, args []string) error {
		what := "all permissions"
		if len(on) > 0 {
			what = "the resource rights on " + strings.Join(on, ", ")
		}
		if err := yes.Ask(cmd.Context(), a.Streams, "Remove %s of the permission group %s?", what,
			args[0]); err != nil {
			return err
		}
		return a.printResults(runOnEach(cmd.Context(), args, "deleted", func(ctx context.Context, group string) error {
			if len(on) > 0 {
				return a.replaceResourceRights(ctx, group, on, nil)
			}
			return a.permissionError(a.KeyAPI.DeletePermissionGroup(ctx, group), group, false)
		}))
	}))
	cmd.Flags().StringSliceVar(&on, "on", nil, "nodes or templates of the rights: node/ID or template/ID")
	yes.Add(cmd)
	return cmd
}
