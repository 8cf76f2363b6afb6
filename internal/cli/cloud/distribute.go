package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
)

// versionSelector selects a version of a template.
type versionSelector struct {
	tag         string
	number      uint32
	numberGiven func() bool // the flag was set
}

func (v *versionSelector) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&v.tag, "tag", "", "tag of the version (default: the latest)")
	cmd.Flags().Uint32Var(&v.number, "version", 0, "number of the version, instead of --tag")
	_ = cmd.RegisterFlagCompletionFunc("tag", completeTags)
	v.numberGiven = func() bool { return cmd.Flags().Changed("version") }
}

// selected returns the selected version; tag is the one of TEMPLATE:TAG, or "".
func (v *versionSelector) selected(tag string) (client.Version, error) {
	if tag != "" && v.tag != "" && tag != v.tag {
		return client.Version{},
			cli.Usage(fmt.Errorf("template tag %q and --tag %q are mutually exclusive", tag, v.tag))
	}
	out := client.Version{Tag: cmp.Or(tag, v.tag)}
	if v.numberGiven() {
		number := int(v.number)
		out.Number = &number
	}
	return out, nil
}

// describe describes the selected version.
func (v *versionSelector) describe() string {
	switch {
	case v.numberGiven():
		return fmt.Sprint("version ", v.number)
	case v.tag != "":
		return "the version " + v.tag
	}
	return "the latest version"
}

func templateDelete(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var yes cli.Confirmation
	cmd := a.Add(&cobra.Command{
		Use: "delete TEMPLATE...", Aliases: []string{"rm"}, Short: "Delete templates with all their versions",
		Args: cobra.MinimumNArgs(1),
		Long: `delete removes templates with all their versions from the registry. Running VMs continue. Nodes keep
their cached versions until "template evict" or until the cache needs the space.`,
		Example:           `  buildyard template delete old-debian --yes`,
		ValidArgsFunction: templates.completeArgs(0),
	}, func(cmd *cobra.Command, args []string) error {
		ids, err := templates.findAll(cmd.Context(), a.API, args)
		if err != nil {
			return err
		}
		if err := yes.Ask(cmd.Context(), a.Streams, "Delete %s with all versions?",
			strings.Join(args, ", ")); err != nil {
			return err
		}
		return a.printResults(runOnEach(cmd.Context(), ids, "deleted", func(ctx context.Context, id string) error {
			return templates.nameNotFound(a.API.DeleteTemplate(ctx, id), id)
		}))
	})
	yes.Add(cmd)
	return cmd
}

func templateRevert(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var v versionSelector
	var yes cli.Confirmation
	cmd := a.Add(&cobra.Command{
		Use: "revert TEMPLATE", Short: "Delete a tag and all newer tags", Args: cobra.ExactArgs(1),
		Long:              `revert deletes a tag (default: the latest) and all newer tags of a template.`,
		Example:           `  buildyard template revert debian --tag v12 --yes`,
		ValidArgsFunction: templates.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		id, err := templates.find(cmd.Context(), a.API, args[0])
		if err != nil {
			return err
		}
		if err := yes.Ask(cmd.Context(), a.Streams, "Delete %s of %s and all newer ones?", v.describe(),
			args[0]); err != nil {
			return err
		}
		which, err := v.selected("")
		if err != nil {
			return err
		}
		if err := a.API.RevertTemplate(cmd.Context(), id, which); err != nil {
			return nameTemplate(templates.nameNotFound(err, args[0]), args[0])
		}
		return a.printDone(id, "reverted")
	})
	v.add(cmd)
	yes.Add(cmd)
	return cmd
}

// templateRemove is the former name of the command evict.
func templateRemove(s cli.Streams) *cobra.Command {
	cmd := templateEvict(s)
	return deprecate(cmd, s, "remove TEMPLATE", "template evict")
}

