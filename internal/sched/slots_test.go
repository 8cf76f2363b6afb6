package sched

import (
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestFullOfWhat: the reason of a full node has the numbers of its slots, and follows changes of what uses them.
func TestFullOfWhat(t *testing.T) {
	pinned := func(r *Request) { r.PinnedNodeID = "a" }
	x := indexOf([]Node{machine("a", 3, func(n *Node) { n.OrphanedLoad = vms(1) })}, nil)
	set := func(id string, use farm.SlotUse) {
		i := on("a", ask(id, 0))
		i.Slot = use
		x.SetInstance(i)
	}
	reason := func(want string) {
		t.Helper()
		if got := x.PendingReason("r", noon).Text; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := x.Explain("r", noon)[0]; "node name-a "+got.Text != want && got.Filter == FilterFull {
			t.Errorf("explained: %q, want %q", got.Text, want)
		}
	}
	set("i1", farm.SlotOther)
	set("i2", farm.SlotFailed)
	x.SetInstance(Instance{Request: ask("r", 1, pinned)})
	reason("node name-a is full: 1 failed, 1 orphaned, 1 in transition of 3")
	set("i1", farm.SlotRunning)
	reason("node name-a is full: 1 running, 1 failed, 1 orphaned of 3")
	set("i1", farm.SlotFailed)
	reason("node name-a is full: 2 failed, 1 orphaned of 3")
	set("i1", farm.SlotRunning)
	x.RemoveInstance("i2")
	set("i3", farm.SlotRunning)
	reason("node name-a is full: 2 running, 1 orphaned of 3")
	x.RemoveInstance("i1")
	reason("queued")
	x.RemoveInstance("i3")
	if e := x.usages["a"]; e.slots != (slotCounts{}) {
		t.Errorf("slots of an empty node: %+v", e.slots)
	}
}

func TestFullByResources(t *testing.T) {
	x := indexOf([]Node{machine("a", 9, func(n *Node) {
		n.CapacityMode, n.VCPULimit, n.MemoryLimitMB = farm.CapacityByResources, 2, 8192
	})}, []Request{ask("r", 1)})
	i := on("a", ask("i", 0))
	i.Slot = farm.SlotRunning
	x.SetInstance(i)
	if got := x.Explain("r", noon)[0].Text; got != "is full: 1 running" {
		t.Error(got)
	}
}
