package cloud

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
)

// adoptOptions are the options of node adopt.
type adoptOptions struct {
	Command
	waitOptions
	Keep, Remove, DryRun bool
	VMs                  []string
	Yes                  cli.Confirmation
}

func adoptCommand(streams cli.Streams) *cobra.Command {
	o := adoptOptions{Command: Command{Streams: streams}}
	cmd := o.Add(&cobra.Command{
		Use:   "adopt [node ID or name]",
		Short: "List, adopt or remove orphaned VMs",
		Long: `adopt lists the orphaned VMs of the nodes (VMs without an instance record) or decides about them.
Orphaned VMs exist after the cloud's records were restored from a backup or lost, or when the
controller runs on the wrong data directory: check that first.

A few orphaned VMs are leaks, and are removed after some minutes. When a node has three or more and
they are more than 20 % of its VMs, or more than 20 % on many nodes, none of them is removed until
an operator decides:

  without an option  list them
  --keep             adopt them: create instances that are listed and can be terminated
  --remove           release them for removal

Names, external IDs, groups and metadata of a lost record are not restored. Adopted instances have
"adopted": true in their metadata. Either decision may be repeated.`,
		Example: `  buildyard node adopt
  buildyard node adopt mac-03 --keep --dry-run
  buildyard node adopt mac-03 --keep
  buildyard node adopt mac-03 --remove --wait
  buildyard node adopt mac-03 --remove --yes --vm 0197e1c2-54a3-7c11-9f5e-0d6f4f0a1b22`,
		Args: cobra.MaximumNArgs(1),
	}, o.run)
	fs := cmd.Flags()
	fs.BoolVar(&o.Keep, "keep", false, "adopt the orphaned VMs as instances")
	fs.BoolVar(&o.Remove, "remove", false,
		"release the orphaned VMs for removal, whatever their number; asks for confirmation")
	fs.BoolVar(&o.DryRun, "dry-run", false, "show the result without making changes")
	fs.StringArrayVar(&o.VMs, "vm", nil, "only the VM with this ID; repeatable")
	cmd.MarkFlagsMutuallyExclusive("keep", "remove")
	o.addWaitFlags(cmd, "until the node has adopted or removed the VMs")
	o.Yes.Add(cmd)
	cmd.ValidArgsFunction = o.completeNodes
	return cmd
}

func (o *adoptOptions) run(cmd *cobra.Command, args []string) error {
	node := ""
	if len(args) == 1 {
		node = args[0]
	}
	decides := o.Keep || o.Remove
	switch {
	case decides && node == "":
		return cli.Usage(errors.New("--keep and --remove require a node (ID or name)"))
	case !decides && (o.DryRun || len(o.VMs) > 0 || o.wait):
		return cli.Usage(errors.New("--dry-run, --vm and --wait require --keep or --remove"))
	case decides:
		return o.requestAdoption(cmd.Context(), node)
	}
	got, err := callAPI(cmd.Context(),
		func(ctx context.Context) ([]api.OrphanedVM, error) { return o.API.OrphanedVMs(ctx, node) })
	if err != nil {
		return nodes.nameNotFound(err, node)
	}
	return printOne(&o.Command, got, "", func(g *cli.Grid, list []api.OrphanedVM) {
		if len(list) == 0 {
			g.Row("no orphaned VMs")
			return
		}
		g.Row("NODE", "ID", "VM", "TEMPLATE", "STATUS", "SINCE", "ACTION")
		for _, u := range list {
			g.Row(u.NodeName, u.ID, u.Name, templateTag(u.Template, u.Tag), u.Status,
				u.Since.Local().Format(time.DateTime),
				u.Fate)
		}
	})
}

// templateTag writes template and tag as one word.
func templateTag(template, tag string) string {
	if tag == "" {
		return template
	}
	return template + ":" + tag
}

// requestAdoption requests the adoption and shows the result for each VM. It fails when some were refused.
func (o *adoptOptions) requestAdoption(ctx context.Context, node string) error {
	adoption := api.OrphanDecision{Node: node, Action: "keep", VMs: o.VMs, DryRun: o.DryRun}
	if o.Remove {
		adoption.Action = "remove"
		if !o.DryRun {
			if err := o.Yes.Ask(ctx, o.Streams, "Remove the orphaned VMs of %s?", node); err != nil {
				return err
			}
		}
	}
	got, err := callAPI(ctx,
		func(ctx context.Context) ([]api.OrphanOutcome, error) { return o.API.ResolveOrphanedVMs(ctx, adoption) })
	if err != nil {
		return nodes.nameNotFound(err, node)
	}
	refused, decided := 0, map[string]bool{}
	err = printOne(&o.Command, got, "", func(g *cli.Grid, list []api.OrphanOutcome) {
		if len(list) == 0 {
			g.Row("no orphaned VMs on the node")
		}
		for _, done := range list {
			g.Row(done.ID, o.outcomeText(done.Outcome), done.Why)
		}
	})
	for _, done := range got.value {
		if done.Outcome == "refused" {
			refused++
		} else {
			decided[done.ID] = true
		}
	}
	if err == nil && o.wait && !o.DryRun {
		err = o.waitWithTimeout(ctx, "the node continues; see \"buildyard node adopt "+node+"\"",
			func(ctx context.Context) error { return o.awaitDecided(ctx, node, decided) })
	}
	if err == nil && refused > 0 {
		err = fmt.Errorf("%d of %d VMs not changed", refused, len(got.value))
	}
	return err
}

// awaitDecided waits until VMs of a node are not orphaned any more.
func (o *adoptOptions) awaitDecided(ctx context.Context, node string, ids map[string]bool) error {
	for {
		list, err := o.API.OrphanedVMs(ctx, node)
		if err != nil {
			return nodes.nameNotFound(err, node)
		}
		if !slices.ContainsFunc(list, func(vm api.OrphanedVM) bool { return ids[vm.ID] }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(statusInterval):
		}
	}
}

func (o *adoptOptions) outcomeText(outcome string) string {
	if o.DryRun {
		return "would be " + outcome
	}
	return outcome
}

// completeNodes returns the names of the nodes with orphaned VMs.
func (o *adoptOptions) completeNodes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, c, cancel, err := openForCompletion(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cancel()
	list, err := c.OrphanedVMs(ctx, "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, u := range list {
		if len(names) == 0 || names[len(names)-1] != u.NodeName {
			names = append(names, u.NodeName)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
