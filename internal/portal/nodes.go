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
	"github.com/buildyard/buildyard/internal/portal/chart"
	"github.com/buildyard/buildyard/internal/portal/format"
)

func (p *portal) nodePages() []page {
	return []page{
		{pattern: "/nodes", templateName: "nodes", title: "Nodes", topics: Nodes | Instances, buildView: listNodes},
		{pattern: "/nodes/join", templateName: "join", title: "Add a node", buildView: joinInstructions},
		{pattern: "/nodes/{id}", templateName: "node", title: "Node", topics: Nodes | Instances |
			Events, buildView: showNode},
		{
			pattern: "/nodes/{id}/exposure", templateName: "exposure", title: "Exposed instances",
			buildView: showExposure,
		},
	}
}

// nodeRow is a node on a page.
type nodeRow struct {
	api.Node
	Reason string // why it is in its state
	Back   string // the page that it stands on
	// CapacityDenied is the reason why the visitor cannot change the node's capacity; "": they can.
	CapacityDenied string
}

// nodeLine is a node in the list. Nothing is embedded here, and as much as possible is formatted in
// advance: templates look up embedded fields by name, and call functions by reflection, which took
// most of the time of the page.
type nodeLine struct {
	NodeID, NodeName, IPAddress, AgentVersion, Hypervisor, Arch string

	State, Reason           string // reason: why it is in its state
	StateSince, LastUpdated timeText
	Groups                  []api.Group
	DiskSize, FreeDisk      int64

	CPU, Memory gauge // load of the host
	SlotBar     slotBar
	Spark       *chart.Spark // its slots in the last hour
	Failed      int          // instances that failed there in the last hour

	CapacityMode                                             string
	Capacity, VCPULimit, VCPUOverride, RAMLimit, RAMOverride int
	CapacityDenied, Back                                     string // as of a nodeRow

	Edit actionLink
}

// newNodeLine makes the line of a node on the list at an address.
func newNodeLine(n api.Node, now time.Time, can *capabilities, back string) nodeLine {
	n = withSlots(n)
	load := loadGauges(n)
	return nodeLine{
		NodeID: n.NodeID, NodeName: n.NodeName, IPAddress: n.IPAddress, AgentVersion: n.AgentVersion,
		Hypervisor: strings.TrimSpace(n.AnkaVersion.Product + " " + n.AnkaVersion.Version), Arch: n.HostArch,
		State: n.State, Reason: nodeStateReason(n), StateSince: newTimeText(now, n.StateSince),
		LastUpdated: contactText(now, n.LastUpdated), Groups: n.Groups, DiskSize: n.DiskSize, FreeDisk: n.FreeDisk,
		CPU: load[0], Memory: load[1], SlotBar: nodeSlotBar(&n), CapacityMode: n.CapacityMode, Capacity: n.Capacity,
		VCPULimit: n.VCPULimit, VCPUOverride: n.VCPUOverride, RAMLimit: n.RAMLimit, RAMOverride: n.RAMOverride,
		CapacityDenied: can.DeniedReason("edit node", n.NodeID), Back: back,
		Edit: can.Link("edit row", n.NodeID, format.Path("/nodes/"+n.NodeID+"/edit", "back", back), "Edit",
			"Edit "+n.NodeName),
	}
}

// timeText is a moment as text; empty for none.
type timeText struct{ Stamp, Absolute, Ago string }

func newTimeText(now, t time.Time) timeText {
	if t.IsZero() {
		return timeText{}
	}
	return timeText{format.Stamp(t), format.Full(t), format.Ago(now, t)}
}

// contactText is newTimeText without the moment of a recent contact: a row does not change with each of them.
func contactText(now, t time.Time) timeText {
	if now.Sub(t) < recentContact {
		return timeText{Ago: "now"}
	}
	return newTimeText(now, t)
}

const recentContact = 15 * time.Second

// gauge is how much of something is used.
type gauge struct {
	Name   string
	Label  string // with the node that it is of, and the text
	Level  string // from 0 to 1
	IsFull bool
	Text   string // in numbers, with units
}

