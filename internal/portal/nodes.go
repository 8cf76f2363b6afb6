package portal

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/farm"
)

func (p *portal) nodePages() []page {
	return []page{
		{path: "/nodes", name: "nodes", title: "Nodes", topic: Nodes | Instances, load: listNodes},
		{path: "/nodes/join", name: "join", title: "Add a node", load: joinInstructions},
		{path: "/nodes/{id}", name: "node", title: "Node", topic: Nodes | Instances | Events, load: oneNode},
	}
}

// nodeRow is a node on a page.
type nodeRow struct {
	api.Node
	Why  string // it is in its state
	Back string // the page that it stands on
	// Fixed is the reason why the visitor cannot change the node's capacity; "": they can.
	Fixed string
}

// nodeLine is a node in the list. Nothing is embedded here, and as much as possible is formatted in
// advance: templates look up embedded fields by name, and call functions by reflection, which took
// most of the time of the page.
type nodeLine struct {
	NodeID, NodeName, IPAddress, AgentVersion string

	State, Why              string // why: it is in its state
	StateSince, LastUpdated timeText
	Groups                  []api.Group
	DiskSize, FreeDisk      int64

	Use  []gauge
	Room gauge // taken of what VMs may have

	CapacityMode                                                      string
	VMCount, Capacity, VCPULimit, VCPUOverride, RAMLimit, RAMOverride int
	Fixed, Back                                                       string // as of a nodeRow

	Edit actionLink
}

// nodeLineOf makes the line of a node on the list at an address.
func nodeLineOf(n api.Node, now time.Time, can *capabilities, back string) nodeLine {
	return nodeLine{
		NodeID: n.NodeID, NodeName: n.NodeName, IPAddress: n.IPAddress, AgentVersion: n.AgentVersion,
		State: n.State, Why: explainNode(n), StateSince: shownAt(now, n.StateSince),
		LastUpdated: shownAt(now, n.LastUpdated), Groups: n.Groups, DiskSize: n.DiskSize, FreeDisk: n.FreeDisk,
		Use: gaugesOf(n), Room: placesOf(n), CapacityMode: n.CapacityMode, VMCount: n.VMCount, Capacity: n.Capacity,
		VCPULimit: n.VCPULimit, VCPUOverride: n.VCPUOverride, RAMLimit: n.RAMLimit, RAMOverride: n.RAMOverride,
		Fixed: can.Not("edit node", n.NodeID), Back: back,
		Edit: can.Do("edit row", n.NodeID, query("/nodes/"+n.NodeID+"/edit", "back", back), "Edit", "Edit "+n.NodeName),
	}
}

// timeText is a moment as text; empty for none.
type timeText struct{ Stamp, Absolute, Ago string }

func shownAt(now, t time.Time) timeText {
	if t.IsZero() {
		return timeText{}
	}
	return timeText{stamp(t), absolute(t), ago(now, t)}
}

// gauge is how much of something is used.
type gauge struct {
	Name  string
	Label string // with the node that it is of, and the text
	Level string // from 0 to 1
	Full  bool
	Text  string // in numbers, with units
}

// gaugeOf makes the gauge of a share of 1.
func gaugeOf(name, of string, share float64, text string) gauge {
	return gauge{Name: name, Label: name + " of " + of + ": " +
		text, Level: strconv.FormatFloat(share, 'f', 3, 64), Full: share >= 0.9, Text: text}
}

// Value is the number that a gauge has in large.
func (g gauge) Value() string { number, _, _ := strings.Cut(g.Text, " "); return number }

// Unit returns the text after the number.
func (g gauge) Unit() string { _, rest, _ := strings.Cut(g.Text, " "); return rest }

// nodeList is the page of the nodes.
type nodeList struct {
	Filter, Sort, Wrong string
	Here                string // address of the list, to come back to
	Curl                string
	Sum                 api.NodePage
	Chips               []chip
	Columns             []column
	Rows                []nodeLine
	Pager               pager
	Join                joinView // how the first node joins
}

var nodeColumns = []column{
	{Name: "Name", Field: "name"},
	{Name: "State", Field: "state"},
	{Name: "Host", Field: "host", Wide: true},
	{Name: "CPU"},
	{Name: "Memory"},
	{Name: "VMs", Field: "vms"},
	{Name: "Free disk", Field: "free", Num: true},
	{Name: "Groups", Field: "group"},
	{Name: "Agent", Field: "version", Wide: true},
	{Name: "Contact", Field: "seen", Num: true},
}

