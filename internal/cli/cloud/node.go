package cloud

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
)

// NodeCommands returns the commands about nodes that call a controller.
func NodeCommands(s cli.Streams) []*cobra.Command {
	return []*cobra.Command{
		nodeList(s), nodeShow(s), nodeConfig(s), nodeDrain(s), nodeUndrain(s), nodeDelete(s), nodeUpdate(s),
		nodeGroup(s), nodeScan(s), adoptCommand(s),
	}
}

var nodeView = tableView[api.Node]{
	itemID: func(n api.Node) string { return n.NodeID },
	columns: []column[api.Node]{
		{title: "ID", value: func(n api.Node) any { return n.NodeID }},
		{title: "NAME", value: func(n api.Node) any { return n.NodeName }},
		{title: "STATE", value: func(n api.Node) any { return n.State }},
		{title: "VMS", value: func(n api.Node) any { return fmt.Sprintf("%d/%d", n.VMCount, n.Capacity) }},
		{title: "ARCH", value: func(n api.Node) any { return n.HostArch }},
		{title: "ADDRESS", value: func(n api.Node) any { return n.IPAddress }},
		{title: "GROUPS", value: func(n api.Node) any { return groupNames(n.Groups) }},
		{title: "AGENT", value: func(n api.Node) any { return n.AgentVersion }},
		{title: "CPUS", value: func(n api.Node) any { return n.CPUCount }, wideOnly: true},
		{title: "RAM", value: func(n api.Node) any { return fmt.Sprintf("%d GiB", n.RAM) }, wideOnly: true},
		{title: "DISK FREE", value: func(n api.Node) any { return bytesize.Format(n.FreeDisk) }, wideOnly: true},
		{title: "CLOCK", value: clockText, wideOnly: true},
		{title: "REASON", value: func(n api.Node) any { return n.StateReason }, wideOnly: true},
	},
}

// clockText formats by how much a node's clock is ahead of the controller's.
func clockText(n api.Node) any {
	if n.ClockOffset == nil {
		return ""
	}
	return fmt.Sprintf("%+.0fs", *n.ClockOffset)
}

func groupNames(list []api.Group) string {
	names := make([]string, len(list))
	for i, g := range list {
		names[i] = g.Name
	}
	return strings.Join(names, ",")
}

func nodeDetails(g *cli.Grid, n api.Node) {
	printDetails(g, nodeView, n)
	putRow(g, "since", timeText(n.StateSince))
	if d := n.Drain; d != nil {
		putRow(g, "drained since", timeText(d.Since))
		putRow(g, "drain reason", d.Reason)
		putRow(g, "drain deadline", timeText(d.Deadline))
		g.Row("remaining instances", d.Remaining)
	}
	if u := n.Update; u != nil {
		g.Row("update", fmt.Sprintf("to %s, tries %d", u.Version, u.Tries))
		putRow(g, "update failed", u.Failure)
		putRow(g, "next try", timeText(u.Next))
	}
	putRow(g, "hypervisor", strings.TrimSpace(n.AnkaVersion.Product+" "+n.AnkaVersion.Version))
	putRow(g, "processor", n.Processor)
	putRow(g, "operating system", n.OSVersion)
	putRow(g, "capacity mode", n.CapacityMode)
	putRow(g, "cpus allocated", n.VCPUCount)
	putRow(g, "memory allocated", fmt.Sprintf("%d MiB", n.VRAM))
	putRow(g, "disk", bytesize.Format(n.DiskSize))
	putRow(g, "orphaned vms", n.UnknownVMs)
	if p := n.Peer; p != nil {
		g.Row("peer address", p.Address)
		g.Row("sent to peers", bytesize.Format(p.ServedBytes))
		g.Row("read from peers", bytesize.Format(p.FetchedBytes))
		if p.Reports > 0 {
			g.Row("wrong bytes sent", peerReportsText(*p))
		}
	}
	if s := n.Slots; s != nil {
		g.Row("slots", s.Capacity, "free", s.Free)
		g.Row("slots taken", fmt.Sprintf("%d running, %d failed, %d orphaned, %d other", s.Running, s.Failed,
			s.Orphaned,
			s.Other))
		for _, h := range s.Holders {
			putRow(g, "slot "+h.Use, strings.TrimSpace(cmp.Or(h.InstanceID, h.VMID)+" "+h.Name+" "+h.State))
			if h.Fill != nil {
				g.Row("disk", fillText(*h.Fill))
			}
		}
	}
	putRow(g, "vlans", strings.Join(n.VLANs, ","))
	for _, u := range n.USBDevices {
		g.Row("usb device", fmt.Sprintf("%s at %s, %s", u.Name, u.Location,
			map[bool]string{true: "busy", false: "free"}[u.Busy]))
	}
	for _, t := range n.Templates {
		g.Row("cached template", templateTag(t.Name, t.Tag))
	}
	putRow(g, "last contact", timeText(n.LastUpdated))
}

