package portal

import (
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/portal/eventtext"
)

// eventTable is a table of events.
type eventTable struct {
	Rows []eventtext.Row
	Now  time.Time
}

// newEventTable returns a table of groups of events, with the names of what they are about. Members of a group are not
// listed unless they are shown.
func newEventTable(v *visit, groups []eventtext.Group, showsMembers bool) eventTable {
	names := lookUpNames(v, groups, showsMembers)
	table := eventTable{Now: v.now}
	for _, g := range groups {
		table.Rows = append(table.Rows, g.Row(names))
	}
	return table
}

// eventsAbout returns the newest events of something for its page.
func eventsAbout(v *visit, filter string) (eventTable, error) {
	events, err := v.Events(v, client.EventQuery{Filter: filter, Limit: firstEvents})
	groups := eventtext.Groups(events)
	return newEventTable(v, groups[:min(embeddedRows, len(groups))], true), err
}

const (
	maxNames   = 60 // IDs of one kind that are looked up for a page
	namesAtOne = 50 // IDs in a filter, which the API bounds

	fewInstances    = 5   // that are read one by one in any case
	newestInstances = 100 // that are read together, since most events are about them
	maxSingleReads  = 20  // of the other instances
)

// lookUpNames returns the names of instances, nodes and templates that events have only by ID. Names that cannot be
// read are missing.
func lookUpNames(v *visit, groups []eventtext.Group, showsMembers bool) eventtext.Names {
	names := eventtext.Names{}
	instances, nodes, templates := eventtext.Unnamed(groups, showsMembers)
	instances, nodes, templates = wantedIDs(instances), wantedIDs(nodes), wantedIDs(templates)
	addInstances(v, names, instances)
	for _, row := range nodeStatesOf(v, nodes) {
		names[row.ID] = row.Name
	}
	if len(templates) > 0 {
		filter := "id:" + strings.Join(templates[:min(namesAtOne, len(templates))], ",")
		if list, err := v.Templates(v, client.ListOptions{Filter: filter}); err == nil {
			for _, t := range list {
				names[t.ID] = t.Name
			}
		}
	}
	return names
}

// addInstances adds the names of instances. A filter would search all instances, so that it reads the newest ones, and
// a few of the others each by its ID.
func addInstances(v *visit, names eventtext.Names, ids []string) {
	if len(ids) > fewInstances {
		page, err := v.InstancePage(v, client.PageOptions{Sort: "age", Limit: newestInstances})
		if err != nil {
			return
		}
		for _, item := range page.Instances {
			if item.Name != nil && *item.Name != "" && slices.Contains(ids, item.InstanceID) {
				names[item.InstanceID] = *item.Name
			}
		}
	}
	others := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return names[id] != "" })
	for _, row := range instanceStatesOf(v, others[:min(maxSingleReads, len(others))]) {
		names[row.ID] = row.Name
	}
}

// wantedIDs returns IDs once each, at most maxNames.
func wantedIDs(all []string) []string {
	ids := wellFormedIDs(all)
	return ids[:min(maxNames, len(ids))]
}