func templateEvict(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var on []string
	var w waitOptions
	var yes cli.Confirmation
	cmd := a.Add(&cobra.Command{
		Use: "evict TEMPLATE", Short: "Evict a template from node caches", Args: cobra.ExactArgs(1),
		Long: `evict removes the unused versions of a template from the caches of nodes (default: all nodes). Versions
in use stay, and so does the template in the registry.`,
		Example:           `  buildyard template evict debian --node mac-03 --wait`,
		ValidArgsFunction: templates.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		id, err := templates.find(ctx, a.API, args[0])
		if err != nil {
			return err
		}
		ids, err := nodes.findAll(ctx, a.API, on)
		if err != nil {
			return err
		}
		if err := yes.Ask(cmd.Context(), a.Streams, "Evict %s from node caches?", args[0]); err != nil {
			return err
		}
		got, err := callAPI(ctx,
			func(ctx context.Context) (api.RemoveAnswer, error) { return a.API.RemoveFromNodes(ctx, id, ids...) })
		if err != nil {
			return templates.nameNotFound(err, args[0])
		}
		err = printOne(&a, got, got.value.RequestID, func(g *cli.Grid, r api.RemoveAnswer) {
			putRow(g, "request", r.RequestID)
			g.Row("nodes", r.RequestsSent)
		})
		if err == nil && !w.wait && got.value.RequestID != "" {
			_, _ = fmt.Fprintln(a.Err, "A node keeps versions that are in use. Results and reasons: "+
				"buildyard template evictions")
		}
		if err != nil || !w.wait || got.value.RequestID == "" {
			return err
		}
		return w.waitWithTimeout(ctx, "the eviction continues",
			func(ctx context.Context) error { return a.awaitEviction(ctx, got.value.RequestID) })
	})
	cmd.Flags().StringArrayVar(&on, "node", nil, "only from this node; repeatable")
	nodes.completeFlag(cmd, "node")
	w.addWaitFlags(cmd, "until every node is done")
	yes.Add(cmd)
	return cmd
}

// awaitEviction waits for the end of an eviction and prints its results.
func (a *Command) awaitEviction(ctx context.Context, request string) error {
	r, err := a.API.WaitRemoved(ctx, request)
	if err != nil {
		return err
	}
	kept := 0
	for _, node := range slices.Sorted(maps.Keys(r.Status)) {
		s := r.Status[node]
		if s.Error != "" {
			kept++
		}
		_, _ = fmt.Fprintln(a.Err, cli.EscapeName(node+"  "+removalText(s)))
	}
	if kept > 0 {
		return fmt.Errorf("%d of %d nodes still have cached versions of the template", kept, len(r.Status))
	}
	return nil
}

// distributeOptions are the options of template distribute.
type distributeOptions struct {
	Command
	waitOptions
	versionSelector
	nodes       []string
	nodeGroups  []string
	filter      string
	dryRun      bool
	actingGroup string // permission group of the request
}

func templateDistribute(s cli.Streams) *cobra.Command {
	o := distributeOptions{Command: Command{Streams: s}}
	cmd := o.Add(&cobra.Command{
		Use: "distribute TEMPLATE[:TAG]", Short: "Distribute a version to nodes", Args: cobra.ExactArgs(1),
		Long: `distribute lets nodes (default: all nodes) pull a version into their caches before an instance needs
it, and prints the ID of the request. With --wait it waits for all nodes, and fails if one fails. With --dry-run it
only shows how many nodes would pull how much.`,
		Example: `  buildyard template distribute debian:v12 --group ci --wait
  buildyard template distributions --watch`,
		ValidArgsFunction: completeVersions,
	}, func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) })
	o.versionSelector.add(cmd)
	cmd.Flags().StringArrayVar(&o.nodes, "node", nil, "only to this node; repeatable")
	cmd.Flags().StringArrayVar(&o.nodeGroups, "group", nil, "only to nodes of this group; repeatable")
	cmd.Flags().StringVar(&o.filter, "filter", "", "only to nodes that match, such as 'state:active free>50GB'")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what would be pulled, without a change")
	cmd.Flags().StringVar(&o.actingGroup, permissionGroup, "", forGroup)
	nodes.completeFlag(cmd, "node")
	groups.completeFlag(cmd, "group")
	o.addWaitFlags(cmd, "until every node has cached the version")
	return cmd
}

func (o *distributeOptions) newRequest(ctx context.Context, template string) (r client.DistributeRequest, err error) {
	r = client.DistributeRequest{Group: o.actingGroup, IdempotencyKey: client.NewKey()}
	var tag string
	if r.TemplateID, tag, err = o.findTemplate(ctx, template); err != nil {
		return r, err
	}
	v, err := o.selected(tag)
	if err != nil {
		return r, err
	}
	r.Tag, r.Version = v.Tag, v.Number
	if r.NodeIDs, err = nodes.findAll(ctx, o.API, o.nodes); err != nil {
		return r, err
	}
	r.Filter = o.filter
	if r.GroupIDs, err = groups.findAll(ctx, o.API, o.nodeGroups); err != nil || len(r.GroupIDs) != 1 {
		return r, err
	}
	r.GroupID, r.GroupIDs = r.GroupIDs[0], nil // which every controller knows
	return r, nil
}

