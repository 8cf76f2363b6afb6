package alarms

import (
	"slices"
	"testing"

	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// TestNodelessGroups: a group has no node if neither it nor its fallbacks have an Active one.
func TestNodelessGroups(t *testing.T) {
	db := recordtest.Open(t)
	tables := db.Tables
	changes := []store.Change{
		store.Put(tables.Nodes, "active", &farm.Node{
			ID: "active", State: farm.NodeActive, Groups: []string{"served"},
		}, store.Any),
		store.Put(tables.Nodes, "drained", &farm.Node{
			ID: "drained", State: farm.NodeActive, Drain: true, Groups: []string{"drained"},
		}, store.Any),
		store.Put(tables.Nodes, "offline", &farm.Node{
			ID: "offline", State: farm.NodeOffline, Groups: []string{"offline"},
		}, store.Any),
	}
	for id, fallback := range map[string]string{
		"served": "", "drained": "", "offline": "loop", "loop": "offline", "rescued": "served", "unused": "",
	} {
		changes = append(changes,
			store.Put(tables.Groups, id, &farm.Group{ID: id, Name: "group " + id, Fallback: fallback}, store.Any))
		if id == "unused" {
			continue
		}
		for _, n := range []string{"1", "2"} {
			inst := &farm.Instance{ID: id + n, State: farm.Scheduling, GroupID: id}
			if n == "2" && id != "offline" {
				inst.NodeID = "active" // it does not wait
			}
			changes = append(changes, store.Put(tables.Instances, inst.ID, inst, store.Any))
		}
	}
	if err := db.Store.Commit(t.Context(), changes...); err != nil {
		t.Fatal(err)
	}
	want := []NodelessGroup{{"", "group offline", 2}, {"", "group drained", 1}, {"", "group loop", 1}}
	got := NodelessGroups(tables)
	for i := range got {
		if group, _, _ := tables.Groups.Get(got[i].ID); group == nil || group.Name != got[i].Name {
			t.Errorf("the ID of %+v", got[i])
		}
		got[i].ID = ""
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
