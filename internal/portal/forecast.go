package portal

import (
	"fmt"
	"strings"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/portal/format"
)

// forecast is one line about what a start would do now.
type forecast struct {
	Icon, Tone, Text, Detail string
	At                       time.Time // when that is; zero: now
}

// forecasts returns what a start would do now, as far as the visitor may see that. It starts nothing. nodeError is why
// the node of the request is none.
func forecasts(v *visit, r *client.StartRequest, nodeError string) (list []forecast) {
	if r.TemplateID == "" {
		return []forecast{{Icon: "clock", Text: "Choose a template to see where it would start."}}
	}
	if nodeError != "" {
		return []forecast{{Icon: "alert", Tone: "bad", Text: format.UpperFirst(nodeError), Detail: "Node: " + r.NodeID}}
	}
	if f, ok := slotForecast(v, r); ok {
		list = append(list, f)
		if f.Tone == "bad" {
			return list
		}
	}
	if f, ok := cacheForecast(v, r); ok {
		list = append(list, f)
	}
	if stats, err := v.stats(); err == nil && stats.QueueDepth > 0 {
		list = append(list, forecast{
			Icon: "clock", Tone: "warn",
			Text:   format.Plural(stats.QueueDepth, "request waits", "requests wait") + " in the queue",
			Detail: "the oldest for " + format.Seconds(stats.OldestWait),
		})
	}
	if ttl := time.Duration(r.TTL); ttl > 0 {
		list = append(list, forecast{Icon: "stop", Text: "Terminates automatically", At: v.now.Add(ttl)})
	}
	return list
}

// slotForecast compares the instances with the free slots of the node, the group or the cloud. It is not ok where they
// are not known.
func slotForecast(v *visit, r *client.StartRequest) (f forecast, ok bool) {
	switch {
	case r.NodeID != "":
		return nodeForecast(v, r)
	case r.GroupID != "":
		return groupForecast(v, r)
	}
	stats, err := v.stats()
	if err != nil {
		return f, false
	}
	return newSlotForecast(r, stats.Slots.Free, "in the cloud", waitForSlot), true
}

// newSlotForecast describes free slots, and how the instances continue for which they do not suffice.
func newSlotForecast(r *client.StartRequest, free int, where string, others func(n int) string) forecast {
	f := forecast{Icon: "ok", Tone: "ok", Text: format.Plural(free, "free slot ", "free slots ") + where}
	if wanted := max(r.Count, 1); wanted > free {
		f.Icon, f.Tone, f.Detail = "alert", "warn", others(wanted-free)
	}
	return f
}

func waitForSlot(n int) string {
	return format.Plural(n, "instance waits", "instances wait") + " until a slot is free"
}

func useFallback(n int) string {
	return "the fallback group is tried for " + format.Plural(n, "instance", "instances")
}

// nodeForecast is slotForecast of one node. One that takes no starts has no free slots.
func nodeForecast(v *visit, r *client.StartRequest) (f forecast, ok bool) {
	n, err := v.Node(v, r.NodeID)
	switch {
	case client.CodeOf(err) == client.ErrNotFound:
		return forecast{Icon: "alert", Tone: "bad", Text: "No node has this ID"}, true
	case err != nil:
		return f, false
	case n.State == string(farm.NodeActive):
		return newSlotForecast(r, withSlots(n).Slots.Free, "on "+n.NodeName, waitForSlot), true
	}
	f = forecast{Icon: "alert", Tone: "warn", Text: "No free slots on " + n.NodeName + ": its state is " + n.State}
	f.Detail = format.Plural(max(r.Count, 1), "instance waits", "instances wait") + " until it is " +
		string(farm.NodeActive)
	return f, true
}

// maxGroupNodes is of how many nodes the free slots are added.
const maxGroupNodes = 500

// groupForecast is slotForecast of the nodes of a group that accept starts.
func groupForecast(v *visit, r *client.StartRequest) (f forecast, ok bool) {
	filter := "id:" + format.QuotedFilterValue(r.GroupID)
	groups, err := v.Groups(v, client.ListOptions{Filter: filter})
	if err != nil || len(groups) != 1 {
		return f, false
	}
	filter = "group:" + format.QuotedFilterValue(r.GroupID)
	all, err := v.NodePage(v, client.PageOptions{Filter: filter, Limit: 1})
	if err != nil {
		return f, false
	}
	others := waitForSlot
	if groups[0].FallbackGroupID != nil {
		others = useFallback
	}
	if all.Total == 0 {
		return forecast{
			Icon: "alert", Tone: "warn", Text: "No node is in this group", Detail: others(max(r.Count, 1)),
		}, true
	}
	active, err := v.NodePage(v, client.PageOptions{
		Filter: filter + " state:" + format.QuotedFilterValue(string(farm.NodeActive)), Limit: maxGroupNodes,
	})
	if err != nil || active.Total > len(active.Nodes) {
		return f, false
	}
	free := 0
	for _, n := range active.Nodes {
		free += withSlots(n).Slots.Free
	}
	f = newSlotForecast(r, free, "in the group "+groups[0].Name, others)
	if active.Total == 0 {
		f.Text += ": none of its nodes is " + string(farm.NodeActive)
	}
	return f, true
}

// cacheForecast describes how many nodes could start it, and have the version already.
func cacheForecast(v *visit, r *client.StartRequest) (f forecast, ok bool) {
	ask := client.DistributeRequest{TemplateID: r.TemplateID, Tag: r.Tag, Version: r.Version, Group: r.Group}
	if r.NodeID != "" {
		ask.NodeIDs = []string{r.NodeID}
	}
	if r.GroupID != "" {
		ask.GroupIDs = []string{r.GroupID}
	}
	p, err := v.PreviewDistribution(v, ask)
	switch {
	case client.CodeOf(err) == client.ErrForbidden, client.CodeOf(err) == client.ErrInvalid:
		return f, false
	case err != nil:
		return forecast{Icon: "alert", Tone: "warn", Text: notShownReason(err)}, true
	}
	able := p.Nodes - p.Unsuitable
	f = forecast{
		Icon: "pull", Text: fmt.Sprintf("%s of %s cached %s", format.Count(p.Cached),
			format.Plural(able, "suitable node has", "suitable nodes have"), p.Tag),
	}
	if able <= 0 {
		return forecast{Icon: "alert", Tone: "bad", Text: "No node can run this template"}, true
	}
	var details []string
	if p.Cached < able {
		details = append(details, "another one first pulls up to "+bytesize.Format(p.NodeBytes))
	}
	if p.Unsuitable > 0 {
		details = append(details, format.Plural(p.Unsuitable, "node runs other guests or architectures",
			"nodes run other guests or architectures"))
	}
	f.Detail = strings.Join(details, "; ")
	return f, true
}
