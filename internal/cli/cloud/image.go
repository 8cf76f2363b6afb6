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
	target string
	script string // a file
	stop   bool
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
		ValidArgsFunction: instances.complete(1),
	}, func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) })
	fs := cmd.Flags()
	fs.StringVar(&o.Tag, "tag", "", "tag of the new version")
	fs.StringVar(&o.target, "template", "", "template of the new version")
	fs.StringVar(&o.NewTemplateName, "new-template", "", "name of a new template, instead of --template")
	fs.StringVar(&o.Description, "description", "", "description of the version")
	fs.BoolVar(&o.stop, "stop", false, "shut the guest down instead of saving its memory")
	fs.StringVar(&o.script, "script", "", "script file to run in the VM before the save; - reads standard input")
	fs.BoolVar(&o.CancelOnFailure, "cancel-on-failure", false, "cancel the save if the script fails")
	fs.BoolVar(&o.Revert, "revert", false,
		"delete the latest tag of the template, or --revert-tag, in the same operation")
	fs.StringVar(&o.RevertTag, "revert-tag", "", "tag to delete with all newer tags (with --revert)")
	fs.BoolVar(&o.SanityTest, "sanity-test", false, "test the saved memory before the version is published")
	_ = cmd.MarkFlagRequired("tag")
	templates.completeFlag(cmd, "template")
	cmd.MarkFlagsMutuallyExclusive("template", "new-template")
	o.addWait(cmd, "until the save is done")
	return cmd
}

func (o *saveOptions) run(ctx context.Context, instance string) (err error) {
	r := o.SaveRequest
	if o.target == "" && r.NewTemplateName == "" {
		return cli.Usage(errors.New("--template or --new-template is required"))
	}
	if r.InstanceID, err = instances.find(ctx, o.API, instance); err != nil {
		return err
	}
	if o.target != "" {
		if r.TargetID, err = templates.find(ctx, o.API, o.target); err != nil {
			return err
		}
	}
	if r.Script, err = o.read(ctx, o.script); err != nil {
		return err
	}
	if o.stop {
		suspend := false
		r.Suspend = &suspend
	}
	r.IdempotencyKey = client.NewKey()
	got, err := ask(ctx, func(ctx context.Context) (string, error) { return o.API.Save(ctx, r) })
	if err != nil {
		return instances.named(err, instance)
	}
	if o.Output == cli.JSON || o.Output == cli.YAML {
		err = o.Output.Document(o.Out, got.raw)
	} else {
		_, err = fmt.Fprintln(o.Out, got.value)
	}
	if err != nil || !o.wait {
		return err
	}
	goesOn := fmt.Sprintf(`the save continues; wait for it with "buildyard image wait %s"`, got.value)
	return o.during(ctx, goesOn, func(ctx context.Context) error { return o.saved(ctx, got.value) })
}

// saved waits for the end of a save.
func (a *Command) saved(ctx context.Context, id string) error {
	m := newProgressMeter(a.Err)
	m.expect(id)
	defer m.end()
	_, err := a.API.WaitSaved(ctx, id, func(s api.SaveImage) {
		share := 0.0
		if s.Status == "done" {
			share = 1
		}
		m.update(id, s.Status, share)
	})
	return saves.named(err, id)
}

func imageCommand(s cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use: "image", Aliases: []string{"images", "save"}, GroupID: Group,
		Short: "Save instances and list save requests",
		Long:  `image saves instances as versions of templates, and shows the save requests.`,
		Example: `  buildyard image create nightly --template debian --tag v13
  buildyard image list --watch`,
	}, imageCreate(s), imageList(s), imageShow(s), imageWait(s))
}

var imageView = view[api.SaveImage]{
	id: func(s api.SaveImage) string { return s.ID },
	columns: []column[api.SaveImage]{
		{head: "ID", cell: func(s api.SaveImage) any { return s.ID }},
		{head: "STATUS", cell: func(s api.SaveImage) any { return s.Status }},
		{head: "TEMPLATE", cell: saveTarget},
		{head: "TAG", cell: func(s api.SaveImage) any { return s.Request.Tag }},
		{head: "INSTANCE", cell: func(s api.SaveImage) any { return s.Request.InstanceID }},
		{head: "NODE", cell: func(s api.SaveImage) any { return s.Request.NodeID }, wide: true},
		{head: "REQUESTED", cell: func(s api.SaveImage) any { return when(s.Request.Timestamp) }},
		{head: "ERROR", cell: saveError},
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
	details(g, imageView, s)
	put(g, "description", s.Request.Description)
	if s.ScriptResult != nil {
		g.Row("script", scriptText(*s.ScriptResult))
	}
}

func imageList(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listing
	cmd := a.addAll(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List save requests", Args: cobra.NoArgs,
		Long:    `list shows all save requests, also done and failed ones.`,
		Example: `  buildyard image list --filter state:error`,
	}, func(cmd *cobra.Command, _ []string) error {
		look := func(ctx context.Context) ([]api.SaveImage, error) { return a.API.Saves(ctx, o.ListOptions) }
		return show(cmd.Context(), &a, &o, imageView, look)
	})
	o.add(cmd, "filter", "limit", "after", "watch")
	return cmd
}

func imageShow(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	return a.addAll(&cobra.Command{
		Use: "show REQUEST", Short: "Show a save request", Args: cobra.ExactArgs(1),
		Long:              `show prints the status of a save request, and its error if it failed.`,
		Example:           `  buildyard image show 0197e1c2 -o json | jq .script_result`,
		ValidArgsFunction: saves.complete(1),
	}, func(cmd *cobra.Command, args []string) error {
		id, err := saves.find(cmd.Context(), a.API, args[0])
		if err != nil {
			return err
		}
		got, err := ask(cmd.Context(),
			func(ctx context.Context) (api.SaveImage, error) { return a.API.SaveStatus(ctx, id) })
		if err != nil {
			return saves.named(err, args[0])
		}
		return single(&a, got, id, imageDetails)
	})
}

func imageWait(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var w waitOptions
	cmd := a.Add(&cobra.Command{
		Use: "wait REQUEST", Short: "Wait for a save request", Args: cobra.ExactArgs(1),
		Long:              `wait waits for the end of a save. If the save fails, the command fails with its error.`,
		Example:           `  buildyard image wait 0197e1c2 --timeout 30m`,
		ValidArgsFunction: saves.complete(1),
	}, func(cmd *cobra.Command, args []string) error {
		id, err := saves.find(cmd.Context(), a.API, args[0])
		if err != nil {
			return err
		}
		return w.during(cmd.Context(), "", func(ctx context.Context) error { return a.saved(ctx, id) })
	})
	w.addLimit(cmd)
	return cmd
}
