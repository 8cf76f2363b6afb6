package portal

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// TestSlotBar: each use of slots has a segment, a number and a word, and together they are all slots.
func TestSlotBar(t *testing.T) {
	for name, c := range map[string]struct {
		slots       api.Slots
		state       farm.NodeState
		label, held string
		used        int
	}{
		"free": {api.Slots{Capacity: 4, Free: 4}, farm.NodeActive, "4 free", "", 0},
		"held": {
			api.Slots{Capacity: 4, Running: 1, Failed: 2, Orphaned: 1},
			farm.NodeActive,
			"1 running, 2 held by failed VMs, 1 held by orphaned VMs", "2 failed, 1 orphaned", 4,
		},
		"starting": {
			api.Slots{Capacity: 2, Other: 1, Free: 1}, farm.NodeActive, "1 starting or stopped, 1 free", "", 1,
		},
		"offline":  {api.Slots{Capacity: 2, Running: 1, Free: 1}, farm.NodeOffline, "1 running, 1 unavailable", "", 1},
		"too many": {api.Slots{Capacity: 1, Running: 3}, farm.NodeActive, "3 running", "", 3},
		"large":    {api.Slots{Capacity: 1000, Running: 1, Free: 999}, farm.NodeActive, "1 running, 999 free", "", 1},
	} {
		b := nodeSlotBar(&api.Node{State: string(c.state), Slots: &c.slots})
		if b.Label != c.label || b.Held != c.held || b.Used != c.used {
			t.Errorf("%s: %q, held %q, %d used", name, b.Label, b.Held, b.Used)
		}
		sum := 0
		for _, k := range b.Key {
			sum += k.Count
		}
		if sum != max(c.slots.Capacity, c.used) {
			t.Errorf("%s: %d slots in the key", name, sum)
		}
		marks := 0
		for _, s := range b.Segments {
			marks += strings.Count(s.Path, "M")
		}
		if sum <= maxSlotSegments && marks != sum || sum > maxSlotSegments && marks != len(b.Segments) {
			t.Errorf("%s: %d marks for %d slots", name, marks, sum)
		}
	}
}

// TestSlotLines: each slot has a row that names what takes it; those of large nodes are bounded.
func TestSlotLines(t *testing.T) {
	n := api.Node{State: string(farm.NodeActive), Slots: &api.Slots{
		Capacity: 4, Running: 1, Failed: 1, Orphaned: 1, Free: 1, Holders: []api.SlotHolder{
			{Use: api.SlotRunning, InstanceID: "a", State: "Started", Name: "job", Fill: &api.DiskFill{
				Fraction: 0.43, Waiting: api.LongDiskWait,
			}},
			{Use: api.SlotFailed, InstanceID: "b", State: "Error"},
			{Use: api.SlotOrphaned, InstanceID: "c", VMID: "vm-1"},
		},
	}}
	lines, more := slotLines(&n, map[string]instanceRow{"a": {ID: "a", Name: "job", Template: "debian"}})
	if len(lines) != 4 || more != 0 {
		t.Fatalf("%d rows, %d more", len(lines), more)
	}
	for i, state := range []string{"Started", "Failed VM", "Orphaned VM", "Unused"} {
		if lines[i].State != state || lines[i].Number != i+1 {
			t.Errorf("row %d: %+v", i, lines[i])
		}
	}
	if lines[0].Instance.Template != "debian" || lines[1].Instance.Name != "b" || lines[2].Instance.ID != "" {
		t.Errorf("%+v", lines)
	}
	if got := lines[0].Note; got != "Disk 43 % local, the guest waits for the registry." {
		t.Errorf("the note is %q", got)
	}
	if got := slotWarning(&n); got != "1 slot is held by a failed VM, 1 slot is held by an orphaned VM" {
		t.Errorf("the warning is %q", got)
	}
	n.Slots.Capacity, n.State = 1000, string(farm.NodeOffline)
	lines, more = slotLines(&n, nil)
	if len(lines) != maxSlotLines || more != 900 || lines[99].State != "Unavailable" {
		t.Errorf("%d rows and %d more, the last %+v", len(lines), more, lines[len(lines)-1])
	}
}

// TestHiddenHolders: holders that the visitor may not see have words instead of names, and no links.
func TestHiddenHolders(t *testing.T) {
	n := nodeView{nodeRow: nodeRow{Node: api.Node{State: string(farm.NodeActive), Slots: &api.Slots{
		Capacity: 3, Running: 1, Failed: 1, Orphaned: 1, Holders: []api.SlotHolder{
			{Use: api.SlotRunning, State: "Started"}, {Use: api.SlotFailed, State: "Error"}, {Use: api.SlotOrphaned},
		},
	}}}}
	n.addSlotLines(map[string]instanceRow{})
	const hidden = "an instance that you may not see"
	for i, name := range []string{hidden, hidden, "a VM that you may not see"} {
		if got := n.SlotLines[i].Instance; got.Name != name || got.ID != "" {
			t.Errorf("row %d: %+v", i, got)
		}
	}
	if n.FailedHolder != "" {
		t.Errorf("the failed holder is at %q", n.FailedHolder)
	}
}

// TestHoldsSlot: a failed instance holds a slot as long as its VM exists.
func TestHoldsSlot(t *testing.T) {
	for status, want := range map[string]bool{"running": true, "stopped": true, "deleted": false} {
		p := instanceView{Failure: &api.InstanceFailure{}, VM: api.Instance{VMInfo: &api.VMInfo{Status: status}}}
		if p.HoldsSlot() != want {
			t.Errorf("with a VM that is %s: %t", status, !want)
		}
	}
	if (instanceView{Failure: &api.InstanceFailure{}}).HoldsSlot() {
		t.Error("without a VM")
	}
}
