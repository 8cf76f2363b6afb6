package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
)

func instanceCommand(s cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use: "instance", Aliases: []string{"instances", "vm"}, GroupID: CommandGroup,
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

var instanceView = tableView[api.InstanceItem]{
	itemID: func(i api.InstanceItem) string { return i.InstanceID },
	columns: []column[api.InstanceItem]{
		{title: "ID", value: func(i api.InstanceItem) any { return i.InstanceID }},
		{title: "NAME", value: func(i api.InstanceItem) any { return i.VM.Name }},
		{title: "STATE", value: func(i api.InstanceItem) any { return stateText(i.VM) }},
		{title: "PHASE", value: func(i api.InstanceItem) any { return i.VM.Phase }, wideOnly: true},
		{title: "TEMPLATE", value: func(i api.InstanceItem) any { return i.VM.VMID }, wideOnly: true},
		{title: "TAG", value: func(i api.InstanceItem) any { return i.VM.Tag }},
		{title: "NODE", value: func(i api.InstanceItem) any { return i.VM.NodeID }, wideOnly: true},
		{title: "IP", value: func(i api.InstanceItem) any { return vmInfoOf(i.VM).HostIP }},
		{title: "PORTS", value: func(i api.InstanceItem) any { return portsText(i.VM) }, wideOnly: true},
		{title: "EXTERNAL ID", value: func(i api.InstanceItem) any { return i.VM.ExternalID }, wideOnly: true},
		{title: "OWNER", value: func(i api.InstanceItem) any { return i.VM.Owner }, wideOnly: true},
		{title: "CREATED", value: func(i api.InstanceItem) any { return timeText(i.VM.CRTime) }},
		{title: "STARTED", value: func(i api.InstanceItem) any { return timeText(i.VM.Started) }, wideOnly: true},
		{title: "MESSAGE", value: func(i api.InstanceItem) any { return i.VM.Message }},
	},
}

// progressText formats the state of an instance that starts, with its phase where the state does not tell it.
func progressText(i api.Instance) string {
	if i.InstanceState == "Scheduling" && i.Phase != "" {
		return fmt.Sprintf("Scheduling (%s)", i.Phase)
	}
	return i.InstanceState
}

// stateText formats a state, with the progress of a pull.
func stateText(i api.Instance) string {
	if i.InstanceState == "Pulling" && i.Progress > 0 {
		return fmt.Sprintf("Pulling %d%%", int(100*i.Progress))
	}
	return i.InstanceState
}

func vmInfoOf(i api.Instance) api.VMInfo {
	if i.VMInfo == nil {
		return api.VMInfo{}
	}
	return *i.VMInfo
}

func portsText(i api.Instance) string {
	var out []string
	for _, p := range vmInfoOf(i).PortForwarding {
		out = append(out, fmt.Sprintf("%s:%d->%d", p.Name, p.HostPort, p.GuestPort))
	}
	return strings.Join(out, ",")
}

func instanceDetails(g *cli.Grid, i api.Instance) {
	vm := vmInfoOf(i)
	for _, row := range []struct {
		name  string
		value any
	}{
		{"id", i.InstanceID},
		{"name", i.Name},
		{"state", stateText(i)},
		{"phase", i.Phase},
		{"message", i.Message},
		{"failure", failureText(i.Failure)},
		{"remedy", remedyText(i.Failure)},
		{"failed likewise", equalFailuresText(i.Failure)},
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
		{"ports", portsText(i)},
		{"vnc", vm.VNC},
		{"mac address", i.MACAddress},
		{"vlan", i.VLAN},
		{"usb device", i.USBDevice},
		{"created", timeText(i.CRTime)},
		{"started", timeText(vm.StartDate)},
		{"changed", timeText(i.TS)},
		{"expires", timeText(i.Expires)},
	} {
		putRow(g, row.name, row.value)
	}
	for _, key := range slices.Sorted(maps.Keys(i.Metadata)) {
		g.Row("metadata "+key, i.Metadata[key])
	}
	if o := i.ScriptOutput; o != nil {
		state := "no result"
		if i.Phase == phaseStartupScript {
			state = "running"
		}
		g.Row("script", state+", last line: "+lastLine(*o))
	}
	if r := i.StartupScript; r != nil {
		g.Row("script", scriptText(*r))
	}
}

const (
	phaseStartupScript = "startup_script" // of an instance whose monitored script runs
	maxLastLine        = 200              // bytes
)

// lastLine returns the last line that a script has printed to stdout, else to stderr. A progress bar writes its lines
// over each other.
func lastLine(o api.ScriptOutput) string {
	text := cmp.Or(strings.TrimRight(o.Stdout, "\r\n"), strings.TrimRight(o.Stderr, "\r\n"))
	text = text[strings.LastIndexAny(text, "\r\n")+1:]
	return strings.ToValidUTF8(text[max(0, len(text)-maxLastLine):], "")
}

// failureText writes the class, the step and the summary of a failure; "" for none.
func failureText(f *api.InstanceFailure) string {
	if f == nil {
		return ""
	}
	return fmt.Sprintf("%s in step %s: %s", f.Class, f.Step, f.Summary)
}

// remedyText returns what to do about a failure; "" for none.
func remedyText(f *api.InstanceFailure) string {
	if f == nil {
		return ""
	}
	return f.Remedy
}

// equalFailuresText writes the numbers of failures that are equal to that of an instance, which they include; "" when
// no other instance failed so.
func equalFailuresText(f *api.InstanceFailure) string {
	if f == nil || f.SameTemplate < 2 && f.SameNode < 2 {
		return ""
	}
	return fmt.Sprintf("%d of this template version on %d nodes, %d on this node",
		f.SameTemplate, f.SameTemplateNodes, f.SameNode)
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
	var o listOptions
	cmd := a.addForItems(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List instances", Args: cobra.NoArgs,
		Long: `list shows the instances of the cloud, ordered by ID. With --watch it continues and prints each row
that changes.`,
		Example: `  buildyard instance list -o wide
  buildyard instance list --filter 'state:started node:mac-*' -o name
  buildyard instance list --external-id job-17 -o json`,
	}, func(cmd *cobra.Command, _ []string) error {
		look := func(ctx context.Context) ([]api.InstanceItem, error) { return a.API.Instances(ctx, o.ListOptions) }
		return showItems(cmd.Context(), &a, &o, instanceView, look)
	})
	o.add(cmd, "filter", "limit", "after", "watch")
	cmd.Flags().StringVar(&o.ExternalID, "external-id", "", "only instances with this external ID")
	return cmd
}