func (o *distributeOptions) run(ctx context.Context, template string) error {
	r, err := o.newRequest(ctx, template)
	if err != nil {
		return err
	}
	if o.dryRun {
		return o.preview(ctx, r, template)
	}
	got, err := callAPI(ctx, func(ctx context.Context) (string, error) { return o.API.Distribute(ctx, r) })
	if err != nil {
		return nameTemplate(err, strings.TrimSuffix(template, ":"+r.Tag))
	}
	if o.Output == cli.JSON || o.Output == cli.YAML {
		err = o.Output.WriteDocument(o.Out, got.raw)
	} else {
		_, err = fmt.Fprintln(o.Out, got.value)
	}
	if err != nil || !o.wait {
		return err
	}
	continues := fmt.Sprintf(
		`the distribution continues; see "buildyard template distributions %s", or cancel it with "buildyard template cancel %[1]s"`, got.value)
	return o.waitWithTimeout(ctx, continues,
		func(ctx context.Context) error { return o.awaitDistribution(ctx, got.value) })
}

// preview shows what a distribution would do.
func (o *distributeOptions) preview(ctx context.Context, r client.DistributeRequest, template string) error {
	got, err := callAPI(ctx,
		func(ctx context.Context) (api.DistributePreview, error) { return o.API.PreviewDistribution(ctx, r) })
	if err != nil {
		return nameTemplate(err, strings.TrimSuffix(template, ":"+r.Tag))
	}
	return printOne(&o.Command, got, "", func(g *cli.Grid, p api.DistributePreview) {
		g.Row("tag", p.Tag)
		g.Row("nodes", p.Nodes)
		g.Row("cached", p.Cached)
		g.Row("to pull", p.ToPull)
		g.Row("of these offline", p.Offline)
		g.Row("of these without disk space", p.NoSpace)
		g.Row("unsuitable", p.Unsuitable)
		g.Row("bytes per node", bytesize.Format(p.NodeBytes))
		g.Row("bytes in all", bytesize.Format(p.TotalBytes))
	})
}

// awaitDistribution waits until nodes have cached a version.
func (a *Command) awaitDistribution(ctx context.Context, request string) error {
	m := newProgressMeter(a.Err)
	defer m.end()
	_, err := a.API.WaitDistributed(ctx, request, func(d api.Distribution) {
		for _, node := range slices.Sorted(maps.Keys(d.Status)) {
			m.updateItem(node, nodeProgressText(d.Status[node]), d.Status[node].Progress)
		}
	})
	return err
}

// nodeProgressText describes the progress of a distribution on a node.
func nodeProgressText(s api.DistributeStatus) string {
	switch {
	case s.Status:
		return "cached"
	case s.Error != "":
		return s.Error
	case s.Progress == 0:
		return "queued"
	}
	return "pulling"
}

var distributionView = tableView[api.Distribution]{
	itemID: func(d api.Distribution) string { return d.Request.RequestID },
	columns: []column[api.Distribution]{
		{title: "ID", value: func(d api.Distribution) any { return d.Request.RequestID }},
		{title: "TEMPLATE", value: func(d api.Distribution) any { return d.Request.TemplateID }},
		{title: "TAG", value: func(d api.Distribution) any { return d.Request.Tag }},
		{title: "DONE", value: distributionDone},
		{title: "FAILED", value: distributionFailed},
		{title: "REQUESTED", value: func(d api.Distribution) any { return timeText(d.Request.TimeRequested) }},
	},
}

func distributionDone(d api.Distribution) any {
	done := 0
	for _, s := range d.Status {
		if s.Status {
			done++
		}
	}
	return fmt.Sprintf("%d/%d", done, len(d.Status))
}

func distributionFailed(d api.Distribution) any {
	failed := 0
	for _, s := range d.Status {
		if s.Error != "" {
			failed++
		}
	}
	return failed
}

