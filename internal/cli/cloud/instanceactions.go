package cloud

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
)

// terminateOptions are the options of instance terminate.
type terminateOptions struct {
	Command
	waitOptions
	filter string
	yes    cli.Confirmation
}

func instanceTerminate(s cli.Streams) *cobra.Command {
	o := terminateOptions{Command: Command{Streams: s}}
	cmd := o.Add(&cobra.Command{
		Use: "terminate INSTANCE... | --filter TERMS", Aliases: []string{"delete", "rm"}, Short: "Terminate instances",
		Long: `terminate terminates instances and deletes their VMs, in any state. It accepts IDs, unique prefixes of
IDs and names, or a filter, and prints a result for each instance.

The exit code is 7 when some of several terminations failed.`,
		Example: `  buildyard instance terminate 0197e1c2 nightly
  buildyard instance terminate --filter 'state:error age>1h' --yes --wait`,
		ValidArgsFunction: instances.completeArgs(0),
	}, func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) })
	cmd.Flags().StringVar(&o.filter, "filter", "",
		"filter terms of the instances to terminate, such as 'state:error age>10m'")
	o.addWaitFlags(cmd, "until their VMs are deleted")
	o.yes.Add(cmd)
	return cmd
}

func (o *terminateOptions) run(ctx context.Context, args []string) error {
	ids, err := o.selectedIDs(ctx, args)
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		if err := o.yes.Ask(ctx, o.Streams, "Terminate %s?", countText(len(ids), "instance")); err != nil {
			return err
		}
	}
	results := runOnEach(ctx, ids, "Terminating", func(ctx context.Context, id string) error {
		return instances.nameNotFound(o.API.Terminate(ctx, id), id)
	})
	var cut error
	if o.wait {
		cut = o.waitWithTimeout(ctx, "the termination continues",
			func(ctx context.Context) error { return o.waitTerminated(ctx, results) })
	}
	if err := o.printResults(results); cut == nil {
		return err
	}
	return cut
}

// waitTerminated waits for the end of instances and shows the progress.
func (a *Command) waitTerminated(ctx context.Context, all []itemResult) error {
	m := newProgressMeter(a.Err)
	for _, r := range all {
		if r.err == nil {
			m.expectItems(r.ID)
		}
	}
	runOnSucceeded(ctx, all, "gone", func(ctx context.Context, id string) error {
		err := a.API.WaitGone(ctx, id)
		if err == nil {
			m.updateItem(id, "gone", 1)
		}
		return err
	})
	m.end()
	if ctx.Err() != nil {
		return interruptedWaitError(ctx, all)
	}
	return nil
}

// selectedIDs returns the IDs of the instances to terminate.
func (o *terminateOptions) selectedIDs(ctx context.Context, args []string) (ids []string, err error) {
	terms := strings.TrimSpace(o.filter) // an empty filter matches everything
	if (terms == "") == (len(args) == 0) {
		return nil, cli.Usage(errors.New("instances or --filter required; nothing was done"))
	}
	if terms == "" {
		return instances.findAll(ctx, o.API, args)
	}
	if err := o.checkFiltersSupported(ctx); err != nil {
		return nil, err
	}
	list, err := o.API.Instances(ctx, client.ListOptions{Filter: terms})
	for _, i := range list {
		ids = append(ids, i.InstanceID)
	}
	return ids, err
}

// checkFiltersSupported checks that the controller supports filters: an older one would return every
// instance, and every instance would be terminated.
func (o *terminateOptions) checkFiltersSupported(ctx context.Context) error {
	_, err := o.API.Instances(ctx, client.ListOptions{Filter: "no_such_field:x", Limit: 1})
	switch {
	case err == nil:
		return errors.New("the controller does not support filters; nothing was done")
	case errors.Is(err, client.ErrInvalid):
		return nil
	}
	return err
}

