package portal

import (
	"fmt"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
)

// forecast is one line about what a start would do now.
type forecast struct {
	Icon, Tone, Text, Detail string
	At                       time.Time // when that is; zero: now
}

// forecasts returns what a start would do now, as far as the visitor may see that. It starts nothing.
func forecasts(v *visit, r *client.StartRequest) (list []forecast) {
	if r.TemplateID == "" {
		return []forecast{{Icon: "clock", Text: "Choose a template to see where it would start."}}
	}
	if f, ok := slotForecast(v, r); ok {
		list = append(list, f)
	}
	if f, ok := cacheForecast(v, r); ok {
		list = append(list, f)
	}
	if stats, err := v.stats(); err == nil && stats.QueueDepth > 0 {
		list = append(list, forecast{
			Icon: "clock", Tone: "warn",
			Text:   pluralText(stats.QueueDepth, "request waits", "requests wait") + " in the queue",
			Detail: "the oldest for " + secondsText(stats.OldestWait),
		})
	}
	if ttl := time.Duration(r.TTL); ttl > 0 {
		list = append(list, forecast{Icon: "stop", Text: "Terminates automatically", At: v.now.Add(ttl)})
	}
	return list
}

// slotForecast compares the instances with the free slots of the node, the group or the cloud.
func slotForecast(v *visit, r *client.StartRequest) (f forecast, ok bool) {
	free, where := 0, "in the cloud"
	switch {
	case r.NodeID != "":
		n, err := v.Node(v, r.NodeID)
		if err != nil {
			return f, false
		}
		free, where = withSlots(n).Slots.Free, "on "+n.NodeName
	case r.GroupID != "":
		s, err := v.GroupSparklines(v, api.RangeHour)
		if err != nil {
			return f, false
		}
		for _, g := range s.Series {
			if g.ID == r.GroupID {
				free, where = max(lastInt(g.Capacity)-lastInt(g.SlotsUsed), 0), "in the group "+g.Name
			}
		}
	default:
		stats, err := v.stats()
		if err != nil {
			return f, false
		}
		free = stats.Slots.Free
	}
	f = forecast{Icon: "ok", Tone: "ok", Text: pluralText(free, "free slot ", "free slots ") + where}
	if wanted := max(r.Count, 1); wanted > free {
		f.Icon, f.Tone = "alert", "warn"
		f.Detail = pluralText(wanted-free, "instance waits", "instances wait") + " until a slot is free"
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
		Icon: "pull", Text: fmt.Sprintf("%d of %s cached %s", p.Cached, pluralText(able, "suitable node has",
			"suitable nodes have"), p.Tag),
	}
	switch {
	case able == 0:
		return forecast{Icon: "alert", Tone: "bad", Text: "No node can run this template"}, true
	case p.Cached < able:
		f.Detail = "another one first pulls up to " + bytesize.Format(p.NodeBytes)
	}
	if p.Unsuitable > 0 {
		f.Detail += fmt.Sprintf("; %s run other guests or architectures", pluralText(p.Unsuitable, "node", "nodes"))
	}
	return f, true
}
