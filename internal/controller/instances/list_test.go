package instances

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// testInstances are instances in a database of their own. Pending ones wait for a node.
type testInstances struct {
	*Instances
	t *testing.T
}

func open(t *testing.T) testInstances {
	t.Helper()
	return testInstances{t: t, Instances: New(recordtest.Open(t), Options{
		WaitReasons: func(list []*farm.Instance) []string {
			reasons := make([]string, len(list))
			for i, inst := range list {
				if inst != nil && inst.AwaitsPlacement() {
					reasons[i] = "there are no nodes"
				}
			}
			return reasons
		},
		CheckSize: func(string, int) error { return nil },
	})}
}

// put creates pending instances whose ids follow those that exist, and returns them.
func (c testInstances) put(count int, edit ...func(*farm.Instance)) (list []*farm.Instance) {
	c.t.Helper()
	for range count {
		inst := &farm.Instance{ID: strconv.Itoa(c.db.Tables.Instances.Len()), State: farm.Scheduling}
		for _, f := range edit {
			f(inst)
		}
		if err := c.db.Store.Commit(c.t.Context(),
			store.Put(c.db.Tables.Instances, inst.ID, inst, store.IfAbsent)); err != nil {
			c.t.Fatal(err)
		}
		if err := c.db.UpToDate(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
		list = append(list, inst)
	}
	return list
}

// TestLongList: a list that is read from the snapshot shows the instances as they were when it was made,
// each time, and nothing that changed later.
func TestLongList(t *testing.T) {
	c := open(t)
	some := func(i *farm.Instance) { i.ExternalID = "some" }
	c.put(3, some)
	c.put(explainBatch, func(i *farm.Instance) { i.State, i.Message = farm.Errored, "failed" })
	first := c.put(2, some)[0].ID
	for _, p := range []Page{
		{},
		{Limit: 2},
		{Limit: explainBatch + 1},
		{After: first},
		{ExternalID: "some"},
		{ExternalID: "some", Limit: 4},
		{ExternalID: "none"},
		{Match: func(l View) bool { return l.ExternalID == "some" }},
	} {
		var visited []View
		want, list := texts(c.List(p)), c.ListLong(p, func(l View) { visited = append(visited, l) })
		if got := texts(visited); !slices.Equal(got, want) {
			t.Errorf("%+v: %d instances were visited, want %d: %.300s", p, len(got), len(want), got)
		}
		c.put(1, some)
		for range 2 {
			if got := texts(slices.Collect(list.All())); !slices.Equal(got, want) {
				t.Errorf("%+v: %d instances, want %d: %.300s", p, len(got), len(want), got)
			}
		}
	}
}

func texts(list []View) (out []string) {
	for _, l := range list {
		out = append(out, fmt.Sprint(l.ID, " ", l.State, " ", l.Message))
	}
	return out
}
