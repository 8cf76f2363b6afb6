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

func instanceCommand(s cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use: "instance", Aliases: []string{"instances", "vm"}, GroupID: Group,
		Short: "Manage instances",
		Long: `instance starts, lists, updates, saves and terminates instances. INSTANCE is an ID, a unique prefix of
an ID, a name or an external ID.`,
		Example: `  buildyard instance start debian --tag v12 --wait
  buildyard instance list --filter 'state:error age>10m'
  buildyard vm terminate --filter 'external_id:job-17*' --yes`,
	}, instanceList(s), instanceShow(s), instanceStart(s), instanceTerminate(s), instanceUpdate(s), instanceConsole(s),
		instanceRestart(s), instanceWait(s),
		instanceWatch(s), instanceHistory(s), instanceExplain(s), instanceSave(s))
}

var instanceView = view[api.InstanceItem]{
	id: func(i api.InstanceItem) string { return i.InstanceID },
	columns: []column[api.InstanceItem]{
		{head: "ID", cell: func(i api.InstanceItem) any { return i.InstanceID }},
		{head: "NAME", cell: func(i api.InstanceItem) any { return i.VM.Name }},
		{head: "STATE", cell: func(i api.InstanceItem) any { return stateOf(i.VM) }},
		{head: "TEMPLATE", cell: func(i api.InstanceItem) any { return i.VM.VMID }, wide: true},
		{head: "TAG", cell: func(i api.InstanceItem) any { return i.VM.Tag }},
		{head: "NODE", cell: func(i api.InstanceItem) any { return i.VM.NodeID }, wide: true},
		{head: "IP", cell: func(i api.InstanceItem) any { return vmInfo(i.VM).HostIP }},
		{head: "PORTS", cell: func(i api.InstanceItem) any { return ports(i.VM) }, wide: true},
		{head: "EXTERNAL ID", cell: func(i api.InstanceItem) any { return i.VM.ExternalID }, wide: true},
		{head: "CREATED", cell: func(i api.InstanceItem) any { return when(i.VM.CRTime) }},
		{head: "MESSAGE", cell: func(i api.InstanceItem) any { return i.VM.Message }},
	},
}

// stateOf formats a state, with the progress of a pull.
func stateOf(i api.Instance) string {
	if i.InstanceState == "Pulling" && i.Progress > 0 {
		return fmt.Sprintf("Pulling %d%%", int(100*i.Progress))
	}
	return i.InstanceState
}

func vmInfo(i api.Instance) api.VMInfo {
	if i.VMInfo == nil {
		return api.VMInfo{}
	}
	return *i.VMInfo
}

func ports(i api.Instance) string {
	var out []string
	for _, p := range vmInfo(i).PortForwarding {
		out = append(out, fmt.Sprintf("%s:%d->%d", p.Name, p.HostPort, p.GuestPort))
	}
	return strings.Join(out, ",")
}

func instanceDetails(g *cli.Grid, i api.Instance) {
	vm := vmInfo(i)
	for _, row := range []struct {
		name  string
		value any
	}{
		{"id", i.InstanceID},
		{"name", i.Name},
		{"state", stateOf(i)},
		{"message", i.Message},
		{"template", i.VMID},
		{"tag", i.Tag},
		{"version", fmt.Sprint("number ", i.Version)},
		{"node", i.NodeID},
		{"group", i.GroupID},
		{"external id", i.ExternalID},
		{"arch", i.Arch},
		{"vm", vm.UUID},
		{"vm name", vm.Name},
		{"vm status", vm.Status},
		{"cpus", vm.CPUCores},
		{"memory", vm.RAM},
		{"address", vm.HostIP},
		{"guest address", vm.IP},
		{"ports", ports(i)},
		{"vnc", vm.VNC},
		{"mac address", i.MACAddress},
		{"vlan", i.VLAN},
		{"usb device", i.USBDevice},
		{"created", when(i.CRTime)},
		{"started", when(vm.StartDate)},
		{"changed", when(i.TS)},
		{"expires", when(i.Expires)},
	} {
		put(g, row.name, row.value)
	}
	for _, key := range slices.Sorted(maps.Keys(i.Metadata)) {
		g.Row("metadata "+key, i.Metadata[key])
	}
	if r := i.StartupScript; r != nil {
		g.Row("script", scriptText(*r))
	}
}

// scriptText describes in one line how a script ended.
func scriptText(r api.ScriptResult) string {
	if r.DidTimeout {
		return "timed out"
	}
	return fmt.Sprintf("exit code %d, %d bytes of output", r.ReturnCode, len(r.Stdout)+len(r.Stderr))
}