// findAll returns the IDs of the items that a user names, each once.
func (k recordKind) findAll(ctx context.Context, c *client.Controller, texts []string) (ids []string, err error) {
	seen := map[string]bool{}
	for _, text := range texts {
		id, err := k.find(ctx, c, text)
		if err != nil {
			return nil, err
		}
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func countText(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func instanceUpdate(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var name, external string
	var ttl time.Duration
	var metadata map[string]string
	cmd := a.Add(&cobra.Command{
		Use: "update INSTANCE", Short: "Update an instance's metadata", Args: cobra.ExactArgs(1),
		Long: `update changes the given fields of an instance: name, external ID, metadata (replaced as a whole) or
time to live. --ttl counts from now; 0 removes it.`,
		Example: `  buildyard instance update 0197e1c2 --name nightly --metadata branch=main,build=17
  buildyard instance update nightly --ttl 2h`,
		ValidArgsFunction: instances.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		fs := cmd.Flags()
		var u client.InstanceUpdate
		if fs.Changed("name") {
			u.Name = &name
		}
		if fs.Changed("external-id") {
			u.ExternalID = &external
		}
		if fs.Changed("ttl") {
			u.TTL = (*client.Duration)(&ttl)
		}
		if fs.Changed("metadata") {
			u.Metadata = map[string]any{}
			for key, value := range metadata {
				u.Metadata[key] = value
			}
		}
		if u.Name == nil && u.ExternalID == nil && u.TTL == nil && u.Metadata == nil {
			return cli.Usage(errors.New("no change given; at least one option is required"))
		}
		return a.runOnItem(cmd.Context(), instances, args[0], "updated", func(ctx context.Context, id string) error {
			return a.API.UpdateInstance(ctx, id, u)
		})
	})
	cmd.Flags().StringVar(&name, "name", "", "name")
	cmd.Flags().StringVar(&external, "external-id", "", "external ID: the ID in another system")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "time to live from now; 0: unlimited")
	cmd.Flags().StringToStringVarP(&metadata, "metadata", "m", nil, "metadata as key=value; repeatable")
	return cmd
}

// runOnItem runs an operation on one item and prints the result.
func (a *Command) runOnItem(
	ctx context.Context, k recordKind, text, done string, do func(ctx context.Context, id string) error,
) error {
	id, err := k.find(ctx, a.API, text)
	if err != nil {
		return err
	}
	if err := do(ctx, id); err != nil {
		return k.nameNotFound(err, text)
	}
	return a.printDone(id, done)
}

// printDone prints the result for one item.
func (a *Command) printDone(id, what string) error {
	return a.Output.Write(a.Out, itemResult{ID: id, Outcome: what}, func(g *cli.Grid) { g.Row(id, what) })
}

func instanceRestart(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var r client.RestartRequest
	var w waitOptions
	cmd := a.Add(&cobra.Command{
		Use: "restart INSTANCE", Short: "Restart an instance (hard reset)", Args: cobra.ExactArgs(1),
		Long: `restart stops the VM of a started instance (hard reset) and starts it again. With --wait it waits until
the VM runs.`,
		Example:           `  buildyard instance restart nightly --wait --timeout 5m`,
		ValidArgsFunction: instances.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		done := "restarting"
		if w.wait {
			done = "restarted"
		}
		return a.runOnItem(cmd.Context(), instances, args[0], done, func(ctx context.Context, id string) error {
			before, err := a.API.Instance(ctx, id)
			if err != nil {
				return err
			}
			r.InstanceID = id
			if err := a.API.Restart(ctx, r); err != nil || !w.wait {
				return err
			}
			return w.waitWithTimeout(ctx, "the restart continues", func(ctx context.Context) error {
				_, err := a.API.WaitRestarted(ctx, id, vmInfoOf(before).StartDate)
				return err
			})
		})
	})
	cmd.Flags().StringVar(&r.USBDevice, "usb", "", "USB device to attach (claim name or location)")
	cmd.Flags().StringVar(&r.VNCPassword, "vnc-password", "", "VNC password of the console")
	w.addWaitFlags(cmd, "until the VM runs again")
	return cmd
}

// waitConditions are the values of instance wait --for.
var waitConditions = []string{"started", "script", "gone"}

func instanceWait(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	what := waitConditions[0]
	var w waitOptions
	cmd := a.Add(&cobra.Command{
		Use: "wait INSTANCE...", Short: "Wait for instances", Args: cobra.MinimumNArgs(1),
		Long: `wait waits until instances are Started, until their monitored scripts have ended, or until they are
gone. It fails as soon as that is impossible or a script failed, and with exit code 4 when --timeout
has passed.`,
		Example: `  buildyard instance wait 0197e1c2 --timeout 10m
  buildyard instance wait nightly --for script`,
		ValidArgsFunction: instances.completeArgs(0),
	}, func(cmd *cobra.Command, args []string) error {
		ids, err := instances.findAll(cmd.Context(), a.API, args)
		if err != nil {
			return err
		}
		return w.waitWithTimeout(cmd.Context(), "", func(ctx context.Context) error {
			switch what {
			case "started":
				return a.awaitStarted(ctx, ids)
			case "gone":
				results := runOnEach(ctx, ids, "", func(context.Context, string) error { return nil })
				if err := a.waitTerminated(ctx, results); err != nil {
					return err
				}
				return a.printResults(results)
			}
			results := runOnEach(ctx, ids, "script done", a.awaitScript)
			if ctx.Err() != nil {
				return interruptedWaitError(ctx, results)
			}
			return a.printResults(results)
		})
	})
	w.addCheck(cmd, func() error {
		if !slices.Contains(waitConditions, what) {
			return fmt.Errorf("invalid --for %q: want one of %s", what, strings.Join(waitConditions, ", "))
		}
		return nil
	})
	cmd.Flags().StringVar(&what, "for", what, "condition to wait for: started, script or gone")
	_ = cmd.RegisterFlagCompletionFunc("for",
		cobra.FixedCompletions(waitConditions, cobra.ShellCompDirectiveNoFileComp))
	w.addTimeoutFlag(cmd)
	return cmd
}

// awaitScript waits for a script and fails when it did.
func (a *Command) awaitScript(ctx context.Context, id string) error {
	r, err := a.API.WaitScript(ctx, id)
	if err != nil {
		return instances.nameNotFound(err, id)
	}
	if r.ReturnCode != 0 || r.DidTimeout {
		return fmt.Errorf("the script of instance %s failed: %s", id, scriptText(*r))
	}
	return nil
}