func templateDistributions(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listOptions
	cmd := a.addForItems(&cobra.Command{
		Use: "distributions [REQUEST]", Short: "List distributions", Args: cobra.MaximumNArgs(1),
		Long:              `distributions lists distributions, or shows one with the progress of each node.`,
		Example:           `  buildyard template distributions --watch`,
		ValidArgsFunction: distributions.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			look := func(ctx context.Context) ([]api.Distribution, error) {
				return a.API.Distributions(ctx, o.ListOptions)
			}
			return showItems(cmd.Context(), &a, &o, distributionView, look)
		}
		if o.watch {
			return cli.Usage(errors.New("--watch and REQUEST are mutually exclusive"))
		}
		id, err := distributions.find(cmd.Context(), a.API, args[0])
		if err != nil {
			return err
		}
		got, err := callAPI(cmd.Context(),
			func(ctx context.Context) (api.Distribution, error) { return a.API.Distribution(ctx, id) })
		if err != nil {
			return distributions.nameNotFound(err, args[0])
		}
		return printOne(&a, got, id, func(g *cli.Grid, d api.Distribution) {
			printDetails(g, distributionView, d)
			for _, node := range slices.Sorted(maps.Keys(d.Status)) {
				g.Row("node "+node, fmt.Sprintf("%3d%%  %s", int(100*d.Status[node].Progress),
					nodeProgressText(d.Status[node])))
			}
		})
	})
	o.add(cmd, "filter", "limit", "after", "watch")
	return cmd
}

var removalView = tableView[api.Removal]{
	itemID: func(r api.Removal) string { return r.Request.RequestID },
	columns: []column[api.Removal]{
		{title: "ID", value: func(r api.Removal) any { return r.Request.RequestID }},
		{title: "TEMPLATE", value: func(r api.Removal) any { return r.Request.TemplateID }},
		{title: "DONE", value: removalDone},
		{title: "REQUESTED", value: func(r api.Removal) any { return timeText(r.Request.TimeRequested) }},
	},
}

func removalDone(r api.Removal) any {
	done := 0
	for _, s := range r.Status {
		if s.Status {
			done++
		}
	}
	return fmt.Sprintf("%d/%d", done, len(r.Status))
}

// deprecate turns a command into its former name: it is not listed, and refers to the name of today.
func deprecate(cmd *cobra.Command, s cli.Streams, use, name string) *cobra.Command {
	cmd.Use, cmd.Hidden = use, true
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		_, err := fmt.Fprintf(s.Err, "note: %q is deprecated; use \"buildyard %s\"\n", cmd.CommandPath(), name)
		return err
	}
	return cmd
}

// templateRemovals is the former name of the command evictions.
func templateRemovals(s cli.Streams) *cobra.Command {
	cmd := templateEvictions(s)
	return deprecate(cmd, s, "removals [REQUEST]", "template evictions")
}

func templateEvictions(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listOptions
	cmd := a.addForItems(&cobra.Command{
		Use: "evictions [REQUEST]", Short: "List evictions from node caches", Args: cobra.MaximumNArgs(1),
		Long:              `evictions lists evictions from node caches, or shows one with the result of each node.`,
		Example:           `  buildyard template evictions --watch`,
		ValidArgsFunction: removals.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			look := func(ctx context.Context) ([]api.Removal, error) { return a.API.Removals(ctx, o.ListOptions) }
			return showItems(cmd.Context(), &a, &o, removalView, look)
		}
		if o.watch {
			return cli.Usage(errors.New("--watch and REQUEST are mutually exclusive"))
		}
		id, err := removals.find(cmd.Context(), a.API, args[0])
		if err != nil {
			return err
		}
		got, err := callAPI(cmd.Context(),
			func(ctx context.Context) (api.Removal, error) { return a.API.Removal(ctx, id) })
		if err != nil {
			return removals.nameNotFound(err, args[0])
		}
		return printOne(&a, got, id, func(g *cli.Grid, r api.Removal) {
			printDetails(g, removalView, r)
			for _, node := range slices.Sorted(maps.Keys(r.Status)) {
				g.Row("node "+node, removalText(r.Status[node]))
			}
		})
	})
	o.add(cmd, "filter", "limit", "after", "watch")
	return cmd
}

// removalText describes the progress of an eviction on a node.
func removalText(s api.RemoveStatus) string {
	if !s.Status && s.Error == "" {
		return "queued"
	}
	text := fmt.Sprintf("%d removed, %d in use", s.Removed, s.Kept)
	if s.Error != "" {
		text += "  " + s.Error
	}
	return text
}

func templateCancel(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	return a.Add(&cobra.Command{
		Use: "cancel REQUEST", Short: "Cancel a distribution", Args: cobra.ExactArgs(1),
		Long:              `cancel stops a distribution. Nodes that have cached the version keep it.`,
		Example:           `  buildyard template cancel 0197e1c2`,
		ValidArgsFunction: distributions.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		id, err := distributions.find(cmd.Context(), a.API, args[0])
		if err != nil {
			return err
		}
		if err := a.API.CancelDistribution(cmd.Context(), id); err != nil {
			return distributions.nameNotFound(err, args[0])
		}
		return a.printDone(id, "canceled")
	})
}
