package portal

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/client"
)

func (p *portal) eventPages() []page {
	return []page{{pattern: "/events", templateName: "events", title: "Events", topics: Events, buildView: listEvents}}
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

// unixText formats a time in seconds since 1970.
func unixText(seconds int64) string { return fullTime(time.Unix(seconds, 0)) }

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
	mostEvents  = 1000 // that the API returns at a time, and the controller keeps
	firstEvents = 200  // that are read for the first page; equal ones are one row
	lastEvents  = mostEvents / rowsPerPage
)

func listEvents(v *visit) (any, error) {
	a := v.tableQuery("")
	a.sort, a.page = "", min(a.page, lastEvents)
	list := eventList{Filter: a.filter}
	groups, isLast, err := readEvents(v, a)
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
	shown := pageRows(&a, groups)
	list.Events = newEventTable(v, shown, true)
	list.From = (a.page-1)*rowsPerPage + 1
	list.To = list.From + len(shown) - 1
	if a.page > 1 {
		list.Before = a.pathWith(a.filter, "", a.page-1)
	}
	if len(groups) > list.To {
		list.After = a.pathWith(a.filter, "", a.page+1)
	}
	list.Chips = eventChips(a)
	list.IsLastPage = isLast && list.After == ""
	list.Disabled = len(groups) == 0 && a.filter == ""
	list.CurlCommand = curlCommand(v, "GET",
		pathWithQuery("/api/v1/events", "filter", a.filter, "limit", fmt.Sprint(rowsPerPage)), "")
	return list, nil
}

// readEvents returns the events that a page needs, with equal ones together, and reports whether the API has no
// older ones to give.
func readEvents(v *visit, a tableQuery) (groups []groupedEvent, isLast bool, err error) {
	for _, limit := range []int{firstEvents, mostEvents} {
		events, err := v.Events(v, client.EventQuery{Filter: a.filter, Limit: limit})
		if err != nil {
			return nil, false, err
		}
		groups, isLast = groupEvents(events), len(events) == mostEvents
		if len(events) < limit || len(groups) > a.page*rowsPerPage {
			break
		}
	}
	return groups, isLast, nil
}

// eventGroups are the groups of events, with the filter that shows them.
var eventGroups = []struct{ name, term string }{
	{"Failures", "name:VMFailedToStart,NodeOffline,NodesOffline,NodeUnhealthy,NodesUnhealthy,AlarmStarted"},
	{"By people and keys", "type:apiAction"},
	{"By the system", "type:systemAction"},
	{"Instances", "sub_type:vmAction"},
	{"Nodes", "sub_type:nodeAction"},
	{"Templates", "sub_type:templateAction"},
	{"Alarms", "sub_type:alarmAction"},
	{"Access and settings", "sub_type:auditAction"},
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