// newGauge makes the gauge of a share of 1.
func newGauge(name, of string, share float64, text string) gauge {
	return gauge{Name: name, Label: name + " of " + of + ": " +
		text, Level: strconv.FormatFloat(share, 'f', 3, 64), IsFull: share >= 0.9, Text: text}
}

// Value is the number that a gauge has in large.
func (g gauge) Value() string { number, _, _ := strings.Cut(g.Text, " "); return number }

// Unit returns the text after the number.
func (g gauge) Unit() string { _, rest, _ := strings.Cut(g.Text, " "); return rest }

// nodeList is the page of the nodes.
type nodeList struct {
	Filter, Sort, FilterError string
	Here                      string // address of the list, to come back to
	CurlCommand               string
	Totals                    api.NodePage
	SlotBar                   *slotBar // of the whole cloud; nil: not known
	Chips                     []chip
	Columns                   []column
	ColumnMenu                columnMenu
	Has                       map[string]bool // columns by their IDs
	Rows                      []nodeLine
	Pager                     pager
	Join                      joinView // how the first node joins
	Bulk                      []bulkAction
}

// bulkAction is something that can be done with the selected rows of a table.
type bulkAction struct {
	Name, Path   string
	Destructive  bool
	DeniedReason string // "": it is allowed
}

// nodeBulkActions returns what can be done with selected nodes.
func nodeBulkActions(can *capabilities) []bulkAction {
	drain := can.DeniedReason("drain", "")
	return []bulkAction{
		{Name: "Drain", Path: "/nodes/drain", DeniedReason: drain},
		{Name: "Undrain", Path: "/nodes/undrain", DeniedReason: drain},
		{Name: "Update agent", Path: "/nodes/update", DeniedReason: can.DeniedReason("update", "")},
		{
			Name: "Delete", Path: "/nodes/delete", Destructive: true,
			DeniedReason: can.DeniedReason("delete node", ""),
		},
	}
}