func instanceList(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listing
	cmd := a.addAll(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List instances", Args: cobra.NoArgs,
		Long: `list shows the instances of the cloud, ordered by ID. With --watch it continues and prints each row
that changes.`,
		Example: `  buildyard instance list -o wide
  buildyard instance list --filter 'state:started node:mac-*' -o name
  buildyard instance list --external-id job-17 -o json`,
	}, func(cmd *cobra.Command, _ []string) error {
		look := func(ctx context.Context) ([]api.InstanceItem, error) { return a.API.Instances(ctx, o.ListOptions) }
		return show(cmd.Context(), &a, &o, instanceView, look)
	})
	o.add(cmd, "filter", "limit", "after", "watch")
	cmd.Flags().StringVar(&o.ExternalID, "external-id", "", "only instances with this external ID")
	return cmd
}

func instanceShow(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	cmd := a.addAll(&cobra.Command{
		Use: "show INSTANCE", Short: "Show an instance", Args: cobra.ExactArgs(1),
		Long: `show prints the details of an instance.`,
		Example: `  buildyard instance show 0197e1c2
  buildyard instance show nightly -o json | jq -r .vminfo.host_ip`,
		ValidArgsFunction: instances.complete(1),
	}, func(cmd *cobra.Command, args []string) error {
		id, err := instances.find(cmd.Context(), a.API, args[0])
		if err != nil {
			return err
		}
		got, err := ask(cmd.Context(),
			func(ctx context.Context) (api.Instance, error) { return a.API.Instance(ctx, id) })
		if err != nil {
			return instances.named(err, args[0])
		}
		return single(&a, got, id, instanceDetails)
	})
	return cmd
}

func instanceExplain(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	return a.Add(&cobra.Command{
		Use: "explain INSTANCE", Short: "Explain why an instance is pending", Args: cobra.ExactArgs(1),
		Long: `explain prints the pending reason of an instance and an evaluation of each node: eligible nodes come
first, in the order of their score.`,
		Example:           `  buildyard instance explain 0197e1c2`,
		ValidArgsFunction: instances.complete(1),
	}, func(cmd *cobra.Command, args []string) error {
		id, err := instances.find(cmd.Context(), a.API, args[0])
		if err != nil {
			return err
		}
		got, err := ask(cmd.Context(),
			func(ctx context.Context) (client.ExplainedInstance, error) { return a.API.Explain(ctx, id) })
		if err != nil {
			return instances.named(err, args[0])
		}
		return single(&a, got, id, func(g *cli.Grid, e client.ExplainedInstance) {
			g.Row("state", stateOf(e.Instance))
			g.Row("reason", e.Explain.Reason)
			for _, n := range e.Explain.Nodes {
				if n.CanStart {
					g.Row("node "+n.NodeName, "eligible: "+n.Score)
				} else {
					g.Row("node "+n.NodeName, "not eligible: "+n.Reason)
				}
			}
		})
	})
}

var pastView = view[api.HistoryInstance]{
	id: func(p api.HistoryInstance) string { return p.InstanceID },
	columns: []column[api.HistoryInstance]{
		{head: "ID", cell: func(p api.HistoryInstance) any { return p.InstanceID }},
		{head: "NAME", cell: func(p api.HistoryInstance) any { return p.Name }},
		{head: "TEMPLATE", cell: func(p api.HistoryInstance) any { return joined(p.TemplateName, p.Tag) }},
		{head: "NODE", cell: func(p api.HistoryInstance) any { return p.NodeName }},
		{head: "EXTERNAL ID", cell: func(p api.HistoryInstance) any { return p.ExternalID }, wide: true},
		{head: "CREATED", cell: func(p api.HistoryInstance) any { return when(p.CRTime) }},
		{head: "STARTED", cell: func(p api.HistoryInstance) any { return when(p.Started) }, wide: true},
		{head: "FINISHED", cell: func(p api.HistoryInstance) any { return when(p.Finished) }},
		{head: "MESSAGE", cell: func(p api.HistoryInstance) any { return p.Message }},
	},
}

