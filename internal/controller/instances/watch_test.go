package instances

import (
	"strconv"
	"testing"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/store"
)

func TestWatchesShareBounds(t *testing.T) {
	c := open(t)
	const watches = 30
	var list []*Watch
	for range watches {
		list = append(list, c.Watch("flooder"))
	}
	other := c.Watch("other")
	defer other.Close()
	// Together those of a caller are behind by no more than one bound, whatever each of them does.
	events := make([]store.Event, maxBehind)
	for i := range events {
		events[i] = store.Event{Kind: record.KindInstance, ID: strconv.Itoa(i)}
	}
	share := maxBehind / watches
	for _, step := range []struct {
		from, to int
		lost     bool
	}{{0, share, false}, {share, share + 1, true}} {
		c.Observe(events[step.from:step.to])
		if list[1].lost != step.lost {
			t.Errorf("%d behind of a share of %d: lost is %v", step.to, share, list[1].lost)
		}
	}
	if c.Observe(events[share+1:]); other.lost {
		t.Error("the watches of one caller take the share of another one")
	}
	list[0].Close()
	list[0].Close()
	if n, mine := c.watches.count.Load(), list[1].Siblings(); n != watches || mine != watches-1 {
		t.Errorf("%d watches are open, %d of them of one caller", n, mine)
	}
}

func TestWatchIsBounded(t *testing.T) {
	c := open(t)
	w := c.Watch("")
	defer w.Close()
	events := make([]store.Event, maxBehind+1)
	for i := range events {
		events[i] = store.Event{Kind: record.KindInstance, ID: strconv.Itoa(i)}
	}
	some := events[:2*maxChanges+1]
	c.Observe(some)
	c.Observe(some) // once each
	for _, want := range []int{maxChanges, maxChanges, 1} {
		<-w.Wake()
		changes, ok := w.Changes()
		if !ok || len(changes) != want {
			t.Fatalf("%d changes, %v; want %d", len(changes), ok, want)
		}
	}
	if changes, ok := w.Changes(); len(changes) > 0 || !ok || len(w.changed) > 0 {
		t.Errorf("%d changes, %v, of nothing", len(changes), ok)
	}
	c.Observe(events[:maxBehind])
	if _, ok := w.Changes(); !ok {
		t.Error("a reader that is not too far behind has lost changes")
	}
	c.Observe(events)
	<-w.Wake()
	if changes, ok := w.Changes(); ok || len(changes) > 0 || w.order != nil {
		t.Errorf("%d changes, %v, of a reader that is too far behind", len(changes), ok)
	}
}

// TestWatchReportsOnce lets the tables be ahead of the changes that a reader is notified of.
func TestWatchReportsOnce(t *testing.T) {
	c := open(t)
	id := c.put(1)[0].ID
	inst, _, _ := c.db.Tables.Instances.Get(id)
	w := c.Watch("")
	defer w.Close()
	older := store.Event{Kind: record.KindInstance, ID: id, New: inst.Clone()}
	newest := store.Event{Kind: record.KindInstance, ID: id, New: inst}
	gone := store.Event{Kind: record.KindInstance, ID: "gone", Old: inst}
	for _, step := range []struct {
		name   string
		events []store.Event
		want   int
	}{
		{"a change that the table is ahead of", []store.Event{older}, 1},
		{"another one", []store.Event{older}, 0},
		{"the change itself", []store.Event{newest}, 0},
		{"the same state after others", []store.Event{older, newest}, 1},
		{"ahead once more", []store.Event{older}, 1},
		{"the rest of it at once", []store.Event{older, newest}, 0},
		{"a record that is gone later", []store.Event{{Kind: record.KindInstance, ID: "gone", New: inst}}, 1},
		{"its end", []store.Event{gone}, 0},
		{"an end", []store.Event{gone}, 1},
		{"other records", []store.Event{{Kind: record.KindNode, ID: "n"}}, 0},
	} {
		c.Observe(step.events)
		if changes, ok := w.Changes(); len(changes) != step.want || !ok {
			t.Errorf("%s: %d lines, want %d", step.name, len(changes), step.want)
		}
	}
	if len(w.reported)+len(w.changed)+len(w.order) > 0 {
		t.Errorf("%d and %d are remembered of nothing", len(w.reported), len(w.changed))
	}
}
