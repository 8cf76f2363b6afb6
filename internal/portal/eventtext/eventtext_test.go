package eventtext

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/farm"
)

// newEvent reads an event as the API sends it.
func newEvent(t *testing.T, text string) (e client.Event) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// plainText returns a sentence with its links in brackets.
func plainText(parts []Part) string {
	var out strings.Builder
	for _, p := range parts {
		if p.Path != "" {
			fmt.Fprintf(&out, "[%s](%s)", p.Text, p.Path)
		} else {
			out.WriteString(p.Text)
		}
	}
	return out.String()
}

// TestEventSentences: who did what to what, with links.
func TestEventSentences(t *testing.T) {
	names := Names{"i1": "ios-build-12", "n1": "mac-0042", "t1": "sonoma"}
	for _, x := range []struct{ event, want string }{
		{
			`{"name":"TerminateVM","type":"apiAction","instance_id":"i1","user":"alice","instance_state":"Started"}`,
			"[alice](/events?q=user%3Aalice) terminated [ios-build-12](/instances/i1) | instance state: Started",
		},
		{
			`{"name":"TerminateVM","type":"apiAction","instance_id":"0123456789","user":"ci","for_user":"bob"}`,
			"[ci for bob](/events?q=user%3Abob) terminated [instance 23456789](/instances/0123456789) | ",
		},
		{
			`{"name":"StartVM","type":"apiAction","instance_id":"i1","template_id":"t1","tag":"v1","priority":0,"group_id":"9c"}`,
			"An anonymous caller requested [ios-build-12](/instances/i1) of [sonoma:v1](/templates/t1) | ",
		},
		{
			`{"name":"VMFailedToStart","type":"systemAction","instance_id":"i1","node_id":"n1","message":"raw",
			"failure":{"summary":"The guest did not answer."}}`,
			"[ios-build-12](/instances/i1) failed on [mac-0042](/nodes/n1): The guest did not answer | ",
		},
		{
			`{"name":"ConfigNode","type":"apiAction","node_id":"n1","address":"10.0.0.1","drain_mode":true,
			"drain_reason":"disk"}`,
			"[10.0.0.1](/events?q=address%3A10.0.0.1) drained [mac-0042](/nodes/n1) | drain reason: disk",
		},
		{
			`{"name":"NodeOffline","type":"systemAction","node_id":"n1","node_name":"own name","since":0}`,
			"[own name](/nodes/n1) went offline | since: 1970-01-01 00:00:00 UTC",
		},
		{
			`{"name":"Audit","type":"apiAction","user":"eve","route":"POST /api/v1/group","outcome":"ok"}`,
			"[eve](/events?q=user%3Aeve) called POST /api/v1/group | outcome: ok",
		},
		{
			`{"name":"DistributeTemplateToNodes","type":"apiAction","user":"ann","template_id":"t1","tag":"v1","node_count":1}`,
			"[ann](/events?q=user%3Aann) prefetched [sonoma:v1](/templates/t1) to 1 node | ",
		},
		{
			`{"name":"NodesOffline","type":"systemAction","node_count":1200}`,
			"1\u202f200 more nodes went offline | ",
		},
		{`{"name":"unheard","type":"systemAction","colour":"red"}`, "Unheard | colour: red"},
	} {
		e := Event{newEvent(t, x.event), names}
		if got := plainText(e.sentence(sentenceOf(e.Name).one, 1)) + " | " + e.detail(); got != x.want {
			t.Errorf("%s:\n%s\nwant\n%s", x.event, got, x.want)
		}
	}
	for _, e := range farm.Events() {
		if _, ok := sentences[e.Name]; !ok {
			t.Errorf("%s has no sentence", e.Name)
		}
	}
}

// TestGroupedEvents: equal events of one minute are one row, in the place of the newest.
func TestGroupedEvents(t *testing.T) {
	var all []client.Event
	add := func(second int, name, user, instance string) {
		all = append(all, newEvent(t, fmt.Sprintf(
			`{"id":"e%d","name":%q,"type":"apiAction","time":%d,"user":%q,"instance_id":%q}`, len(all), name, second,
			user, instance)))
	}
	add(59, "TerminateVM", "alice", "i0") // of the minute before
	for i := range 30 {
		add(61+i, "TerminateVM", "alice", fmt.Sprintf("i%d", i+1))
		if i == 10 {
			add(71, "TerminateVM", "bob", "j")
		}
	}
	add(95, "VMTerminated", "", "i1")
	groups := Groups(all)
	var sizes []int
	for _, g := range groups {
		sizes = append(sizes, len(g))
	}
	if !slices.Equal(sizes, []int{1, 30, 1, 1}) {
		t.Fatalf("groups of %v", sizes)
	}
	row := groups[1].Row(Names{})
	if got := plainText(row.Sentence); got != "[alice](/events?q=user%3Aalice) terminated 30 instances" {
		t.Error(got)
	}
	if row.Count != 30 || len(row.Members) != maxMembers || row.More != 10 ||
		row.First.Unix() != 61 || row.Time.Unix() != 90 {
		t.Errorf("%+v", row)
	}
	if got := plainText(row.Members[0].Sentence); !strings.HasSuffix(got, "terminated [instance i30](/instances/i30)") {
		t.Error(got)
	}
}

// TestRowsOfEventsAreStable: while equal events follow, and old ones are no longer read, rows keep their IDs.
func TestRowsOfEventsAreStable(t *testing.T) {
	const read = 15 // events at a time
	var all []client.Event
	var before []string
	for i := range 40 {
		all = append(all, newEvent(t, fmt.Sprintf(
			`{"id":"e%d","name":"TerminateVM","type":"apiAction","time":%d,"user":"ann","instance_id":"i%d"}`, i, 10*i, i)))
		var ids []string
		for _, g := range Groups(all[max(len(all)-read, 0):]) {
			ids = append(ids, g.Row(nil).ID)
		}
		if i%6 == 0 { // a new minute
			before = append([]string{ids[0]}, before...)
		}
		if len(ids) > len(before) || !slices.Equal(ids, before[:len(ids)]) || len(ids) > read/6+2 {
			t.Fatalf("after %d events: %v, before %v", i+1, ids, before)
		}
		before = ids
	}
	if len(slices.Compact(slices.Sorted(slices.Values(before)))) != len(before) {
		t.Errorf("rows with the same ID: %v", before)
	}
}

// TestUnnamed: only names that a table shows, and an event does not have, are read.
func TestUnnamed(t *testing.T) {
	var all []client.Event
	for i := range 3 {
		all = append(all, newEvent(t, fmt.Sprintf(
			`{"id":"e%d","name":"TerminateVM","type":"apiAction","time":%d,"user":"ann","instance_id":"i%d"}`, i, i, i)))
	}
	all = append(all,
		newEvent(t, `{"id":"n","name":"NodeOffline","time":70,"node_id":"n1","node_name":"mac"}`),
		newEvent(t, `{"id":"d","name":"NodeDrained","time":71,"node_id":"n2"}`))
	for showsMembers, want := range map[bool]string{true: "[i2 i1 i0] [n2] []", false: "[] [n2] []"} {
		instances, nodes, templates := Unnamed(Groups(all), showsMembers)
		if got := fmt.Sprint(instances, nodes, templates); got != want {
			t.Errorf("members %v: %s, not %s", showsMembers, got, want)
		}
	}
}
