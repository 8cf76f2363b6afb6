package nodes

import (
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/store"
)

// TestSlots: each slot of a node is counted once, by what takes it, and has a named holder.
func TestSlots(t *testing.T) {
	n := open(t)
	id := n.addNode(farm.NodeInfo{Arch: "amd64"})
	node := n.node(id).Clone()
	node.Capacity, node.State = 6, farm.NodeActive
	n.commit(store.Put(n.db.Tables.Nodes, id, node, store.Any))
	n.opts.Orphans = func(string) (sched.Load, bool) { return sched.Load{VMs: 1}, true }
	n.opts.OrphanedVMs = func(node *farm.Node) []record.OrphanedVM {
		return []record.OrphanedVM{{Node: node, ID: "orphan", Held: api.InventoryItem{VMID: "vm-o"}}}
	}
	vm := func(status farm.VMStatus) *farm.VMInfo {
		return &farm.VMInfo{UUID: "vm-" + string(status), Status: status}
	}
	for name, inst := range map[string]farm.Instance{
		"1running":  {State: farm.Started, VM: vm(farm.VMRunning)},
		"2failed":   {State: farm.Errored, VM: vm(farm.VMRunning)},
		"3stopped":  {State: farm.Stopped, VM: vm(farm.VMStopped)},
		"4pulling":  {State: farm.Pulling},
		"gone":      {State: farm.Errored},
		"deleted":   {State: farm.Errored, VM: vm(farm.VMDeleted)},
		"scheduled": {State: farm.Scheduling},
	} {
		inst.ID = name
		if inst.State != farm.Scheduling {
			inst.NodeID = id
		}
		n.commit(store.Put(n.db.Tables.Instances, name, &inst, store.IfAbsent))
	}
	want := Slots{Capacity: 6, Running: 1, Failed: 1, Orphaned: 1, Other: 2}
	view, err := n.Get(t.Context(), id)
	if err != nil || view.Slots != want || view.Slots.Used() != 5 || view.Slots.Free() != 1 {
		t.Errorf("%+v %v, want %+v", view.Slots, err, want)
	}
	var holders []string
	for _, h := range n.SlotHolders(node) {
		name := "orphan"
		if h.Instance != nil {
			name = h.Instance.ID
		}
		holders = append(holders, name+" "+h.VMID())
	}
	expected := []string{"1running vm-running", "2failed vm-running", "3stopped vm-stopped", "4pulling ", "orphan vm-o"}
	if len(holders) != len(expected) || len(holders) != view.Slots.Used() {
		t.Fatalf("%q, want %q", holders, expected)
	}
	for i, h := range holders {
		if h != expected[i] {
			t.Errorf("holder %d: %q, want %q", i, h, expected[i])
		}
	}

	other := n.addNode(farm.NodeInfo{})
	if sum, free := n.Slots(); free != 2 || sum.Orphaned != 2 || sum.Capacity != 6+n.node(other).Capacity {
		t.Errorf("all: %+v, %d free", sum, free)
	}
	for _, id := range []string{id, other} {
		grouped := n.node(id).Clone()
		grouped.Groups = []string{"g"}
		if id == other {
			grouped.State, grouped.Capacity = farm.NodeOffline, 3
		}
		n.commit(store.Put(n.db.Tables.Nodes, id, grouped, store.Any))
	}
	wantLoad := GroupLoad{
		Slots: Slots{Capacity: 9, Running: 1, Failed: 1, Orphaned: 2, Other: 2}, Free: 1, Nodes: 2, Active: 1,
	}
	if loads := n.GroupLoads(); len(loads) != 1 || loads["g"] != wantLoad {
		t.Errorf("groups: %+v", loads)
	}
}
