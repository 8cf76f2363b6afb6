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
	Text   string  // begins in lower case, without a full stop
	Nodes  int     // nodes in the cloud
	Counts []Count // in the order of the filters; an unschedulable node counts under its state
}

// Count is the number of nodes that a filter excluded.
type Count struct {
	Filter Filter
	Label  string // as in "3 offline"
	Nodes  int
}

// WaitReason returns why a request is pending. The result is computed once per request group and
// kept until a node, a group or a placement changes.
func (x *Index) WaitReason(requestID string, now time.Time) Reason {
	r := x.requests[requestID]
	switch {
	case r == nil || (r.queue == nil && !r.reserved):
		return Reason{Name: Unknown, Text: "the request does not wait", Nodes: len(x.nodes)}
	case r.reserved:
		return Reason{Name: Reserved, Text: "being assigned to node " + x.nodeName(r.node), Nodes: len(x.nodes)}
	}
	p := r.pool()
	if p.reasonAt != x.changes+1 {
		p.reason, p.reasonAt = x.why(p), x.changes+1
	}
	out := p.reason
	if left := r.class.since.Add(x.options.LocalityWait).Sub(now); out.Name == Turn && r.class.held && left > 0 {
		out.Name = Nearby
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

// why finds the rule that left no node.
func (x *Index) why(p *requestGroup) Reason {
	out := Reason{Nodes: len(x.nodes)}
	if out.Nodes == 0 {
		out.Name, out.Text = NoNodes, "there are no nodes"
		return out
	}
	refused := map[Filter]int{}
	labels := map[Count]int{}
	left := out.Nodes
	for _, n := range x.nodes {
		if f := p.refusal(n); f != nil {
			refused[f.name]++
			labels[Count{Filter: f.name, Label: label(f.name, n)}]++
		}
	}
	out.Counts = counts(labels)
	for i := range rules {
		f := &rules[i]
		if left -= refused[f.name]; left > 0 {
			continue
		}
		out.Name, out.Text = f.name, x.sentence(p, f, out.Counts)
		return out
	}
	out.Name, out.Text = Turn, "queued"
	return out
}

// passing are the filters whose reason may pass with time.
var passing = map[Filter]bool{FilterState: true, FilterReserved: true, FilterRoom: true, FilterDevice: true}

// sentence describes what the last excluding rule means for the request.
func (x *Index) sentence(p *requestGroup, f *rule, all []Count) string {
	if n := x.nodes[p.want.pinned]; n != nil {
		return "node " + x.nodeName(n.ID) + " " + f.one(p, n)
	}
	if !passing[f.name] {
		return f.all(p)
	}
	var parts []string
	nodes := 0
	for _, c := range all {
		if passing[c.Filter] || c.Filter == FilterSize {
			parts = append(parts, fmt.Sprintf("%d %s", c.Nodes, c.Label))
			nodes += c.Nodes
		}
	}
	unit := "nodes"
	if nodes == 1 {
		unit = "node"
	}
	return fmt.Sprintf("%s (%d %s: %s)", f.all(p), nodes, unit, strings.Join(parts, ", "))
}

// labelOf are the short words for excluded nodes, for the filters that need no more.
var labelOf = map[Filter]string{
	FilterPinned:   "not pinned",
	FilterGroup:    "outside the group",
	FilterArch:     "of another architecture",
	FilterSaved:    "unable to load the saved state",
	FilterUSB:      "without the USB device",
	FilterNetwork:  "without a bridge for guests",
	FilterVLAN:     "without the VLAN",
	FilterSize:     "too small",
	FilterReserved: "reserved for a larger request",
	FilterRoom:     "full",
	FilterDevice:   "with the USB device taken",
}

func label(f Filter, n *node) string {
	if f == FilterState {
		return n.Unschedulable
	}
	return labelOf[f]
}

// counts lists the numbers per label, full nodes first, then larger numbers first
// inside one filter.
func counts(labels map[Count]int) []Count {
	out := make([]Count, 0, len(labels))
	for c, n := range labels {
		out = append(out, Count{c.Filter, c.Label, n})
	}
	slices.SortFunc(out, func(a, b Count) int {
		return cmp.Or(cmp.Compare(order(a.Filter), order(b.Filter)), cmp.Compare(b.Nodes, a.Nodes),
			cmp.Compare(a.Label, b.Label))
	})
	return out
}

// order is the position of a filter in a list for people: what may pass with time comes first.
func order(f Filter) int {
	return -slices.IndexFunc(rules, func(r rule) bool { return r.name == f })
}
