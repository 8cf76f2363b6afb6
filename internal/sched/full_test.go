package sched

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestFullFor: only nodes that lack nothing but capacity are returned, and none for a request that a node can take.
func TestFullFor(t *testing.T) {
	full := func(n *Node) { n.OrphanedLoad = vms(n.Capacity) }
	x := indexOf([]Node{
		machine("a", 1, full), machine("b", 1, full, held("offline")), machine("c", 1, full),
		machine("d", 1, inGroup("free")),
	}, []Request{
		ask("1", 1, func(r *Request) { r.PinnedNodeID = "a" }), ask("2", 2, func(r *Request) { r.PinnedNodeID = "b" }),
		ask("3", 3, func(r *Request) { r.Arch = "none" }), ask("4", 4),
		ask("5", 5, func(r *Request) { r.PinnedNodeID = "a" }),
	})
	requests := []string{"1", "2", "3", "4", "5", "unknown"}
	want := [][]string{{"a"}, {"a"}} // the node d can take request 4
	if got := x.FullFor(slices.Values(requests), []string{"a", "b", "c", "gone"}); !cmp.Equal(got, want) {
		t.Errorf("full: %v, want %v", got, want)
	}
	x.SetNode(machine("d", 1, full))
	x.Place(noon, 10)
	want = [][]string{{"a"}, {"a", "c"}, {"a"}}
	if got := x.FullFor(slices.Values(requests), []string{"a", "b", "c"}); !cmp.Equal(got, want) {
		t.Errorf("without a free node: %v, want %v", got, want)
	}
}

// TestReleases: VMs end on one node, as few as suffice, and none where the end of all would not suffice. Those that
// end already count for one request only.
func TestReleases(t *testing.T) {
	sized := func(vcpu int) func(n *Node) {
		return func(n *Node) { n.CapacityMode, n.VCPULimit, n.MemoryLimitMB = farm.CapacityByResources, vcpu, 1<<20 }
	}
	cpus := func(n int) func(r *Request) { return func(r *Request) { r.VCPU = n } }
	x := indexOf([]Node{
		machine("a", 0, sized(8)), machine("b", 0, sized(8)), machine("c", 0, sized(4)),
		machine("d", 0, sized(8)),
	}, nil)
	for _, vm := range []struct {
		id, node string
		vcpu     int
	}{
		{"a1", "a", 2},
		{"a2", "a", 2},
		{"a-job", "a", 4},
		{"b1", "b", 3},
		{"b2", "b", 3},
		{"b-job", "b", 2},
		{"c1", "c", 4},
		{"d1", "d", 2},
		{"d2", "d", 2},
		{"d-job", "d", 3},
	} {
		x.SetInstance(Instance{Request: ask(vm.id, 0, cpus(vm.vcpu)), NodeID: vm.node, UsesCapacity: true})
	}
	for id, vcpu := range map[string]int{"wants-6": 6, "wants-2": 2, "wants-8": 8, "wants-3": 3} {
		x.SetInstance(Instance{Request: ask(id, 1, cpus(vcpu))})
	}
	x.Place(noon, 10)
	for _, c := range []struct {
		name     string
		requests []string
		vms      map[string]Releasable
		limit    int
		want     [][]string
	}{
		{
			"on one node, the fewest",
			[]string{"wants-6", "wants-2", "wants-2"},
			map[string]Releasable{"a": {IDs: []string{"a1", "a2"}}, "b": {IDs: []string{"b1", "b2"}}},
			9,
			[][]string{{"b1", "b2"}, {"a1"}, {"a2"}},
		},
		{
			"that do not suffice",
			[]string{"wants-8", "wants-3"},
			map[string]Releasable{"a": {IDs: []string{"a1"}}, "b": {IDs: []string{"b1", "b2"}}},
			9,
			[][]string{{"b1"}},
		},
		{
			"that end already",
			[]string{"wants-3", "wants-3", "unknown"},
			map[string]Releasable{"b": {IDs: []string{"b2", "b1"}, Ending: 1}, "c": {IDs: []string{"c1"}}},
			9,
			[][]string{{}, {"b1"}},
		},
		{
			"what is free serves one request",
			[]string{"wants-3", "wants-3"},
			map[string]Releasable{"d": {IDs: []string{"d1", "d2"}}},
			9,
			[][]string{{"d1"}},
		},
		{
			"a limit, and what is no longer there",
			[]string{"wants-2", "wants-2"},
			map[string]Releasable{"a": {IDs: []string{"gone", "c1", "a2"}}, "none": {IDs: []string{"a1"}}},
			1,
			[][]string{{"gone", "c1", "a2"}},
		},
	} {
		got := x.Releases(slices.Values(c.requests), c.vms, c.limit)
		if !cmp.Equal(got, c.want, cmpopts.EquateEmpty()) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