// peerReportsText describes that nodes got wrong bytes from a node.
func peerReportsText(p api.NodePeer) string {
	if p.Excluded {
		return fmt.Sprintf("to %d nodes; no node reads from it now", p.Reports)
	}
	return "to 1 node, which reads nothing from it now"
}

func nodeList(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listOptions
	cmd := a.addForItems(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List nodes", Args: cobra.NoArgs,
		Long: `list shows the nodes of the cloud. With --watch it continues and prints each row that changes.`,
		Example: `  buildyard node list -o wide
  buildyard node list --filter 'state:offline' --watch`,
	}, func(cmd *cobra.Command, _ []string) error {
		look := func(ctx context.Context) ([]api.Node, error) { return a.API.Nodes(ctx, o.ListOptions) }
		return showItems(cmd.Context(), &a, &o, nodeView, look)
	})
	o.add(cmd, "filter", "limit", "after", "watch")
	return cmd
}

func nodeShow(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	return a.addForItems(&cobra.Command{
		Use: "show NODE", Short: "Show a node", Args: cobra.ExactArgs(1),
		Long:              `show prints the details of a node. With -o json it is an array with one element, like the API response.`,
		Example:           `  buildyard node show mac-03`,
		ValidArgsFunction: nodes.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		id, err := nodes.find(cmd.Context(), a.API, args[0])
		if err != nil {
			return err
		}
		got, err := callAPI(cmd.Context(), func(ctx context.Context) (api.Node, error) { return a.API.Node(ctx, id) })
		if err != nil {
			return nodes.nameNotFound(err, args[0])
		}
		return printOne(&a, got, id, nodeDetails)
	})
}

// smallRAMLimit in MiB is so little that the caller may have meant GiB.
const smallRAMLimit = 1024

