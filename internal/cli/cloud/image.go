package cloud

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
)

// saveOptions are the options of a save.
type saveOptions struct {
	Command
	waitOptions
	client.SaveRequest
	targetTemplate string
	scriptFile     string // a file
	stopGuest      bool
}

func instanceSave(s cli.Streams) *cobra.Command {
	return saveCommand(s, "save INSTANCE", `  buildyard instance save nightly --template debian --tag v13 --wait`)
}

func imageCreate(s cli.Streams) *cobra.Command {
	return saveCommand(s, "create INSTANCE",
		`  buildyard image create nightly --new-template debian-with-tools --tag v1 --wait`)
}

func saveCommand(s cli.Streams, use, example string) *cobra.Command {
	o := saveOptions{Command: Command{Streams: s}}
	cmd := o.Add(&cobra.Command{
		Use: use, Short: "Save an instance as a version of a template", Args: cobra.ExactArgs(1),
		Long: `Saves a started instance as the next version of a template, or as the first version of a new
template, and prints the ID of the save request. The version includes the memory of the guest;
--stop shuts the guest down first instead. A successful save terminates the instance; after a failed
one the instance continues.`,
		Example:           example,
		ValidArgsFunction: instances.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) })
	fs := cmd.Flags()
	fs.StringVar(&o.Tag, "tag", "", "tag of the new version")
	fs.StringVar(&o.targetTemplate, "template", "", "template of the new version")
	fs.StringVar(&o.NewTemplateName, "new-template", "", "name of a new template, instead of --template")
	fs.StringVar(&o.Description, "description", "", "description of the version")
	fs.BoolVar(&o.stopGuest, "stop", false, "shut the guest down instead of saving its memory")
	fs.StringVar(&o.scriptFile, "script", "", "script file to run in the VM before the save; - reads standard input")
	fs.BoolVar(&o.CancelOnFailure, "cancel-on-failure", false, "cancel the save if the script fails")
	fs.BoolVar(&o.Revert, "revert", false,
		"delete the latest tag of the template, or --revert-tag, in the same operation")
	fs.StringVar(&o.RevertTag, "revert-tag", "", "tag to delete with all newer tags (with --revert)")
	fs.BoolVar(&o.SanityTest, "sanity-test", false, "test the saved memory before the version is published")
	_ = cmd.MarkFlagRequired("tag")
	templates.completeFlag(cmd, "template")
	cmd.MarkFlagsMutuallyExclusive("template", "new-template")
	o.addWaitFlags(cmd, "until the save is done")
	return cmd
}

func (o *saveOptions) run(ctx context.Context, instance string) (err error) {
	r := o.SaveRequest
	if o.targetTemplate == "" && r.NewTemplateName == "" {
		return cli.Usage(errors.New("--template or --new-template is required"))
	}
	if r.InstanceID, err = instances.find(ctx, o.API, instance); err != nil {
		return err
	}
	if o.targetTemplate != "" {
		if r.TargetID, err = templates.find(ctx, o.API, o.targetTemplate); err != nil {
			return err
		}
	}
	if r.Script, err = o.readScript(ctx, o.scriptFile); err != nil {
		return err
	}
	if o.stopGuest {
		suspend := false
		r.Suspend = &suspend
	}
	r.IdempotencyKey = client.NewKey()
	got, err := callAPI(ctx, func(ctx context.Context) (string, error) { return o.API.Save(ctx, r) })
	if err != nil {
		return instances.nameNotFound(err, instance)
	}
	if o.Output == cli.JSON || o.Output == cli.YAML {
		err = o.Output.WriteDocument(o.Out, got.raw)
	} else {
		_, err = fmt.Fprintln(o.Out, got.value)
	}
	if err != nil || !o.wait {
		return err
	}
	continues := fmt.Sprintf(`the save continues; wait for it with "buildyard image wait %s"`, got.value)
	return o.waitWithTimeout(ctx, continues, func(ctx context.Context) error { return o.awaitSave(ctx, got.value) })
}

