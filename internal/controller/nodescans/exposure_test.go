package nodescans

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// TestExposed: an instance is listed when a finding was known before its end, and counts what was known by then.
func TestExposed(t *testing.T) {
	_, s, _, node := open(t)
	now := s.db.Now()
	at := func(hours int) time.Time { return now.Add(time.Duration(hours) * time.Hour) }
	live := func(id, node string, change func(*farm.Instance)) {
		i := &farm.Instance{ID: id, Name: "vm-" + id, NodeID: node, State: farm.Started, Placed: at(-2)}
		if change != nil {
			change(i)
		}
		recordtest.Commit(t, s.db, store.Put(s.db.Tables.Instances, id, i, store.Any))
	}
	past := func(id, node string, placed, finished int) {
		p := &farm.InstanceHistory{ID: id, NodeID: node, Placed: at(placed), Finished: at(finished)}
		recordtest.Commit(t, s.db, store.Put(s.db.Tables.History, record.HistoryKey(p), p, store.Any))
	}
	live("runs", node, nil)
	live("elsewhere", "other", nil)
	live("standby", node, func(i *farm.Instance) { i.Pool = "pool" })
	live("ended", node, func(i *farm.Instance) { i.State, i.Placed, i.Finished = farm.Terminated, at(-9), at(-8) })
	past("before", node, -23, -20)
	past("during", node, -12, -9)
	past("after", node, -5, -4)
	past("not here", "other", -5, -4)

	found := []Finding{
		{Severity: "low", Known: at(-3)},
		{Severity: "critical", Exploited: true, Known: at(-10)},
		{Severity: "high", Known: at(-10)},
		{Severity: "odd", Known: at(-1)},
	}
	line := func(i api.ExposedInstance) string {
		return fmt.Sprint(i.InstanceID, " ", i.State, " ", i.Finished != nil, " ", i.Counts)
	}
	expect := func(found []Finding, want ...string) {
		t.Helper()
		list, leftOut := s.Exposed(node, found)
		var got []string
		for _, i := range list {
			got = append(got, line(i))
		}
		if !slices.Equal(got, want) || leftOut != 0 {
			t.Errorf("%d left out, %q, want %q", leftOut, got, want)
		}
	}
	counts := func(c, h, l, u int) api.ExposedCounts { // the critical one is known exploited
		return api.ExposedCounts{Critical: c, High: h, Low: l, Unknown: u, Exploited: c}
	}
	row := func(id string, state farm.InstanceState, finished bool, c api.ExposedCounts) string {
		return fmt.Sprint(id, " ", string(state), " ", finished, " ", c)
	}
	expect(found,
		row("runs", farm.Started, false, counts(1, 1, 1, 1)),
		row("after", farm.Terminated, true, counts(1, 1, 0, 0)),
		row("ended", farm.Terminated, true, counts(1, 1, 0, 0)),
		row("during", farm.Terminated, true, counts(1, 1, 0, 0)))
	expect(found[3:], row("runs", farm.Started, false, counts(0, 0, 0, 1)))
	expect(nil)
	expect([]Finding{{Severity: "high"}}, // known since a time that is not known
		row("runs", farm.Started, false, counts(0, 1, 0, 0)),
		row("after", farm.Terminated, true, counts(0, 1, 0, 0)),
		row("ended", farm.Terminated, true, counts(0, 1, 0, 0)),
		row("during", farm.Terminated, true, counts(0, 1, 0, 0)),
		row("before", farm.Terminated, true, counts(0, 1, 0, 0)))
}

// TestManyExposed: the list is bounded, and says how many are missing.
func TestManyExposed(t *testing.T) {
	_, s, _, node := open(t)
	for n := range api.MaxExposedInstances + 3 {
		p := &farm.InstanceHistory{
			ID: fmt.Sprint(n), NodeID: node, Placed: s.db.Now().Add(time.Duration(n)), Finished: s.db.Now(),
		}
		recordtest.Commit(t, s.db, store.Put(s.db.Tables.History, record.HistoryKey(p), p, store.Any))
	}
	list, leftOut := s.Exposed(node, []Finding{{Severity: "low"}})
	if len(list) != api.MaxExposedInstances || leftOut != 3 || list[0].InstanceID != fmt.Sprint(len(list)+2) {
		t.Errorf("%d instances, %d left out, first %+v", len(list), leftOut, list[0])
	}
}