var nodeColumns = []column{
	{Name: "Name", Field: "name"},
	{Name: "State", Field: "state"},
	{ID: "slots", Name: "Slots", Field: "vms"},
	{ID: "cpu", Name: "Host CPU"},
	{ID: "memory", Name: "Host memory"},
	{ID: "disk", Name: "Free disk", Field: "free", Numeric: true},
	{ID: "groups", Name: "Groups", Field: "group"},
	{ID: "hour", Name: "Slots, last hour", HideOnNarrow: true},
	{ID: "failed", Name: "Failed", Field: "failed", Numeric: true, MostFirst: true},
	{ID: "address", Name: "Address", Field: "host", HideOnNarrow: true, IsExtra: true},
	{ID: "agent", Name: "Agent", Field: "version", HideOnNarrow: true, IsExtra: true},
	{ID: "hypervisor", Name: "Hypervisor", HideOnNarrow: true, IsExtra: true},
	{ID: "arch", Name: "Architecture", Field: "arch", HideOnNarrow: true, IsExtra: true},
	{ID: "id", Name: "ID", HideOnNarrow: true, IsExtra: true},
	{ID: "contact", Name: "Contact", Field: "seen", Numeric: true},
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
	a := v.tableQuery("name")
	list := nodeList{Filter: a.filter, Sort: v.query.Get("sort"), Here: v.request.URL.RequestURI()}
	page, err := v.NodePage(v, a.pageOptions())
	if err == nil && a.clampPage(len(page.Nodes), page.Total) {
		page, err = v.NodePage(v, a.pageOptions())
	}
	if list.FilterError = filterError(err, a.filter); list.FilterError != "" {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	list.Totals, list.Pager = page, a.pager(len(page.Nodes), page.Total)
	list.Columns, list.Has, list.ColumnMenu = v.chooseColumns(a.columns(nodeColumns))
	states := page.States
	if rest, chosen := cutStateTerm(a.filter); chosen != nil { // what the others would show
		if all, err := v.NodePage(v, client.PageOptions{Filter: rest, Limit: 1}); err == nil {
			states = all.States
		}
	}
	list.Chips = a.chips(states, nodeStates())
	list.CurlCommand = curlCommand(v, "GET", format.Path("/api/v1/node", "filter", a.filter), "")
	for _, n := range page.Nodes {
		v.rightsQuery.Nodes = append(v.rightsQuery.Nodes, n.NodeID)
	}
	var hours map[string]nodeHour
	if list.Has["hour"] || list.Has["failed"] {
		hours = nodeHours(v, v.rightsQuery.Nodes)
	}
	for _, n := range page.Nodes {
		line := newNodeLine(n, v.now, v.canDo(), list.Here)
		hour := hours[n.NodeID]
		line.Spark, line.Failed = hour.slots, hour.failed
		list.Rows = append(list.Rows, line)
	}
	if stats, err := v.stats(); err == nil && stats.Slots.Capacity > 0 {
		bar := newSlotBar(&stats.Slots, stats.Slots.Free, cloudBarWidth)
		list.SlotBar = &bar
	}
	list.Bulk = nodeBulkActions(v.canDo())
	if page.Total == 0 {
		list.Join = newJoinView(v)
	}
	return list, nil
}

// filterError returns the API's objection to a filter; "" where there is none.
func filterError(err error, filter string) string {
	if apiErr, ok := errors.AsType[*client.Error](err); ok && filter != "" && apiErr.Code == client.ErrInvalid {
		return apiErr.Message
	}
	return ""
}

// remainingVMs describes how many VMs are left on a node that is being drained.
func remainingVMs(d *api.Drain) string {
	if d.Remaining == 0 {
		return "no VM remains"
	}
	return format.Plural(d.Remaining, "VM remains", "VMs remain")
}

// DrainProgress describes how far the drain of a node is; "" where it is not being drained.
func (r nodeRow) DrainProgress() string {
	if r.Drain == nil {
		return ""
	}
	return remainingVMs(r.Drain)
}

// nodeStateReason describes in one line why a node is in its state, or which operation is in progress
// there.
func nodeStateReason(n api.Node) string {
	var parts []string
	if n.StateReason != "" {
		parts = append(parts, n.StateReason)
	}
	if n.Drain != nil && n.State == string(farm.NodeDrain) {
		parts = append(parts, remainingVMs(n.Drain))
	}
	if u := n.Update; u != nil {
		parts = append(parts, "agent is updated to "+u.Version)
		if u.Failure != "" {
			parts = append(parts, "the last try failed: "+u.Failure)
		}
	}
	if n.UnknownVMs > 0 {
		parts = append(parts, format.Plural(n.UnknownVMs, "orphaned VM", "orphaned VMs"))
	}
	return strings.Join(parts, "; ")
}

// loadGauges returns the bars for the load of a node's machine: its processors, its memory.
func loadGauges(n api.Node) []gauge {
	return []gauge{
		newGauge("Host CPU", n.NodeName, n.CPUUtil, format.Percent(n.CPUUtil)+" %"),
		newGauge("Host memory", n.NodeName, n.RAMUtil, format.Percent(n.RAMUtil)+" %"),
	}
}

// capacityGauge returns the used slots of a node. In the capacity mode resource others limit it.
func capacityGauge(n api.Node) gauge {
	s := withSlots(n).Slots
	return newGauge("Slots", n.NodeName, shareOf(usedSlots(s), s.Capacity), fmt.Sprintf("%d of %d", usedSlots(s),
		s.Capacity))
}

// shareOf is a part of a whole; nothing of nothing is 0.
func shareOf(part, whole int) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// joinView is how a machine becomes a node of this cloud.
type joinView struct {
	TokenCommand, JoinCommand string // commands: on the controller's machine, and on the one that joins
	Address                   string
	LoopbackOnly              bool // the address forwards to this machine alone
	Host                      string
}

func newJoinView(v *visit) joinView {
	address := controllerURL(v)
	host := v.request.Host
	if u, err := url.Parse(address); err == nil {
		host = u.Hostname()
	}
	return joinView{ //nolint:gosec // a command that prints a token
		TokenCommand: "buildyard node token > token", JoinCommand: "buildnode join " + address + " --token-file token",
		Address: address, Host: host, LoopbackOnly: host == "localhost" || host == "::1" ||
			strings.HasPrefix(host, "127."),
	}
}

func joinInstructions(v *visit) (any, error) { return newJoinView(v), nil }
