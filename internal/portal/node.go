package portal

import (
	"fmt"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/farm"
)

// nodeView is the page of one node. A part that the visitor may not see states the reason.
type nodeView struct {
	nodeRow
	Gauges      []gauge
	CurlCommand string
	Raw         string

	Instances             []instanceRow
	InstanceCount         int
	InstancesHiddenReason string
	Templates             []cachedTemplate
	Events                eventTable
	EventsHiddenReason    string
	Scan                  *api.NodeScanSummary // nil: it has not reported yet
	ScanHiddenReason      string
}

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
			Node: n, Reason: nodeStateReason(n), Back: v.request.URL.RequestURI(),
			CapacityDenied: v.canDo().DeniedReason("edit node", id),
		},
		Gauges:      nodeGauges(n),
		CurlCommand: curlCommand(v, "GET", pathWithQuery("/api/v1/node", "id", id), ""), Raw: indentedJSON(n),
		Templates: groupByTemplate(n.Templates),
	}
	page, err := v.InstancePage(v,
		client.PageOptions{Filter: "node:" + id + " " + alive, Sort: "age", Limit: embeddedRows})
	out.InstancesHiddenReason = notShownReason(err)
	for _, item := range page.Instances {
		out.Instances = append(out.Instances, newInstanceRow(item, page))
	}
	out.InstanceCount = page.Total
	events, err := v.Events(v, client.EventQuery{Filter: "node:" + id, Limit: embeddedRows})
	out.EventsHiddenReason = notShownReason(err)
	out.Events = eventTable{eventRows(events), v.now}
	scans, err := v.NodeScans(v, client.ListOptions{})
	out.ScanHiddenReason = notShownReason(err)
	if i := slices.IndexFunc(scans, func(s api.NodeScanSummary) bool { return s.NodeID == id }); i >= 0 {
		out.Scan = &scans[i]
	}
	return out, nil
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
