package cloud

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
)

// adoptOptions are the options of node adopt.
type adoptOptions struct {
	Command
	Keep, Remove, DryRun bool
	VMs                  []string
	Yes                  cli.Confirmation
}

func adoptCommand(streams cli.Streams) *cobra.Command {
	o := adoptOptions{Command: Command{Streams: streams}}
	cmd := o.Add(&cobra.Command{
		Use:   "adopt [node id or name]",
		Short: "List, adopt or remove orphaned VMs",
		Long: `adopt decides about VMs that run on nodes and that no record owns. There are such VMs after
the records of the cloud were restored from a backup or lost, or when the controller runs
on the wrong data directory: look at that first, before deciding anything.

A few of them are leaks, and are removed after some minutes. When there are three or more on a
node and they are more than 20 % of its VMs, or more than 20 % on many nodes, none of these is
removed until you say what becomes of them:

  without an option  list them
  --keep             make instances of them again: they are listed, and can be terminated
  --remove           let them be removed

What only the lost record knew does not come back: names, external ids, groups, metadata.
Kept ones have "adopted": true in their metadata. Both may be asked for again.`,
		Example: `  buildyard node adopt
  buildyard node adopt mac-03 --keep --dry-run
  buildyard node adopt mac-03 --keep
  buildyard node adopt mac-03 --remove --yes --vm 0197e1c2-54a3-7c11-9f5e-0d6f4f0a1b22`,
		Args: cobra.MaximumNArgs(1),
	}, o.run)
	fs := cmd.Flags()
	fs.BoolVar(&o.Keep, "keep", false, "make instances of them")
	fs.BoolVar(&o.Remove, "remove", false, "remove them, however many they are; asks first")
	fs.BoolVar(&o.DryRun, "dry-run", false, "only say what would become of them")
	fs.StringArrayVar(&o.VMs, "vm", nil, "only the one with this id; may be given several times")
	cmd.MarkFlagsMutuallyExclusive("keep", "remove")
	o.Yes.Add(cmd)
	cmd.ValidArgsFunction = o.complete
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
		return cli.Usage(errors.New("--keep and --remove need a node: give its id or name"))
	case !decides && (o.DryRun || len(o.VMs) > 0):
		return cli.Usage(errors.New("--dry-run and --vm need --keep or --remove"))
	case decides:
		return o.decide(cmd.Context(), node)
	}
	got, err := ask(cmd.Context(), func(ctx context.Context) ([]api.OrphanedVM, error) { return o.API.UnknownVMs(ctx, node) })
	if err != nil {
		return nodes.named(err, node)
	}
	return single(&o.Command, got, "", func(g *cli.Grid, list []api.OrphanedVM) {
		if len(list) == 0 {
			g.Row("every VM belongs to an instance")
			return
		}
		g.Row("NODE", "ID", "VM", "TEMPLATE", "STATUS", "SINCE", "FATE")
		for _, u := range list {
			g.Row(u.NodeName, u.ID, u.Name, joined(u.Template, u.Tag), u.Status, u.Since.Local().Format(time.DateTime), u.Fate)
		}
	})
}

// joined writes template and tag as one word.
func joined(template, tag string) string {
	if tag == "" {
		return template
	}
	return template + ":" + tag
}

// decide requests the adoption and shows the result for each VM. It fails when some were refused.
func (o *adoptOptions) decide(ctx context.Context, node string) error {
	adoption := api.Adoption{Node: node, Action: "keep", VMs: o.VMs, DryRun: o.DryRun}
	if o.Remove {
		adoption.Action = "remove"
		if !o.DryRun {
			if err := o.Yes.Ask(ctx, o.Streams, "Remove the VMs of %s that belong to no instance?", node); err != nil {
				return err
			}
		}
	}
	got, err := ask(ctx, func(ctx context.Context) ([]api.Adopted, error) { return o.API.Adopt(ctx, adoption) })
	if err != nil {
		return nodes.named(err, node)
	}
	refused := 0
	err = single(&o.Command, got, "", func(g *cli.Grid, list []api.Adopted) {
		if len(list) == 0 {
			g.Row("every VM of the node belongs to an instance")
		}
		for _, done := range list {
			g.Row(done.ID, o.tense(done.Outcome), done.Why)
		}
	})
	for _, done := range got.value {
		if done.Outcome == "refused" {
			refused++
		}
	}
	if err == nil && refused > 0 {
		err = fmt.Errorf("%d of %d VMs stay as they are", refused, len(got.value))
	}
	return err
}

func (o *adoptOptions) tense(outcome string) string {
	if o.DryRun {
		return "would be " + outcome
	}
	return outcome
}

// complete returns the names of the nodes with orphaned VMs.
func (o *adoptOptions) complete(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, c, cancel, err := completing(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cancel()
	list, err := c.UnknownVMs(ctx, "")
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