// nodeStates are the states of nodes as clients see them.
func nodeStates() []string {
	names := []string{string(farm.NodeActive), string(farm.NodeDrain)}
	for _, s := range farm.NodeStates {
		if s != farm.NodeActive {
			names = append(names, string(s))
		}
	}
	return names
}

func listNodes(v *visit) (any, error) {
	a := v.asked("name")
	list := nodeList{Filter: a.filter, Sort: v.q.Get("sort"), Here: v.r.URL.RequestURI()}
	page, err := v.NodePage(v, a.options())
	if err == nil && a.beyond(len(page.Nodes), page.Total) {
		page, err = v.NodePage(v, a.options())
	}
	if list.Wrong = wrongFilter(err, a.filter); list.Wrong != "" {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	list.Sum, list.Columns, list.Pager = page, a.columns(nodeColumns), a.pager(len(page.Nodes), page.Total)
	states := page.States
	if rest, chosen := stateTerm(a.filter); chosen != nil { // what the others would show
		if all, err := v.NodePage(v, client.PageOptions{Filter: rest, Limit: 1}); err == nil {
			states = all.States
		}
	}
	list.Chips = a.chips(states, nodeStates())
	list.Curl = curl(v, "GET", query("/api/v1/node", "filter", a.filter), "")
	for _, n := range page.Nodes {
		v.about.Nodes = append(v.about.Nodes, n.NodeID)
	}
	for _, n := range page.Nodes {
		list.Rows = append(list.Rows, nodeLineOf(n, v.now, v.can(), list.Here))
	}
	if page.Total == 0 {
		list.Join = joinOf(v)
	}
	return list, nil
}

// wrongFilter returns the API's objection to a filter; "" where there is none.
func wrongFilter(err error, filter string) string {
	if told, ok := errors.AsType[*client.Error](err); ok && filter != "" && told.Code == client.ErrInvalid {
		return told.Message
	}
	return ""
}

// explainNode describes in one line why a node is in its state, or which operation is in progress
// there.
func explainNode(n api.Node) string {
	var parts []string
	if n.StateReason != "" {
		parts = append(parts, n.StateReason)
	}
	if n.Drain != nil && n.State == string(farm.NodeDrain) {
		parts = append(parts, plural(n.Drain.Remaining, "VM remains", "VMs remain"))
	}
	if u := n.Update; u != nil {
		parts = append(parts, "agent becomes "+u.Version)
		if u.Failure != "" {
			parts = append(parts, "the last try failed: "+u.Failure)
		}
	}
	if n.UnknownVMs > 0 {
		parts = append(parts, plural(n.UnknownVMs, "orphaned VM", "orphaned VMs"))
	}
	return strings.Join(parts, "; ")
}

// gaugesOf returns the bars for the load of a node's machine: its processors, its memory.
func gaugesOf(n api.Node) []gauge {
	return []gauge{
		gaugeOf("CPU", n.NodeName, n.CPUUtil, percent(n.CPUUtil)+" %"),
		gaugeOf("Memory", n.NodeName, n.RAMUtil, percent(n.RAMUtil)+" %"),
	}
}

// placesOf returns the used share of a node's capacity, in its capacity mode.
func placesOf(n api.Node) gauge {
	if n.CapacityMode == string(farm.CapacityByResources) {
		return gaugeOf("VMs", n.NodeName, max(share(n.VCPUCount, n.VCPULimit), share(n.VRAM, n.RAMLimit)),
			fmt.Sprint(n.VMCount))
	}
	return gaugeOf("VMs", n.NodeName, share(n.VMCount, n.Capacity), fmt.Sprintf("%d of %d", n.VMCount, n.Capacity))
}

// share is a part of a whole; nothing of nothing is 0.
func share(part, whole int) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// joinView is how a machine becomes a node of this cloud.
type joinView struct {
	Ask, Join string // commands: on the controller's machine, and on the one that joins
	Address   string
	Loopback  bool // the address forwards to this machine alone
	Host      string
}

func joinOf(v *visit) joinView {
	address := origin(v)
	host := v.r.Host
	if u, err := url.Parse(address); err == nil {
		host = u.Hostname()
	}
	return joinView{
		Ask: "buildyard node token > token", Join: "buildnode join " + address + " --token-file token",
		Address: address, Host: host, Loopback: host == "localhost" || host == "::1" || strings.HasPrefix(host, "127."),
	}
}

func joinInstructions(v *visit) (any, error) { return joinOf(v), nil }
