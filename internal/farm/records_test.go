package farm_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

func TestUsesCapacity(t *testing.T) {
	running, deleted := &farm.VMInfo{Status: farm.VMRunning}, &farm.VMInfo{Status: farm.VMDeleted}
	stopped := &farm.VMInfo{Status: farm.VMStopped}
	for _, s := range farm.InstanceStates {
		for _, vm := range []*farm.VMInfo{nil, running, stopped, deleted} {
			for _, node := range []string{"", "n1"} {
				i := farm.Instance{State: s, NodeID: node, VM: vm}
				live := node != "" && s != farm.Terminated
				if i.OnNode() != live {
					t.Errorf("%s on %q is live: %v", s, node, i.OnNode())
				}
				want := live
				if s == farm.Errored && (vm == nil || vm == deleted) {
					want = false
				}
				if i.StartAborted = true; i.UsesCapacity() != live {
					t.Errorf("%s on %q with %+v that is recalled holds a slot: %v", s, node, vm, i.UsesCapacity())
				}
				if i.StartAborted = false; i.UsesCapacity() != want {
					t.Errorf("%s on %q with %+v holds a slot: %v", s, node, vm, i.UsesCapacity())
				}
			}
		}
	}
}

// TestTaskGoesWithItsState holds every state against every kind of task.
func TestTaskGoesWithItsState(t *testing.T) {
	for _, s := range farm.InstanceStates {
		for kind, home := range map[farm.NodeTaskKind]farm.InstanceState{
			farm.TaskSave: farm.Pushing, farm.TaskRestart: farm.Started,
		} {
			i := farm.Instance{State: s, Task: &farm.NodeTask{ID: "t", Kind: kind}}
			i.FinishTask()
			if (i.Task != nil) != (s == home) {
				t.Errorf("%s keeps a %s: %v", s, kind, i.Task != nil)
			}
		}
	}
}

func TestOptionsOverrideTheTemplate(t *testing.T) {
	i := farm.Instance{Template: farm.TemplateRef{CPUs: 4, MemoryMB: 2048}}
	if i.GuestCPUs() != 4 || i.GuestMemoryMB() != 2048 {
		t.Errorf("takes %d CPUs and %d MB of its template", i.GuestCPUs(), i.GuestMemoryMB())
	}
	i.Options.CPUs, i.Options.MemoryMB = 2, 512
	if i.GuestCPUs() != 2 || i.GuestMemoryMB() != 512 {
		t.Errorf("takes %d CPUs and %d MB with overrides", i.GuestCPUs(), i.GuestMemoryMB())
	}
}

// TestNetworkOfAnInstance: the requested network wins over the template's, and the default is
// shared.
func TestNetworkOfAnInstance(t *testing.T) {
	var i farm.Instance
	for _, step := range []struct {
		set        func()
		mode, vlan string
	}{
		{func() {}, "shared", ""},
		{func() { i.Template.Network, i.Template.VLAN = "bridge", "5" }, "bridge", "5"},
		{func() { i.Options.NetworkMode, i.Options.VLAN = "host", "7" }, "host", "7"},
	} {
		if step.set(); i.NetworkMode() != step.mode || i.VLAN() != step.vlan {
			t.Errorf("network %s and VLAN %q, want %s and %q", i.NetworkMode(), i.VLAN(), step.mode, step.vlan)
		}
	}
}

func TestWaiting(t *testing.T) {
	for _, s := range farm.InstanceStates {
		for _, node := range []string{"", "n1"} {
			i := farm.Instance{State: s, NodeID: node}
			if i.AwaitsPlacement() != (s == farm.Scheduling && node == "") {
				t.Errorf("%s on %q waits: %t", s, node, i.AwaitsPlacement())
			}
		}
	}
}

func TestKeyExpires(t *testing.T) {
	k := farm.APIKey{Expires: time.Unix(100, 0)}
	if k.Expired(time.Unix(99, 0)) || !k.Expired(k.Expires) || !k.Expired(time.Unix(101, 0)) {
		t.Error("a key is over from the moment on that it names")
	}
}

func TestCloneOfAnInstanceIsItsOwn(t *testing.T) {
	a := &farm.Instance{ID: "a", State: farm.Started}
	b := a.Clone()
	b.State, b.Message = farm.Errored, "changed"
	if a.State != farm.Started || a.Message != "" || b.ID != "a" {
		t.Errorf("the original is %+v", a)
	}
}

// A record of an older program still loads: its allocations are ignored.
func TestNodeWithAllocations(t *testing.T) {
	var n farm.Node
	err := json.Unmarshal([]byte(`{"id":"n","capacity":2,"allocs":{"i":{"vcpu":2,"memory_mb":512}}}`), &n)
	if err != nil || n.ID != "n" || n.Capacity != 2 {
		t.Errorf("got %+v, %v", n, err)
	}
	data, err := json.Marshal(n)
	if err != nil || strings.Contains(string(data), "allocs") {
		t.Errorf("written as %s, %v", data, err)
	}
}

func TestScriptResultOK(t *testing.T) {
	for _, c := range []struct {
		result farm.ScriptResult
		want   bool
	}{
		{farm.ScriptResult{}, true},
		{farm.ScriptResult{Stderr: []byte("noise")}, true},
		{farm.ScriptResult{ExitCode: 1}, false},
		{farm.ScriptResult{ExitCode: -1}, false},
		{farm.ScriptResult{TimedOut: true}, false},
		{farm.ScriptResult{Errors: []string{"no shell"}}, false},
	} {
		if c.result.OK() != c.want {
			t.Errorf("%+v is OK: %v", c.result, c.result.OK())
		}
	}
}

// TestEventKindsAreComplete: an event without a kind would be logged without its type.
func TestEventKindsAreComplete(t *testing.T) {
	if len(farm.EventKinds) != 12 { // those of the specification, and Audit
		t.Errorf("%d events have a kind, want 12", len(farm.EventKinds))
	}
	for name, kind := range farm.EventKinds {
		if kind != farm.APIAction && kind != farm.SystemAction {
			t.Errorf("%s is a %q", name, kind)
		}
	}
}
