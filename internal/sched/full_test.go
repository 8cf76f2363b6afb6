package sched

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	if got := x.FullFor(slices.Values(requests), []string{"a", "b", "c", "gone"}, 0); !cmp.Equal(got, want) {
		t.Errorf("full: %v, want %v", got, want)
	}
	if got := x.FullFor(slices.Values(requests), []string{"a", "b"}, 1); !cmp.Equal(got, want[:1]) {
		t.Errorf("with a limit: %v", got)
	}
	x.SetNode(machine("d", 1, full))
	x.Place(noon, 10)
	want = [][]string{{"a"}, {"a", "c"}, {"a"}}
	if got := x.FullFor(slices.Values(requests), []string{"a", "b", "c"}, 0); !cmp.Equal(got, want) {
		t.Errorf("without a free node: %v, want %v", got, want)
	}
}
