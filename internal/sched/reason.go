package sched

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Reason explains why a request is pending: a name, a sentence for people, and how many nodes each
// filter excluded.
type Reason struct {
	Name   Filter
	Text   string        // begins in lower case, without a full stop
	Nodes  int           // nodes in the cloud
	Counts []FilterCount // in the order of the filters; an unschedulable node counts under its state
}

// FilterCount is the number of nodes that a filter excluded.
type FilterCount struct {
	Filter Filter
	Label  string // as in "3 offline"
	Nodes  int
}

// PendingReason returns why a request is pending. The result is computed once per request group and
// kept until a node, a group or a placement changes.
func (x *Index) PendingReason(requestID string, now time.Time) Reason {
	r := x.requests[requestID]
	switch {
	case r == nil || (r.queue == nil && !r.reserved):
		return Reason{Name: ReasonUnknown, Text: "the request does not wait", Nodes: len(x.nodes)}
	case r.reserved:
		return Reason{Name: ReasonReserved, Text: "being assigned to node " + x.nodeName(r.nodeID), Nodes: len(x.nodes)}
	}
	p := r.requestGroup()
	if p.reasonChangeCount != x.changeCount+1 {
		p.cachedReason, p.reasonChangeCount = x.computeReason(p), x.changeCount+1
	}
	out := p.cachedReason
	if left := r.class.placeableSince.Add(x.options.LocalityWait).Sub(now); out.Name == ReasonTurn &&
		r.class.isDeferred && left > 0 {
		out.Name = ReasonLocality
		out.Text = fmt.Sprintf("waits up to %d s for a node that has the version", int(math.Ceil(left.Seconds())))
	}
	return out
}

func (x *Index) nodeName(id string) string {
	if n := x.nodes[id]; n != nil && n.Name != "" {
		return n.Name
	}
	return id
}

// computeReason finds the rule that left no node.
func (x *Index) computeReason(p *requestGroup) Reason {
	out := Reason{Nodes: len(x.nodes)}
	if out.Nodes == 0 {
		out.Name, out.Text = ReasonNoNodes, "there are no nodes"
		return out
	}
	refused := map[Filter]int{}
	labels := map[FilterCount]int{}
	left := out.Nodes
	for _, n := range x.nodes {
		if f := p.firstExclusion(n); f != nil {
			refused[f.name]++
			labels[FilterCount{Filter: f.name, Label: labelFor(f.name, n)}]++
		}
	}
	out.Counts = sortedCounts(labels)
	for i := range filterRules {
		f := &filterRules[i]
		if left -= refused[f.name]; left > 0 {
			continue
		}
		out.Name, out.Text = f.name, x.reasonText(p, f, out.Counts)
		return out
	}
	out.Name, out.Text = ReasonTurn, "queued"
	return out
}

// temporaryFilters are the filters whose reason may pass with time.
var temporaryFilters = map[Filter]bool{FilterState: true, FilterReserved: true, FilterFull: true, FilterUSBBusy: true}

// reasonText describes what the last excluding rule means for the request.
func (x *Index) reasonText(p *requestGroup, f *filterRule, all []FilterCount) string {
	if n := x.nodes[p.constraints.pinned]; n != nil {
		return "node " + x.nodeName(n.ID) + " " + f.nodeText(p, n)
	}
	if !temporaryFilters[f.name] {
		return f.allText(p)
	}
	var parts []string
	nodes := 0
	for _, c := range all {
		if temporaryFilters[c.Filter] || c.Filter == FilterSize {
			parts = append(parts, fmt.Sprintf("%d %s", c.Nodes, c.Label))
			nodes += c.Nodes
		}
	}
	unit := "nodes"
	if nodes == 1 {
		unit = "node"
	}
	return fmt.Sprintf("%s (%d %s: %s)", f.allText(p), nodes, unit, strings.Join(parts, ", "))
}

// filterLabels are the short words for excluded nodes, for the filters that need no more.
var filterLabels = map[Filter]string{
	FilterPinned:     "not pinned",
	FilterGroup:      "outside the group",
	FilterGuestOS:    "for other guests",
	FilterArch:       "of another architecture",
	FilterSavedState: "unable to load the saved state",
	FilterAbility:    "without a requested ability",
	FilterUSB:        "without the USB device",
	FilterNetwork:    "without a bridge for guests",
	FilterVLAN:       "without the VLAN",
	FilterSize:       "too small",
	FilterReserved:   "reserved for a larger request",
	FilterFull:       "full",
	FilterUSBBusy:    "with the USB device taken",
}

func labelFor(f Filter, n *node) string {
	if f == FilterState {
		return n.Unschedulable
	}
	return filterLabels[f]
}

// sortedCounts lists the numbers per label, full nodes first, then larger numbers first
// inside one filter.
func sortedCounts(labels map[FilterCount]int) []FilterCount {
	out := make([]FilterCount, 0, len(labels))
	for c, n := range labels {
		out = append(out, FilterCount{c.Filter, c.Label, n})
	}
	slices.SortFunc(out, func(a, b FilterCount) int {
		return cmp.Or(cmp.Compare(displayOrder(a.Filter), displayOrder(b.Filter)), cmp.Compare(b.Nodes, a.Nodes),
			cmp.Compare(a.Label, b.Label))
	})
	return out
}

// displayOrder is the position of a filter in a list for people: what may pass with time comes first.
func displayOrder(f Filter) int {
	return -slices.IndexFunc(filterRules, func(r filterRule) bool { return r.name == f })
}
