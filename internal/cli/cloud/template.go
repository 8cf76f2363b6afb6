package cloud

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
)

func templateCommand(s cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use: "template", Aliases: []string{"templates"}, GroupID: CommandGroup,
		Short: "Manage registry templates",
		Long: `template manages the templates of the registry and their copies in node caches. TEMPLATE is an ID, a
unique prefix of an ID, or a name.`,
		Example: `  buildyard template list
  buildyard template show debian`,
	}, templateList(s), templateShow(s), templateDelete(s), templateRevert(s), templateEvict(s), templateRemove(s),
		templateDistribute(s), templateDistributions(s), templateCancel(s), templateEvictions(s), templateRemovals(s))
}

var templateView = tableView[api.Template]{
	itemID: func(t api.Template) string { return t.ID },
	columns: []column[api.Template]{
		{title: "ID", value: func(t api.Template) any { return t.ID }},
		{title: "NAME", value: func(t api.Template) any { return t.Name }},
		{title: "ARCH", value: func(t api.Template) any { return t.Arch }},
		{title: "SIZE", value: func(t api.Template) any { return bytesize.Format(t.Size) }},
		{title: "LAST PUSH", value: func(t api.Template) any { return timeText(epochTime(t.LastPush)) }},
		{title: "LAST PULL", value: func(t api.Template) any { return timeText(epochTime(t.LastPull)) }},
	},
}

func templateList(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listOptions
	cmd := a.addForItems(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List templates", Args: cobra.NoArgs,
		Long:    `list shows the templates of the registry.`,
		Example: `  buildyard template list --filter 'arch:arm64 size>10GB'`,
	}, func(cmd *cobra.Command, _ []string) error {
		look := func(ctx context.Context) ([]api.Template, error) { return a.API.Templates(ctx, o.ListOptions) }
		return showItems(cmd.Context(), &a, &o, templateView, look)
	})
	o.add(cmd, "filter", "limit", "after", "watch")
	return cmd
}

func templateShow(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	return a.addForItems(&cobra.Command{
		Use: "show TEMPLATE", Short: "Show a template with its versions", Args: cobra.ExactArgs(1),
		Long:              `show shows a template with its versions, the oldest first.`,
		Example:           `  buildyard template show debian -o json | jq -r '.versions[].tag'`,
		ValidArgsFunction: templates.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		id, err := templates.find(cmd.Context(), a.API, args[0])
		if err != nil {
			return err
		}
		got, err := callAPI(cmd.Context(),
			func(ctx context.Context) (api.TemplateDetail, error) { return a.API.Template(ctx, id) })
		if err != nil {
			return templates.nameNotFound(err, args[0])
		}
		return printOne(&a, got, id, templateDetails)
	})
}

func templateDetails(g *cli.Grid, t api.TemplateDetail) {
	printDetails(g, templateView, t.Template)
	for _, v := range t.Versions {
		text := []string{bytesize.Format(v.Size)}
		if v.StateFile != "" {
			text = append(text, "suspended")
		}
		if v.CreationDate > 0 {
			text = append(text, timeText(epochTime(v.CreationDate)))
		}
		if v.Description != "" {
			text = append(text, v.Description)
		}
		g.Row(fmt.Sprintf("version %d", v.Number), v.Tag+"  "+strings.Join(text, ", "))
	}
}