func instanceShow(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	cmd := a.addForItems(&cobra.Command{
		Use: "show INSTANCE", Short: "Show an instance", Args: cobra.ExactArgs(1),
		Long: `show prints the details of an instance.`,
		Example: `  buildyard instance show 0197e1c2
  buildyard instance show nightly -o json | jq -r .vminfo.host_ip`,
		ValidArgsFunction: instances.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		id, err := instances.find(cmd.Context(), a.API, args[0])
		if err != nil {
			return err
		}
		got, err := callAPI(cmd.Context(),
			func(ctx context.Context) (api.Instance, error) { return a.API.Instance(ctx, id) })
		if err != nil {
			return instances.nameNotFound(err, args[0])
		}
		return printOne(&a, got, id, instanceDetails)
	})
	return cmd
}

func instanceExplain(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	return a.Add(&cobra.Command{
		Use: "explain INSTANCE", Short: "Explain why an instance is pending", Args: cobra.ExactArgs(1),
		Long: `explain prints the pending reason of an instance, its place in the queue, the numbers of nodes that cannot
start it by cause with what can be done, and an evaluation of each node: eligible nodes come first, in
the order of their score. Of a running instance it prints how much of its disks is on the node, while
the rest of its template is pulled. The place is an estimate: owners take turns, and urgent requests go first.`,
		Example:           `  buildyard instance explain 0197e1c2`,
		ValidArgsFunction: instances.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		id, err := instances.find(cmd.Context(), a.API, args[0])
		if err != nil {
			return err
		}
		got, err := callAPI(cmd.Context(),
			func(ctx context.Context) (client.ExplainedInstance, error) { return a.API.Explain(ctx, id) })
		if err != nil {
			return instances.nameNotFound(err, args[0])
		}
		return printOne(&a, got, id, func(g *cli.Grid, e client.ExplainedInstance) {
			g.Row("state", stateText(e.Instance))
			putRow(g, "phase", e.Phase)
			g.Row("reason", e.Explain.Reason)
			if q := e.Explain.Queue; q != nil {
				g.Row("queue", queueText(*q))
			}
			if f := e.Explain.Fill; f != nil {
				g.Row("disk", fillText(*f))
			}
			for _, c := range e.Explain.Counts {
				g.Row(fmt.Sprintf("%d %s", c.Nodes, c.Text), c.Remedy)
			}
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

// fillText writes how much of an instance's disks is on its node.
func fillText(f api.DiskFill) string {
	text := fmt.Sprintf("%.0f %% on the node (%s of %s), %s/s", 100*f.Fraction, bytesize.Format(f.Bytes),
		bytesize.Format(f.Total), bytesize.Format(f.Rate))
	if f.Waiting >= api.LongDiskWait {
		text += fmt.Sprintf("; the guest has waited for the registry for %s",
			cli.FormatAge(time.Duration(f.Waiting)*time.Second))
	}
	if f.Problem != "" {
		text += ": " + f.Problem
	}
	return text
}

// queueText writes the place of an instance in a queue as a sentence.
func queueText(q api.QueuePlace) string {
	text := fmt.Sprintf("%d of %d", q.Position, q.Waiting)
	if q.ExpectedSeconds != nil {
		wait := time.Duration(*q.ExpectedSeconds) * time.Second
		text += fmt.Sprintf(", about %s at the rate of the last 10 minutes", cli.FormatAge(wait))
	}
	return text
}

var historyView = tableView[api.HistoryInstance]{
	itemID: func(p api.HistoryInstance) string { return p.InstanceID },
	columns: []column[api.HistoryInstance]{
		{title: "ID", value: func(p api.HistoryInstance) any { return p.InstanceID }},
		{title: "NAME", value: func(p api.HistoryInstance) any { return p.Name }},
		{title: "TEMPLATE", value: func(p api.HistoryInstance) any { return templateTag(p.TemplateName, p.Tag) }},
		{title: "NODE", value: func(p api.HistoryInstance) any { return p.NodeName }},
		{title: "EXTERNAL ID", value: func(p api.HistoryInstance) any { return p.ExternalID }, wideOnly: true},
		{title: "CREATED", value: func(p api.HistoryInstance) any { return timeText(p.CRTime) }},
		{title: "STARTED", value: func(p api.HistoryInstance) any { return timeText(p.Started) }, wideOnly: true},
		{title: "FINISHED", value: func(p api.HistoryInstance) any { return timeText(p.Finished) }},
		{title: "MESSAGE", value: func(p api.HistoryInstance) any { return p.Message }},
	},
}

func instanceHistory(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listOptions
	cmd := a.addForItems(&cobra.Command{
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
			return showItems(cmd.Context(), &a, &o, historyView, look)
		}
		got, err := callAPI(cmd.Context(),
			func(ctx context.Context) (api.HistoryInstance, error) { return a.API.HistoryInstance(ctx, args[0]) })
		if errors.Is(err, client.ErrNotFound) {
			return cli.Exit(cli.ExitNotFound,
				fmt.Errorf("instance %q not found in the history; a full ID is required", args[0]))
		}
		if err != nil {
			return err
		}
		return printOne(&a, got, args[0], historyDetails)
	})
	o.add(cmd, "filter", "limit", "after")
	cmd.Flags().StringVar(&o.ExternalID, "external-id", "", "only instances with this external ID")
	return cmd
}

func historyDetails(g *cli.Grid, p api.HistoryInstance) {
	putRow(g, "id", p.InstanceID)
	putRow(g, "name", p.Name)
	putRow(g, "template", templateTag(p.TemplateName, p.Tag))
	putRow(g, "node", p.NodeName)
	putRow(g, "external id", p.ExternalID)
	putRow(g, "message", p.Message)
	putRow(g, "failure", failureText(p.Failure))
	putRow(g, "remedy", remedyText(p.Failure))
	if p.ScriptCode != nil {
		g.Row("script", fmt.Sprint("exit code ", *p.ScriptCode))
	}
	for _, t := range p.Transitions {
		g.Row(transitionText(t), strings.TrimSpace(t.Time.Local().Format("2006-01-02 15:04:05.000")+"  "+t.Message))
	}
}

// transitionText names a state, and the boot of a VM, which is not a separate state.
func transitionText(t api.Transition) string {
	if t.State == "Scheduling" && t.Phase == "booting" {
		return "Scheduling (booting)"
	}
	return t.State
}

// listOptions are the options of a command that lists items.
type listOptions struct {
	client.ListOptions
	watch bool
}

func (o *listOptions) add(cmd *cobra.Command, which ...string) {
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

// showItems lists items, or watches them.
func showItems[T any](
	ctx context.Context, a *Command, o *listOptions, v tableView[T], look func(context.Context) ([]T, error),
) error {
	if o.Limit < 0 {
		return cli.Usage(errors.New("--limit must not be negative"))
	}
	if o.watch {
		return watchList(ctx, a, v, look)
	}
	got, err := callAPI(ctx, look)
	if err != nil {
		return err
	}
	return printList(a, got, v)
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
	}, func(cmd *cobra.Command, _ []string) error { return a.watchInstances(cmd.Context(), present) })
	cmd.Flags().BoolVar(&present, "present", true, "print the current instances first")
	return cmd
}

// watchInstances prints the changes of instances until it is interrupted.
func (a *Command) watchInstances(ctx context.Context, present bool) error {
	var width []int
	rows := [][]string{instanceView.titles(a.Output)}
	synced := present
	stream := a.API.WatchInstances(ctx, client.InstanceWatch{OnInterrupt: a.reportInterrupt})
	for c, err := range stream {
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !synced:
			synced = c.Type == client.ChangeSynced
			continue
		case a.Output == cli.JSON || a.Output == cli.YAML:
			if err := a.printDocument(c); err != nil {
				return err
			}
			continue
		case c.Type == client.ChangeSet:
			rows = append(rows, instanceView.cells(a.Output, c.Instance))
		case c.Type == client.ChangeGone:
			rows = append(rows, []string{c.InstanceID, "-", "gone"})
		}
		if c.Type == client.ChangeSynced || width != nil {
			width = columnWidths(width, rows)
			if err := a.printRows(rows, width); err != nil {
				return err
			}
			rows = nil
		}
	}
	return nil
}