func nodeConfig(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var n client.NodeConfig
	var vcpu, ram int
	var logs bool
	cmd := a.Add(&cobra.Command{
		Use: "config NODE", Short: "Update a node's configuration", Args: cobra.ExactArgs(1),
		Long: `config changes the given fields of a node: name, address, capacity. In capacity mode number a node runs
up to --capacity VMs; in mode resource as many as its cores and memory, or --vcpu-limit and
--ram-limit, allow.`,
		Example: `  buildyard node config mac-03 --capacity 4
  buildyard node config mac-03 --capacity-mode resource --vcpu-limit 24`,
		ValidArgsFunction: nodes.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		fs := cmd.Flags()
		if fs.Changed("vcpu-limit") {
			n.VCPUOverride = &vcpu
		}
		if fs.Changed("ram-limit") {
			n.RAMOverride = &ram
			if ram > 0 && ram < smallRAMLimit {
				_, _ = fmt.Fprintf(a.Err,
					"note: --ram-limit is in MiB: all VMs of the node may have %d MiB together\n", ram)
			}
		}
		if fs.Changed("central-logging") {
			logs = !logs
			n.NoCentralLog = &logs
		}
		if n == (client.NodeConfig{}) {
			return cli.Usage(errors.New("no change given; at least one option is required"))
		}
		return a.runOnItem(cmd.Context(), nodes, args[0], "changed", func(ctx context.Context, id string) error {
			n.NodeID = id
			return a.API.ConfigureNode(ctx, n)
		})
	})
	fs := cmd.Flags()
	fs.StringVar(&n.Name, "name", "", "name")
	fs.StringVar(&n.Host, "host", "", "address of its VMs; auto: as reported by the node")
	fs.IntVar(&n.MaxVMCount, "capacity", 0, "maximum VMs")
	fs.StringVar(&n.CapacityMode, "capacity-mode", "", "capacity mode: number or resource")
	fs.IntVar(&vcpu, "vcpu-limit", 0,
		"virtual CPUs of all its VMs in capacity mode resource; 0: as reported by the node")
	fs.IntVar(&ram, "ram-limit", 0,
		"memory of all its VMs in MiB in capacity mode resource; 0: as reported by the node")
	fs.BoolVar(&logs, "central-logging", true, "send the logs of the node's agent to the registry's central logs")
	_ = cmd.RegisterFlagCompletionFunc("capacity-mode",
		cobra.FixedCompletions([]string{"number", "resource"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func nodeDrain(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var reason string
	var deadline time.Duration
	var w waitOptions
	cmd := a.Add(&cobra.Command{
		Use: "drain NODE", Short: "Drain a node", Args: cobra.ExactArgs(1),
		Long: `drain stops placements on a node. Running instances continue, and are terminated at --deadline. With
--wait the command waits until no instance runs there.`,
		Example: `  buildyard node drain mac-03 --reason "new disk" --deadline 2h --wait
  buildyard node undrain mac-03`,
		ValidArgsFunction: nodes.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		return a.runOnItem(cmd.Context(), nodes, args[0], "drained", func(ctx context.Context, id string) error {
			on := true
			n := client.NodeConfig{NodeID: id, Drain: &on, DrainReason: reason}
			if cmd.Flags().Changed("deadline") {
				n.DrainLimit = (*client.Duration)(&deadline)
			}
			if err := a.API.ConfigureNode(ctx, n); err != nil || !w.wait {
				return err
			}
			continues := fmt.Sprintf(`the node stays drained; undo with "buildyard node undrain %s"`, args[0])
			return w.waitWithTimeout(ctx, continues, func(ctx context.Context) error { return a.awaitDrained(ctx, id) })
		})
	})
	cmd.Flags().StringVar(&reason, "reason", "", "reason, shown with the node")
	cmd.Flags().DurationVar(&deadline, "deadline", 0, "time until remaining instances are terminated; 0: never")
	w.addWaitFlags(cmd, "until no instance runs there")
	return cmd
}

// awaitDrained waits until a node runs nothing.
func (a *Command) awaitDrained(ctx context.Context, id string) error {
	m := newProgressMeter(a.Err)
	m.expectItems(id)
	defer m.end()
	first := -1
	_, err := a.API.WaitDrained(ctx, id, func(d api.Drain) {
		first = max(first, d.Remaining)
		m.updateItem(id, countText(d.Remaining, "instance")+" left", 1-float64(d.Remaining)/float64(max(first, 1)))
	})
	return nodes.nameNotFound(err, id)
}

func nodeUndrain(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	return a.Add(&cobra.Command{
		Use: "undrain NODE", Short: "Undrain a node", Args: cobra.ExactArgs(1),
		Long:              `undrain allows placements on a node again.`,
		Example:           `  buildyard node undrain mac-03`,
		ValidArgsFunction: nodes.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		return a.runOnItem(cmd.Context(), nodes, args[0], "undrained", func(ctx context.Context, id string) error {
			off := false
			return a.API.ConfigureNode(ctx, client.NodeConfig{NodeID: id, Drain: &off})
		})
	})
}

func nodeDelete(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var yes cli.Confirmation
	cmd := a.Add(&cobra.Command{
		Use: "delete NODE...", Aliases: []string{"rm"}, Short: "Delete nodes", Args: cobra.MinimumNArgs(1),
		Long: `delete removes nodes that do not come back; their instances end. A node that still runs is notified,
removes its VMs and has to join again.`,
		Example:           `  buildyard node delete mac-03`,
		ValidArgsFunction: nodes.completeArgs(0),
	}, func(cmd *cobra.Command, args []string) error {
		ids, err := nodes.findAll(cmd.Context(), a.API, args)
		if err != nil {
			return err
		}
		if err := yes.Ask(cmd.Context(), a.Streams, "Delete %s and terminate its instances?",
			strings.Join(args, ", ")); err != nil {
			return err
		}
		return a.printResults(runOnEach(cmd.Context(), ids, "deleted", func(ctx context.Context, id string) error {
			return nodes.nameNotFound(a.API.DeleteNode(ctx, id), id)
		}))
	})
	yes.Add(cmd)
	return cmd
}

func nodeUpdate(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var w waitOptions
	cmd := a.Add(&cobra.Command{
		Use: "update [NODE...]", Short: "Update node agents",
		Long: `update lets the given nodes (default: all nodes) download, verify and install the agent package of the
controller, and join again. VMs continue. An Offline node follows when it is back. With --wait the
command waits until the agents are updated or have failed; the controller retries several times.`,
		Example: `  buildyard node update --wait
  buildyard node update mac-03 mac-04`,
		ValidArgsFunction: nodes.completeArgs(0),
	}, func(cmd *cobra.Command, args []string) error {
		ids, err := nodes.findAll(cmd.Context(), a.API, args)
		if err != nil {
			return err
		}
		if err := a.API.UpdateNodes(cmd.Context(), ids...); err != nil {
			return err
		}
		if !w.wait {
			return a.printDone("nodes", "updating")
		}
		return w.waitWithTimeout(cmd.Context(), "the update continues",
			func(ctx context.Context) error { return a.awaitUpdates(ctx, ids) })
	})
	w.addWaitFlags(cmd, "until the updates have finished")
	return cmd
}

// awaitUpdates waits for the updates of nodes; of all nodes without arguments.
func (a *Command) awaitUpdates(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		list, err := a.API.Nodes(ctx, client.ListOptions{})
		if err != nil {
			return err
		}
		for _, n := range list {
			if n.Update != nil {
				ids = append(ids, n.NodeID)
			}
		}
	}
	if len(ids) == 0 {
		return a.printDone("nodes", "up to date")
	}
	m := newProgressMeter(a.Err)
	m.expectItems(ids...)
	results := runOnEach(ctx, ids, "updated", func(ctx context.Context, id string) error {
		_, err := a.API.WaitUpdated(ctx, id, nil)
		if err == nil {
			m.updateItem(id, "updated", 1)
		}
		return nodes.nameNotFound(err, id)
	})
	m.end()
	if ctx.Err() != nil {
		return interruptedWaitError(ctx, results)
	}
	return a.printResults(results)
}

func nodeGroup(s cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use: "group", Short: "Manage the groups of a node",
		Long:    `group adds a node to node groups and removes it from them.`,
		Example: `  buildyard node group add mac-03 ci nightly`,
	}, groupMemberCommand(s, "add", "Add a node to groups", "added", (*client.Controller).AddNodeToGroups),
		groupMemberCommand(s, "remove", "Remove a node from groups", "removed",
			(*client.Controller).RemoveNodeFromGroups))
}

// groupMemberCommand returns a command for a node and its groups.
func groupMemberCommand(
	s cli.Streams, name, short, done string, do func(*client.Controller, context.Context, string, ...string) error,
) *cobra.Command {
	a := Command{Streams: s}
	return a.Add(&cobra.Command{
		Use: name + " NODE GROUP...", Short: short, Args: cobra.MinimumNArgs(2),
		Long:    short + ". Groups are IDs or names. Repeating it changes nothing.",
		Example: "  buildyard node group " + name + " mac-03 ci nightly",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nodes.completeArgs(1)(cmd, args, text)
			}
			return groups.completeArgs(0)(cmd, args, text)
		},
	}, func(cmd *cobra.Command, args []string) error {
		ids, err := groups.findAll(cmd.Context(), a.API, args[1:])
		if err != nil {
			return err
		}
		return a.runOnItem(cmd.Context(), nodes, args[0], done,
			func(ctx context.Context, id string) error { return do(a.API, ctx, id, ids...) })
	})
}
