package portal

import (
	"fmt"
	"net/url"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/portal/chart"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// nodeView is the page of one node. A part that the visitor may not see states the reason.
type nodeView struct {
	nodeRow
	Gauges      []gauge
	CurlCommand string
	Raw         string

	SlotBar               slotBar
	SlotLines             []slotLine
	MoreSlots             int    // that have no row
	SlotWarning           string // what holds slots without running
	FailedHolder          string // path of the first failed instance that holds one
	Charts                []chart.Chart
	Series                *api.Series   // of the last hour; nil: it could not be asked
	Instances             []instanceRow // without a slot
	InstancesHiddenReason string
	Templates             []cachedTemplate
	Events                eventTable
	EventsHiddenReason    string
	Scan                  *api.NodeScanSummary // nil: it has not reported yet
	ScanHiddenReason      string
	HasLogs               bool // the central logs have rows about it
}

// FreeSlots returns how many VMs can be started on it.
func (n nodeView) FreeSlots() int { return freeSlots(&n.Node) }

// cachedTemplate is the cached versions of one template on a node.
type cachedTemplate struct {
	ID, Name string
	Tags     []string
}

const embeddedRows = 20 // of lists on the page of something else

func showNode(v *visit) (any, error) {
	id := v.request.PathValue("id")
	n, err := v.Node(v, id)
	if err != nil {
		return nil, err
	}
	v.title, v.rightsQuery.Nodes = n.NodeName, []string{id}
	out := nodeView{
		nodeRow: nodeRow{
			Node: withSlots(n), Reason: nodeStateReason(n), Back: v.request.URL.RequestURI(),
			CapacityDenied: v.canDo().DeniedReason("edit node", id),
		},
		Gauges:      nodeGauges(n),
		CurlCommand: curlCommand(v, "GET", format.Path("/api/v1/node", "id", id), ""), Raw: indentedJSON(n),
		Templates: groupByTemplate(n.Templates),
	}
	out.addSlots(v)
	out.addCharts(v)
	out.Events, err = eventsAbout(v, "node:"+id)
	out.EventsHiddenReason = notShownReason(err)
	out.HasLogs = !n.NoCentralLog && v.hasNodeLogs(n.NodeName)
	scans, err := v.NodeScans(v, client.ListOptions{})
	out.ScanHiddenReason = notShownReason(err)
	if i := slices.IndexFunc(scans, func(s api.NodeScanSummary) bool { return s.NodeID == id }); i >= 0 {
		out.Scan = &scans[i]
	}
	return out, nil
}

// addSlots adds what takes the slots of the node, and its other instances.
func (n *nodeView) addSlots(v *visit) {
	page, err := v.InstancePage(v,
		client.PageOptions{Filter: "node:" + n.NodeID + " " + alive, Sort: "age", Limit: maxSlotLines})
	n.InstancesHiddenReason = notShownReason(err)
	rows := map[string]instanceRow{}
	for _, item := range page.Instances {
		rows[item.InstanceID] = newInstanceRow(item, page)
	}
	n.addSlotLines(rows)
	for _, item := range page.Instances {
		if row, ok := rows[item.InstanceID]; ok && len(n.Instances) < embeddedRows {
			n.Instances = append(n.Instances, row)
		}
	}
}

// addSlotLines adds the slots, and removes what holds them from the rows of instances.
func (n *nodeView) addSlotLines(rows map[string]instanceRow) {
	n.SlotBar, n.SlotWarning = nodeSlotBar(&n.Node), slotWarning(&n.Node)
	n.SlotLines, n.MoreSlots = slotLines(&n.Node, rows)
	for _, h := range n.Slots.Holders {
		delete(rows, h.InstanceID)
		if h.Use == api.SlotFailed && h.InstanceID != "" && n.FailedHolder == "" {
			n.FailedHolder = "/instances/" + url.PathEscape(h.InstanceID)
		}
	}
}

// addCharts adds the load of the node's host and its slots over the last hour.
func (n *nodeView) addCharts(v *visit) {
	s, err := v.NodeSeries(v, api.RangeHour, n.NodeID)
	if err != nil {
		return
	}
	n.Series = &s
	for _, c := range []chart.Chart{
		chart.New("Host CPU", "%", &s, chartColumn("used", cpuOf)),
		chart.New("Host memory", "%", &s, chartColumn("used", memoryOf)),
		chart.New("Slots used", "n", &s, chartColumn("used", slotsUsedOf), chartColumn("capacity", capacityOf)),
		chart.New("Starts", "n", &s, chartColumn("started", startsOf), chartColumn("failed", failuresOf)),
	} {
		if c.Lines[0].Line != "" { // else the node did not report it
			n.Charts = append(n.Charts, c)
		}
	}
}

// nodeGauges are the bars of a node on its own page.
func nodeGauges(n api.Node) []gauge {
	all := append(loadGauges(n), capacityGauge(n))
	if n.CapacityMode == string(farm.CapacityByResources) {
		all[2] = newGauge("Virtual CPUs", n.NodeName, shareOf(n.VCPUCount, n.VCPULimit),
			fmt.Sprintf("%d of %d", n.VCPUCount, n.VCPULimit))
		all = append(all, newGauge("Memory of VMs", n.NodeName, shareOf(n.VRAM, n.RAMLimit),
			fmt.Sprintf("%d of %d MiB", n.VRAM, n.RAMLimit)))
	}
	if n.DiskSize > 0 {
		used := n.DiskSize - n.FreeDisk
		all = append(all, newGauge("Disk", n.NodeName, float64(used)/float64(n.DiskSize),
			bytesize.Format(n.FreeDisk)+" free of "+bytesize.Format(n.DiskSize)))
	}
	return all
}

// groupByTemplate groups the cached versions of a node by their templates, in the order in which they come.
func groupByTemplate(all []api.NodeTag) (held []cachedTemplate) {
	for _, t := range all {
		i := slices.IndexFunc(held, func(h cachedTemplate) bool { return h.ID == t.UUID })
		if i < 0 {
			held = append(held, cachedTemplate{ID: t.UUID, Name: t.Name})
			i = len(held) - 1
		}
		held[i].Tags = append(held[i].Tags, t.Tag)
	}
	return held
}
