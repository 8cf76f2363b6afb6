package sched

import "testing"

// TestExclusion: what excludes a node is named, except that it is full.
func TestExclusion(t *testing.T) {
	x := New(Options{})
	for id, n := range map[string]Node{
		"full":    {Capacity: 1, Groups: []string{"g"}},
		"away":    {Capacity: 1, Groups: []string{"g"}, Unschedulable: "offline"},
		"outside": {Capacity: 1},
	} {
		n.ID, n.Name = id, id
		x.SetNode(n)
	}
	x.SetInstance(Instance{Request: Request{ID: "running"}, NodeID: "full", UsesCapacity: true})
	for node, want := range map[string]Filter{
		"full": "", "away": FilterState, "outside": FilterGroup, "gone": FilterState,
	} {
		if got := x.Exclusion(Request{ID: "claim", GroupID: "g"}, node); got != want {
			t.Errorf("%s: %q, want %q", node, got, want)
		}
	}
	if got := x.Exclusion(Request{ID: "claim", PinnedNodeID: "other"}, "full"); got != FilterPinned {
		t.Errorf("another node: %q", got)
	}
}
