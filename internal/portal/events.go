package portal

import (
	"fmt"
	"strings"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/portal/eventtext"
	"github.com/buildyard/buildyard/internal/portal/format"
)

func (p *portal) eventPages() []page {
	return []page{{pattern: "/events", templateName: "events", title: "Events", topics: Events, buildView: listEvents}}
}

// link forwards to something.
type link struct{ Name, Path string }

// eventList is the page of the events.
type eventList struct {
	Filter, FilterError string
	Chips               []chip
	Events              eventTable
	CurlCommand         string
	From, To            int
	Before, After       string // newer and older ones
	IsLastPage          bool   // older ones are not kept here
	Disabled            bool   // the controller keeps no events
}

const (
	maxEvents   = 1000 // that the API returns at a time, and the controller keeps
	firstEvents = 200  // that are read for the first page; equal ones are one row
	lastEvents  = maxEvents / rowsPerPage
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
	list.CurlCommand = curlCommand(v, "GET",
		format.Path("/api/v1/events", "filter", a.filter, "limit", fmt.Sprint(rowsPerPage)), "")
	return list, nil
}

// readEvents returns the events that a page needs, with equal ones together, and reports whether the API has no
// older ones to give.
func readEvents(v *visit, a tableQuery) (groups []eventtext.Group, isLast bool, err error) {
	for _, limit := range []int{firstEvents, maxEvents} {
		events, err := v.Events(v, client.EventQuery{Filter: a.filter, Limit: limit})
		if err != nil {
			return nil, false, err
		}
		groups, isLast = eventtext.Groups(events), len(events) == maxEvents
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
