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
	Gauges []gauge
	Curl   string
	Raw    string

	Instances    []instanceRow
	InstancesAll int
	InstancesWhy string
	Templates    []cachedTemplate
	Events       eventTable
	EventsWhy    string
	Scan         *api.NodeScanSummary // nil: it has not reported yet
	ScanWhy      string
}

// cachedTemplate is the cached versions of one template on a node.
type cachedTemplate struct {
	ID, Name string
	Tags     []string
}

const shortRows = 20 // of lists on the page of something else

func oneNode(v *visit) (any, error) {
	id := v.r.PathValue("id")
	n, err := v.Node(v, id)
	if err != nil {
		return nil, err
	}
	v.title, v.about.Nodes = n.NodeName, []string{id}
	out := nodeView{
		nodeRow: nodeRow{Node: n, Why: explainNode(n), Back: v.r.URL.RequestURI(), Fixed: v.can().Not("edit node", id)},
		Gauges:  allGauges(n),
		Curl:    curl(v, "GET", query("/api/v1/node", "id", id), ""), Raw: indented(n),
		Templates: cachedTemplatesOf(n.Templates),
	}
	page, err := v.InstancePage(v,
		client.PageOptions{Filter: "node:" + id + " " + alive, Sort: "age", Limit: shortRows})
	out.InstancesWhy = refusal(err)
	for _, item := range page.Instances {
		out.Instances = append(out.Instances, rowOf(item, page))
	}
	out.InstancesAll = page.Total
	events, err := v.Events(v, client.EventQuery{Filter: "node:" + id, Limit: shortRows})
	out.EventsWhy = refusal(err)
	out.Events = eventTable{eventRows(events), v.now}
	scans, err := v.NodeScans(v, client.ListOptions{})
	out.ScanWhy = refusal(err)
	if i := slices.IndexFunc(scans, func(s api.NodeScanSummary) bool { return s.NodeID == id }); i >= 0 {
		out.Scan = &scans[i]
	}
	return out, nil
}

// allGauges are the bars of a node on its own page.
func allGauges(n api.Node) []gauge {
	all := append(gaugesOf(n), placesOf(n))
	if n.CapacityMode == string(farm.CapacityByResources) {
		all[2] = gaugeOf("Virtual CPUs", n.NodeName, share(n.VCPUCount, n.VCPULimit),
			fmt.Sprintf("%d of %d", n.VCPUCount, n.VCPULimit))
		all = append(all, gaugeOf("Memory of VMs", n.NodeName, share(n.VRAM, n.RAMLimit),
			fmt.Sprintf("%d of %d MiB", n.VRAM, n.RAMLimit)))
	}
	if n.DiskSize > 0 {
		used := n.DiskSize - n.FreeDisk
		all = append(all, gaugeOf("Disk", n.NodeName, float64(used)/float64(n.DiskSize),
			bytesize.Format(n.FreeDisk)+" free of "+bytesize.Format(n.DiskSize)))
	}
	return all
}

// cachedTemplatesOf groups the cached versions of a node by their templates, in the order in which they come.
func cachedTemplatesOf(all []api.NodeTag) (held []cachedTemplate) {
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
