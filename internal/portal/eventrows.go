package portal

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/client"
)

// eventRow is an event in a list, or several equal ones of one minute.
type eventRow struct {
	ID         string // of the row: it does not change while equal events of the minute follow, or are no longer read
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
	equalSeconds = 60 // equal events of one minute of UTC are one row
	maxMembers   = 20 // of a row that are listed
)

// groupedEvent is equal events of one minute, the newest first.
type groupedEvent []client.Event

// minuteKey is what the events of a group have in common.
type minuteKey struct {
	minute int64
	same   string
}

func newMinuteKey(e client.Event) minuteKey {
	return minuteKey{e.Time / equalSeconds, eventText{Event: e}.sameKey()}
}

// groupEvents returns the newest event first, each with the equal ones of its minute of UTC. Minutes are fixed, so that
// a new event moves none from one group to another.
func groupEvents(all []client.Event) (groups []groupedEvent) {
	index := map[minuteKey]int{} // of groups
	for _, e := range slices.Backward(all) {
		key := newMinuteKey(e)
		if at, known := index[key]; known {
			groups[at] = append(groups[at], e)
			continue
		}
		index[key] = len(groups)
		groups = append(groups, groupedEvent{e})
	}
	return groups
}

// id returns an ID for the row of a group, which all its events have in common.
func (g groupedEvent) id() string {
	key := newMinuteKey(g[0])
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", key.minute, key.same))
	return hex.EncodeToString(sum[:8])
}

// row returns a group as a row of a table.
func (g groupedEvent) row(names eventNames) eventRow {
	newest, oldest := eventText{g[0], names}, g[len(g)-1]
	kind := sentenceOf(newest.Name)
	row := eventRow{
		ID: g.id(), Time: time.Unix(newest.Time, 0), First: time.Unix(oldest.Time, 0), Icon: kind.icon,
		Tone: kind.tone, Count: len(g), Sentence: newest.sentence(kind.one, 1), Text: newest.detail(),
	}
	if len(g) == 1 {
		return row
	}
	row.Text = ""
	if kind.many != "" {
		row.Sentence = newest.sentence(kind.many, len(g))
	}
	for _, e := range g[:min(maxMembers, len(g))] {
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
	maxNames   = 60 // IDs of one kind that are looked up for a page
	namesAtOne = 50 // IDs in a filter, which the API bounds

	fewInstances    = 5   // that are read one by one in any case
	newestInstances = 100 // that are read together, since most events are about them
	maxSingleReads  = 20  // of the other instances
)

// lookUpNames returns the names of instances, nodes and templates that events have only by ID. Names that cannot be
// read are missing.
func lookUpNames(v *visit, groups []groupedEvent, showsMembers bool) eventNames {
	names := eventNames{}
	instances, nodes, templates := wantedNames(groups, showsMembers)
	names.addInstances(v, instances)
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
func (n eventNames) addInstances(v *visit, ids []string) {
	if len(ids) > fewInstances {
		page, err := v.InstancePage(v, client.PageOptions{Sort: "age", Limit: newestInstances})
		if err != nil {
			return
		}
		for _, item := range page.Instances {
			if item.Name != nil && *item.Name != "" && slices.Contains(ids, item.InstanceID) {
				n[item.InstanceID] = *item.Name
			}
		}
	}
	others := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return n[id] != "" })
	for _, row := range instanceStatesOf(v, others[:min(maxSingleReads, len(others))]) {
		n[row.ID] = row.Name
	}
}

// wantedNames returns the IDs of what the rows of a table show without a name: first those of the rows themselves.
func wantedNames(groups []groupedEvent, showsMembers bool) (instances, nodes, templates []string) {
	add := func(e client.Event, format string) {
		text := eventText{Event: e}
		for noun, ids := range map[string]*[]string{"instance": &instances, "node": &nodes, "template": &templates} {
			if strings.Contains(format, "{"+noun+"}") {
				*ids = append(*ids, text.unnamed(noun+"_id", noun+"_name"))
			}
		}
	}
	for _, g := range groups {
		kind := sentenceOf(g[0].Name)
		if len(g) > 1 && kind.many != "" {
			add(g[0], kind.many)
		} else {
			add(g[0], kind.one)
		}
	}
	for _, g := range groups {
		if showsMembers && len(g) > 1 {
			for _, e := range g[:min(maxMembers, len(g))] {
				add(e, sentenceOf(e.Name).one)
			}
		}
	}
	return wantedIDs(instances), wantedIDs(nodes), wantedIDs(templates)
}

// wantedIDs returns IDs once each, at most maxNames.
func wantedIDs(all []string) []string {
	ids := wellFormedIDs(all)
	return ids[:min(maxNames, len(ids))]
}

// unnamed returns the ID of an event's field if the event does not have its name.
func (e eventText) unnamed(id, name string) string {
	if e.value(name) != "" {
		return ""
	}
	return e.value(id)
}
