package portal

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/client"
)

func (p *portal) eventPages() []page {
	return []page{{pattern: "/events", templateName: "events", title: "Events", topics: Events, buildView: listEvents}}
}

// eventRow is an event in a list.
type eventRow struct {
	ID, Name string
	Kind     string // what it is about
	Time     time.Time
	About    []link
	Caller   string // the caller
	Text     string // its other fields
}

// eventTable is a table of events.
type eventTable struct {
	Rows []eventRow
	Now  time.Time
}

// link forwards to something.
type link struct{ Name, Path string }

// eventLinks are the keys of events that name something with a page, with the keys of its display
// name.
var eventLinks = []struct{ key, called, noun, path string }{
	{"instance_id", "instance_name", "instance", "/instances/"},
	{"node_id", "node_name", "node", "/nodes/"},
	{"template_id", "template_name", "template", "/templates/"},
}

// hiddenEventKeys are the keys of events that have a separate place in a row, or do not matter to a
// reader.
var hiddenEventKeys = []string{
	"id", "name", "type", "sub_type", "time", "machineName", "user", "key_id", "address",
	"request",
}

// eventRows returns the newest event first.
func eventRows(all []client.Event) []eventRow {
	rows := make([]eventRow, 0, len(all))
	for _, e := range slices.Backward(all) {
		rows = append(rows, newEventRow(e))
	}
	return rows
}

func newEventRow(e client.Event) eventRow {
	row := eventRow{ID: e.ID, Name: e.Name, Kind: strings.TrimSuffix(e.SubType, "Action"), Time: time.Unix(e.Time, 0)}
	shown := slices.Clone(hiddenEventKeys)
	for _, l := range eventLinks {
		if id := eventValueText(e.All[l.key]); id != "" {
			name := eventValueText(e.All[l.called])
			if name == "" {
				name = l.noun + " " + shortID(id)
			}
			row.About = append(row.About, link{Name: name, Path: l.path + url.PathEscape(id)})
		}
		shown = append(shown, l.key, l.called)
	}
	for _, key := range []string{"user", "key_id", "address"} {
		if who := eventValueText(e.All[key]); who != "" {
			row.Caller = who
			break
		}
	}
	row.Text = otherEventFields(e.All, shown)
	return row
}

// otherEventFields writes the other fields of an event, in the order of their names.
func otherEventFields(all map[string]any, shown []string) string {
	var names []string
	for name := range all {
		if !slices.Contains(shown, name) && eventValueText(all[name]) != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for i, name := range names {
		names[i] = strings.ReplaceAll(name, "_", " ") + ": " + eventValueText(all[name])
	}
	return strings.Join(names, ", ")
}

// eventValueText writes a value of an event in short.
func eventValueText(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return value
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64)
	case bool:
		return strconv.FormatBool(value)
	}
	return jsonText(value)
}

// eventList is the page of the events.
type eventList struct {
	Filter, FilterError string
	Chips               []chip
	Events              eventTable
	CurlCommand         string
	From, To            int
	Before, After       string // newer and older ones
	IsLastPage          bool   // older ones are not kept here
	Disabled            bool   // there are no events, and there may never be
}

const (
	mostEvents = 1000 // that the API returns at a time, and the controller keeps
	lastEvents = mostEvents / rowsPerPage
)

func listEvents(v *visit) (any, error) {
	a := v.tableQuery("")
	a.sort, a.page = "", min(a.page, lastEvents)
	list := eventList{Filter: a.filter}
	want := min(mostEvents, a.page*rowsPerPage+1)
	events, err := v.Events(v, client.EventQuery{Filter: a.filter, Limit: want})
	if list.FilterError = filterError(err, a.filter); list.FilterError != "" {
		return list, nil
	}
	if client.CodeOf(err) == client.ErrRefused { // events are off
		list.Disabled = true
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	a.clampPage(max(0, len(events)-(a.page-1)*rowsPerPage), len(events))
	first := min((a.page-1)*rowsPerPage, len(events))
	end := min(a.page*rowsPerPage, len(events))
	list.Events = eventTable{eventRows(events[len(events)-end : len(events)-first]), v.now}
	list.From, list.To = first+1, end
	if a.page > 1 {
		list.Before = a.pathWith(a.filter, "", a.page-1)
	}
	if len(events) > end {
		list.After = a.pathWith(a.filter, "", a.page+1)
	}
	list.Chips = eventChips(a)
	list.IsLastPage = a.page == lastEvents
	list.Disabled = len(events) == 0 && a.filter == ""
	list.CurlCommand = curlCommand(v, "GET",
		pathWithQuery("/api/v1/events", "filter", a.filter, "limit", fmt.Sprint(rowsPerPage)), "")
	return list, nil
}

// eventGroups are the groups of events, with the filter that shows them.
var eventGroups = []struct{ name, term string }{
	{"Instances", "sub_type:vmAction"},
	{"Nodes", "sub_type:nodeAction"},
	{"Templates", "sub_type:templateAction"},
	{"Changes by people", "sub_type:auditAction"},
}

// eventChips are the groups of events, of which one is shown alone at a time.
func eventChips(a tableQuery) (chips []chip) {
	rest, on := a.filter, ""
	for _, k := range eventGroups {
		if before, after, ok := strings.Cut(" "+rest+" ", " "+k.term+" "); ok {
			rest, on = strings.TrimSpace(before+" "+after), k.name
		}
	}
	for _, k := range eventGroups {
		c := chip{Name: k.name, Selected: k.name == on, Path: a.pathWith(strings.TrimSpace(k.term+" "+rest), "", 1)}
		if c.Selected {
			c.Path = a.pathWith(rest, "", 1)
		}
		chips = append(chips, c)
	}
	return chips
}
