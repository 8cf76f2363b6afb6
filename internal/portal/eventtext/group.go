package eventtext

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/client"
)

// Row is an event in a list, or several equal ones of one minute.
type Row struct {
	ID         string // of the row: it does not change while equal events of the minute follow, or are no longer read
	Time       time.Time
	Icon, Tone string
	Sentence   []Part
	Text       string // its other fields
	Count      int
	First      time.Time // of the oldest event
	Members    []Member  // the newest ones of several
	More       int       // events that are not in Members
}

// Member is one of several equal events.
type Member struct {
	Time     time.Time
	Sentence []Part
	Text     string
}

const (
	equalSeconds = 60 // equal events of one minute of UTC are one row
	maxMembers   = 20 // of a row that are listed
)

// Group is equal events of one minute, the newest first.
type Group []client.Event

// minuteKey is what the events of a group have in common.
type minuteKey struct {
	minute int64
	same   string
}

func newMinuteKey(e client.Event) minuteKey {
	return minuteKey{e.Time / equalSeconds, Event{Event: e}.sameKey()}
}

// Groups returns the newest event first, each with the equal ones of its minute of UTC. Minutes are fixed, so that
// a new event moves none from one group to another.
func Groups(all []client.Event) (groups []Group) {
	index := map[minuteKey]int{} // of groups
	for _, e := range slices.Backward(all) {
		key := newMinuteKey(e)
		if at, known := index[key]; known {
			groups[at] = append(groups[at], e)
			continue
		}
		index[key] = len(groups)
		groups = append(groups, Group{e})
	}
	return groups
}

// id returns an ID for the row of a group, which all its events have in common.
func (g Group) id() string {
	key := newMinuteKey(g[0])
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", key.minute, key.same))
	return hex.EncodeToString(sum[:8])
}

// Row returns a group as a row of a table.
func (g Group) Row(names Names) Row {
	newest, oldest := Event{g[0], names}, g[len(g)-1]
	kind := sentenceOf(newest.Name)
	row := Row{
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
		one := Event{e, names}
		row.Members = append(row.Members, Member{time.Unix(e.Time, 0), one.sentence(kind.one, 1), one.detail()})
	}
	row.More = len(g) - len(row.Members)
	return row
}

// Unnamed returns the IDs of what the rows of groups show without a name: first those of the rows themselves.
func Unnamed(groups []Group, showsMembers bool) (instances, nodes, templates []string) {
	add := func(e client.Event, format string) {
		text := Event{Event: e}
		for noun, ids := range map[string]*[]string{"instance": &instances, "node": &nodes, "template": &templates} {
			if strings.Contains(format, "{"+noun+"}") {
				if id := text.unnamed(noun+"_id", noun+"_name"); id != "" && !slices.Contains(*ids, id) {
					*ids = append(*ids, id)
				}
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
	return instances, nodes, templates
}

// unnamed returns the ID of an event's field if the event does not have its name.
func (e Event) unnamed(id, name string) string {
	if e.value(name) != "" {
		return ""
	}
	return e.value(id)
}