func instanceHistory(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listing
	cmd := a.addAll(&cobra.Command{
		Use: "history [INSTANCE]", Short: "Show terminated instances", Args: cobra.MaximumNArgs(1),
		Long: `history shows the terminated instances of the last 24 hours, the newest first. With the full ID of an
instance it shows the history of its states.`,
		Example: `  buildyard instance history --limit 20
  buildyard instance history 0197e1c2-54a3-7c11-9f5e-0d6f4f0a1b22`,
	}, func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			look := func(ctx context.Context) ([]api.HistoryInstance, error) {
				return a.API.History(ctx, o.ListOptions)
			}
			return show(cmd.Context(), &a, &o, pastView, look)
		}
		got, err := ask(cmd.Context(),
			func(ctx context.Context) (api.HistoryInstance, error) { return a.API.HistoryInstance(ctx, args[0]) })
		if errors.Is(err, client.ErrNotFound) {
			return cli.Exit(cli.ExitNotFound,
				fmt.Errorf("instance %q not found in the history; a full ID is required", args[0]))
		}
		if err != nil {
			return err
		}
		return single(&a, got, args[0], pastDetails)
	})
	o.add(cmd, "filter", "limit", "after")
	cmd.Flags().StringVar(&o.ExternalID, "external-id", "", "only instances with this external ID")
	return cmd
}

func pastDetails(g *cli.Grid, p api.HistoryInstance) {
	put(g, "id", p.InstanceID)
	put(g, "name", p.Name)
	put(g, "template", joined(p.TemplateName, p.Tag))
	put(g, "node", p.NodeName)
	put(g, "external id", p.ExternalID)
	put(g, "message", p.Message)
	if p.ScriptCode != nil {
		g.Row("script", fmt.Sprint("exit code ", *p.ScriptCode))
	}
	for _, t := range p.Transitions {
		g.Row(t.State, strings.TrimSpace(t.Time.Local().Format("2006-01-02 15:04:05.000")+"  "+t.Message))
	}
}

// listing are the options of a command that lists items.
type listing struct {
	client.ListOptions
	watch bool
}

func (o *listing) add(cmd *cobra.Command, which ...string) {
	fs := cmd.Flags()
	for _, name := range which {
		switch name {
		case "filter":
			fs.StringVar(&o.Filter, "filter", "", "filter terms, such as 'state:error age>10m'")
		case "limit":
			fs.IntVar(&o.Limit, "limit", 0, "maximum results (default: all)")
		case "after":
			fs.StringVar(&o.After, "after", "", "only items after this ID")
		case "watch":
			fs.BoolVarP(&o.watch, "watch", "w", false, "continue and print changes")
		}
	}
}

// show lists items, or watches them.
func show[T any](
	ctx context.Context, a *Command, o *listing, v view[T], look func(context.Context) ([]T, error),
) error {
	if o.Limit < 0 {
		return cli.Usage(errors.New("--limit must not be negative"))
	}
	if o.watch {
		return follow(ctx, a, v, look)
	}
	got, err := ask(ctx, look)
	if err != nil {
		return err
	}
	return list(a, got, v)
}

func instanceWatch(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	present := true
	cmd := a.Add(&cobra.Command{
		Use: "watch", Short: "Watch instances", Args: cobra.NoArgs,
		Long: `watch prints all instances and then each change, until it is interrupted. After a broken connection
it resumes; instances that ended in between are shown as gone. With -o json it prints one object
per line with the type set, gone or synced.`,
		Example: `  buildyard instance watch
  buildyard instance watch --present=false -o json | jq -r 'select(.type=="set") | .instance.vm.instance_state'`,
	}, func(cmd *cobra.Command, _ []string) error { return a.watch(cmd.Context(), present) })
	cmd.Flags().BoolVar(&present, "present", true, "print the current instances first")
	return cmd
}

// watch prints the changes of instances until it is interrupted.
func (a *Command) watch(ctx context.Context, present bool) error {
	var width []int
	rows := [][]string{instanceView.heads(a.Output)}
	told := present
	stream := a.API.Watch(ctx, client.WatchOptions{OnInterrupt: a.interrupted})
	for c, err := range stream {
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !told:
			told = c.Type == client.ChangeSynced
			continue
		case a.Output == cli.JSON || a.Output == cli.YAML:
			if err := a.line(c); err != nil {
				return err
			}
			continue
		case c.Type == client.ChangeSet:
			rows = append(rows, instanceView.cells(a.Output, c.Instance))
		case c.Type == client.ChangeGone:
			rows = append(rows, []string{c.InstanceID, "-", "gone"})
		}
		if c.Type == client.ChangeSynced || width != nil {
			width = widths(width, rows)
			if err := a.rows(rows, width); err != nil {
				return err
			}
			rows = nil
		}
	}
	return nil
}