// awaitSave waits for the end of a save.
func (a *Command) awaitSave(ctx context.Context, id string) error {
	m := newProgressMeter(a.Err)
	m.expectItems(id)
	defer m.end()
	_, err := a.API.WaitSaved(ctx, id, func(s api.SaveImage) {
		share := 0.0
		if s.Status == "done" {
			share = 1
		}
		m.updateItem(id, s.Status, share)
	})
	return saves.nameNotFound(err, id)
}

func imageCommand(s cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use: "image", Aliases: []string{"images", "save"}, GroupID: CommandGroup,
		Short: "Save instances and list save requests",
		Long:  `image saves instances as versions of templates, and shows the save requests.`,
		Example: `  buildyard image create nightly --template debian --tag v13
  buildyard image list --watch`,
	}, imageCreate(s), imageList(s), imageShow(s), imageWait(s))
}

var imageView = tableView[api.SaveImage]{
	itemID: func(s api.SaveImage) string { return s.ID },
	columns: []column[api.SaveImage]{
		{title: "ID", value: func(s api.SaveImage) any { return s.ID }},
		{title: "STATUS", value: func(s api.SaveImage) any { return s.Status }},
		{title: "TEMPLATE", value: saveTarget},
		{title: "TAG", value: func(s api.SaveImage) any { return s.Request.Tag }},
		{title: "INSTANCE", value: func(s api.SaveImage) any { return s.Request.InstanceID }},
		{title: "NODE", value: func(s api.SaveImage) any { return s.Request.NodeID }, wideOnly: true},
		{title: "REQUESTED", value: func(s api.SaveImage) any { return timeText(s.Request.Timestamp) }},
		{title: "ERROR", value: saveError},
	},
}

func saveTarget(s api.SaveImage) any {
	if s.Request.NewTemplateName != "" {
		return s.Request.NewTemplateName
	}
	return s.Request.TemplateID
}

func saveError(s api.SaveImage) any {
	if s.Error == nil {
		return ""
	}
	return s.Error.Message
}

func imageDetails(g *cli.Grid, s api.SaveImage) {
	printDetails(g, imageView, s)
	putRow(g, "description", s.Request.Description)
	if s.ScriptResult != nil {
		g.Row("script", scriptText(*s.ScriptResult))
	}
}

func imageList(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listOptions
	cmd := a.addForItems(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List save requests", Args: cobra.NoArgs,
		Long:    `list shows all save requests, also done and failed ones.`,
		Example: `  buildyard image list --filter state:error`,
	}, func(cmd *cobra.Command, _ []string) error {
		look := func(ctx context.Context) ([]api.SaveImage, error) { return a.API.Saves(ctx, o.ListOptions) }
		return showItems(cmd.Context(), &a, &o, imageView, look)
	})
	o.add(cmd, "filter", "limit", "after", "watch")
	return cmd
}

func imageShow(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	return a.addForItems(&cobra.Command{
		Use: "show REQUEST", Short: "Show a save request", Args: cobra.ExactArgs(1),
		Long:              `show prints the status of a save request, and its error if it failed.`,
		Example:           `  buildyard image show 0197e1c2 -o json | jq .script_result`,
		ValidArgsFunction: saves.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		id, err := saves.find(cmd.Context(), a.API, args[0])
		if err != nil {
			return err
		}
		got, err := callAPI(cmd.Context(),
			func(ctx context.Context) (api.SaveImage, error) { return a.API.SaveStatus(ctx, id) })
		if err != nil {
			return saves.nameNotFound(err, args[0])
		}
		return printOne(&a, got, id, imageDetails)
	})
}

func imageWait(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var w waitOptions
	cmd := a.Add(&cobra.Command{
		Use: "wait REQUEST", Short: "Wait for a save request", Args: cobra.ExactArgs(1),
		Long:              `wait waits for the end of a save. If the save fails, the command fails with its error.`,
		Example:           `  buildyard image wait 0197e1c2 --timeout 30m`,
		ValidArgsFunction: saves.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		id, err := saves.find(cmd.Context(), a.API, args[0])
		if err != nil {
			return err
		}
		return w.waitWithTimeout(cmd.Context(), "", func(ctx context.Context) error { return a.awaitSave(ctx, id) })
	})
	w.addTimeoutFlag(cmd)
	return cmd
}
