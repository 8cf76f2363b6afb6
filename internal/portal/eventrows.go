package portal

import (
	"strings"
	"time"

	"github.com/buildyard/buildyard/client"
)

// eventRow is an event in a list, or several equal ones within a minute.
type eventRow struct {
	ID         string // of the oldest event, which does not change while equal ones follow
	Time       time.Time
	Icon, Tone string
	Sentence   []sentencePart
	Text       string // its other fields
	Count      int
	First      time.Time    // of the oldest event
	Members    []eventEntry // the newest ones of several
	More       int          // events that are not in Members
}

// eventEntry is one of several equal events.
type eventEntry struct {
	Time     time.Time
	Sentence []sentencePart
	Text     string
}

// eventTable is a table of events.
type eventTable struct {
	Rows []eventRow
	Now  time.Time
}

const (
	equalWithin = time.Minute // from the newest of equal events to the oldest
	mostMembers = 20          // of a row that are listed
)

// groupedEvent is equal events, the newest first.
type groupedEvent []client.Event

// groupEvents returns the newest event first, with those that are equal and follow within a minute.
func groupEvents(all []client.Event) (groups []groupedEvent) {
	last := map[string]int{} // index of the newest group with a key
	for i := len(all) - 1; i >= 0; i-- {
		e := all[i]
		key := eventText{Event: e}.sameKey()
		at, known := last[key]
		if known && groups[at][0].Time-e.Time <= int64(equalWithin/time.Second) {
			groups[at] = append(groups[at], e)
			continue
		}
		last[key] = len(groups)
		groups = append(groups, groupedEvent{e})
	}
	return groups
}

// row returns a group as a row of a table.
func (g groupedEvent) row(names eventNames) eventRow {
	newest, oldest := eventText{g[0], names}, g[len(g)-1]
	kind := sentenceOf(newest.Name)
	row := eventRow{
		ID: oldest.ID, Time: time.Unix(newest.Time, 0), First: time.Unix(oldest.Time, 0), Icon: kind.icon,
		Tone: kind.tone, Count: len(g), Sentence: newest.sentence(kind.one, 1), Text: newest.detail(),
	}
	if len(g) == 1 {
		return row
	}
	row.Text = ""
	if kind.many != "" {
		row.Sentence = newest.sentence(kind.many, len(g))
	}
	for _, e := range g[:min(mostMembers, len(g))] {
		one := eventText{e, names}
		row.Members = append(row.Members, eventEntry{time.Unix(e.Time, 0), one.sentence(kind.one, 1), one.detail()})
	}
	row.More = len(g) - len(row.Members)
	return row
}

// newEventTable returns a table of groups of events, with the names of what they are about. Members of a group are not
// listed unless they are shown.
func newEventTable(v *visit, groups []groupedEvent, showsMembers bool) eventTable {
	names := lookUpNames(v, groups, showsMembers)
	table := eventTable{Now: v.now}
	for _, g := range groups {
		table.Rows = append(table.Rows, g.row(names))
	}
	return table
}

// eventsAbout returns the newest events of something for its page.
func eventsAbout(v *visit, filter string) (eventTable, error) {
	events, err := v.Events(v, client.EventQuery{Filter: filter, Limit: firstEvents})
	groups := groupEvents(events)
	return newEventTable(v, groups[:min(embeddedRows, len(groups))], true), err
}

const (
	mostNames  = 60 // IDs of one kind that are looked up for a page
	namesAtOne = 50 // IDs in a filter, which the API bounds
)

// lookUpNames returns the names of instances, nodes and templates that events have only by ID. Names that cannot be
// read are missing.
func lookUpNames(v *visit, groups []groupedEvent, showsMembers bool) eventNames {
	names := eventNames{}
	instances, nodes, templates := wantedNames(groups, showsMembers)
	for _, row := range instanceStatesOf(v, instances) {
		names[row.ID] = row.Name
	}
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

// wantedNames returns the IDs of what the rows of a table show without a name: first those of the rows themselves.
func wantedNames(groups []groupedEvent, showsMembers bool) (instances, nodes, templates []string) {
	add := func(e client.Event) {
		instances = append(instances, e.InstanceID)
		nodes = append(nodes, eventText{Event: e}.unnamed("node_id", "node_name"))
		templates = append(templates, eventText{Event: e}.unnamed("template_id", "template_name"))
	}
	for _, g := range groups {
		add(g[0])
	}
	for _, g := range groups {
		if showsMembers {
			for _, e := range g[:min(mostMembers, len(g))] {
				add(e)
			}
		}
	}
	return wantedIDs(instances), wantedIDs(nodes), wantedIDs(templates)
}

// wantedIDs returns IDs once each, at most mostNames.
func wantedIDs(all []string) []string {
	ids := wellFormedIDs(all)
	return ids[:min(mostNames, len(ids))]
}

// unnamed returns the ID of an event's field if the event does not have its name.
func (e eventText) unnamed(id, name string) string {
	if e.value(name) != "" {
		return ""
	}
	return e.value(id)
}
