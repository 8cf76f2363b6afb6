package sched

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/farm"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// machine is an amd64 node in number mode.
func machine(id string, capacity int, edit ...func(*Node)) Node {
	n := Node{ID: id, Name: "name-" + id, Arch: "amd64", CapacityMode: farm.CapacityByVMs, Capacity: capacity}
	for _, e := range edit {
		e(&n)
	}
	return n
}

// ask is a request of default priority, created a number of seconds after noon.
func ask(id string, second int, edit ...func(*Request)) Request {
	r := Request{
		ID: id, Created: noon.Add(time.Duration(second) * time.Second), Priority: 1000,
		Arch: "amd64", VCPU: 2, MemoryMB: 4096, TemplateID: "t", ContentID: "t1",
	}
	for _, e := range edit {
		e(&r)
	}
	return r
}

func inGroup(ids ...string) func(*Node) { return func(n *Node) { n.Groups = ids } }

func held(by string) func(*Node) { return func(n *Node) { n.Unschedulable = by } }

func caching(template, content string) func(*Node) {
	return func(n *Node) {
		n.CachedVersions = append(n.CachedVersions, farm.NodeTemplate{ID: template, ContentID: content})
	}
}

// vms is what a number of VMs takes.
func vms(n int) Load { return Load{VMs: n, VCPU: 2 * n, MemoryMB: 4096 * n} }

// waiting is a pending instance, and on is one that uses capacity of a node.
func waiting(r Request) Instance { return Instance{Request: r} }

func on(node string, r Request) Instance {
	return Instance{Request: r, NodeID: node, UsesCapacity: true}
}

func indexOf(nodes []Node, requests []Request, groups ...farm.Group) *Index {
	x := New(Options{})
	for _, g := range groups {
		x.SetGroup(g)
	}
	for _, n := range nodes {
		x.SetNode(n)
	}
	for _, r := range requests {
		x.SetInstance(Instance{Request: r})
	}
	return x
}

// pairs runs Place and returns "request>node" per assignment, in order.
func pairs(x *Index, limit int) []string {
	out := []string{}
	for _, a := range x.Place(noon.Add(time.Minute), limit) {
		out = append(out, a.RequestID+">"+a.NodeID)
	}
	return out
}

func wantPairs(t *testing.T, x *Index, want ...string) {
	t.Helper()
	if want == nil {
		want = []string{}
	}
	if d := cmp.Diff(want, pairs(x, 100)); d != "" {
		t.Errorf("assignments (-want +got):\n%s", d)
	}
}

func bridged(vlans ...int) func(*Node) {
	return func(n *Node) { n.Bridge, n.VLANs = true, vlans }
}

func TestPlaceChoosesTheNode(t *testing.T) {
	usb := func(busy bool) func(*Node) {
		return func(n *Node) {
			n.USBDevices = append(n.USBDevices, farm.USBDevice{Name: "phone", Location: "1-2", Busy: busy})
		}
	}
	byResource := func(vcpu, mb int) func(*Node) {
		return func(n *Node) { n.CapacityMode, n.VCPULimit, n.MemoryLimitMB = farm.CapacityByResources, vcpu, mb }
	}
	groups := []farm.Group{{ID: "g", Name: "gold", Fallback: "f"}, {ID: "f", Name: "iron", Fallback: "g"}}
	for _, c := range []struct {
		name  string
		nodes []Node
		edit  func(*Request)
		want  string // "" is nowhere
	}{
		{"the emptiest", []Node{machine("a", 4, func(n *Node) { n.OrphanedLoad = vms(1) }), machine("b", 2)}, nil, "b"},
		{"emptiest by share, not by number", []Node{machine("a", 2,
			func(n *Node) { n.OrphanedLoad = vms(1) }), machine("b",
			9, func(n *Node) { n.OrphanedLoad = vms(2) })}, nil, "b"},
		{"always the same one of equals", []Node{machine("b", 2), machine("a", 2)}, nil, "a"},
		{"the version beats an empty node", []Node{machine("a", 2), machine("b", 2, caching("t", "t1"),
			func(n *Node) { n.OrphanedLoad = vms(1) })}, nil, "b"},
		{"the version beats an older one", []Node{machine("a", 2, caching("t", "t0")), machine("b",
			2, caching("t", "t1"))}, nil, "b"},
		{"an older version beats none", []Node{machine("a", 2), machine("b", 2, caching("t", "t0"))}, nil, "b"},
		{"another template is none", []Node{machine("a", 2), machine("b", 2, caching("u", "u1"))}, nil, "a"},
		{"the own group beats the version", []Node{machine("a", 2, inGroup("f"), caching("t", "t1")), machine("b", 2,
			inGroup("g"))}, func(r *Request) { r.GroupID = "g" }, "b"},
		{
			"a full group falls back",
			[]Node{machine("a", 2, inGroup("f")), machine("b", 0, inGroup("g"))},
			func(r *Request) { r.GroupID = "g" }, "a",
		},
		{"a loop of fallbacks ends", []Node{machine("a", 2, inGroup("x"))}, func(r *Request) { r.GroupID = "g" }, ""},
		{"no group is any node", []Node{machine("a", 2, inGroup("f"))}, nil, "a"},
		{"another group is none", []Node{machine("a", 2, inGroup("x"))}, func(r *Request) { r.GroupID = "y" }, ""},
		{"the pinned node", []Node{machine("a", 2), machine("b", 2)}, func(r *Request) { r.PinnedNodeID = "b" }, "b"},
		{"a pinned node outside the group", []Node{machine("a", 2)}, func(r *Request) {
			r.PinnedNodeID, r.GroupID = "a",
				"g"
		}, ""},
		{"another architecture", []Node{machine("a", 2)}, func(r *Request) { r.Arch = "arm64" }, ""},
		{"any architecture", []Node{machine("a", 2)}, func(r *Request) { r.Arch = "" }, "a"},
		{"a held node", []Node{machine("a", 2, held("offline"))}, nil, ""},
		{"foreign VMs take room", []Node{machine("a", 2, func(n *Node) { n.OrphanedLoad.VMs = 2 })}, nil, ""},
		{"resources that fit exactly", []Node{machine("a", 0, byResource(2, 4096))}, nil, "a"},
		{"too few virtual CPUs", []Node{machine("a", 9, byResource(1, 4096))}, nil, ""},
		{"too little memory", []Node{machine("a", 9, byResource(2, 4095))}, nil, ""},
		{
			"resources already taken",
			[]Node{machine("a", 9, byResource(3, 9000), func(n *Node) { n.OrphanedLoad = vms(1) })},
			nil, "",
		},
		{"the emptiest by processors", []Node{machine("a", 0, byResource(8, 1<<20), func(n *Node) {
			n.OrphanedLoad = Load{VCPU: 3}
		}), machine("b", 0, byResource(8, 1<<20), func(n *Node) { n.OrphanedLoad = Load{VCPU: 2} })}, nil, "b"},
		{"the emptiest by memory", []Node{machine("a", 0, byResource(80, 1<<16), func(n *Node) {
			n.OrphanedLoad = Load{MemoryMB: 2 << 12}
		}), machine("b", 0, byResource(80, 1<<16),
			func(n *Node) { n.OrphanedLoad = Load{MemoryMB: 1 << 12} })}, nil, "b"},
		{"a free USB device", []Node{machine("a", 2), machine("b", 2, usb(true), usb(false))}, func(r *Request) {
			r.USB = "phone"
		}, "b"},
		{"a USB device by its location", []Node{machine("a", 2, usb(false))}, func(r *Request) { r.USB = "1-2" }, "a"},
		{"a taken USB device", []Node{machine("a", 2, usb(true))}, func(r *Request) { r.USB = "phone" }, ""},
		{"a bridge", []Node{machine("a", 2), machine("b", 2, bridged())}, func(r *Request) { r.Bridge = true }, "b"},
		{
			"a VLAN of a bridge is no bridge",
			[]Node{machine("a", 2, func(n *Node) { n.VLANs = []int{10} })},
			func(r *Request) { r.Bridge = true }, "",
		},
		{
			"a VLAN",
			[]Node{machine("a", 2, bridged(20)), machine("b", 2, func(n *Node) { n.VLANs = []int{10, 20} })},
			func(r *Request) { r.Bridge, r.VLAN = true, 10 }, "b",
		},
		{"a bridge is no VLAN", []Node{machine("a", 2, bridged(20))}, func(r *Request) {
			r.Bridge, r.VLAN = true,
				10
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := ask("r", 0)
			if c.edit != nil {
				c.edit(&r)
			}
			x := indexOf(c.nodes, []Request{r}, groups...)
			if c.want == "" {
				wantPairs(t, x)
				return
			}
			wantPairs(t, x, "r>"+c.want)
		})
	}
}

func TestPlaceOrder(t *testing.T) {
	urgent := func(p int) func(*Request) { return func(r *Request) { r.Priority = p } }
	x := indexOf([]Node{machine("a", 10)}, []Request{
		ask("later", 5), ask("b-first", 0), ask("a-first", 0),
		ask("urgent", 60, urgent(1)),
		ask("old", -1900, urgent(2000)),  // 1000 points less urgent, a little more than 30 minutes older
		ask("aged", -1700, urgent(2000)), // a little less than that
		ask("beyond", 0, urgent(1<<40)), ask("below", 61, urgent(-7)),
	})
	wantPairs(t, x, "urgent>a", "below>a", "old>a", "a-first>a", "b-first>a", "later>a", "aged>a", "beyond>a")
}

func TestReservationBecomesTheHolding(t *testing.T) {
	r1, r2, r3 := ask("r1", 1), ask("r2", 2), ask("r3", 3)
	x := indexOf([]Node{machine("a", 2)}, []Request{r1, r2, r3})
	wantPairs(t, x, "r1>a", "r2>a")

	x.SetNode(machine("a", 2)) // a newer description
	x.SetInstance(waiting(r1)) // a record from before the placement
	wantPairs(t, x)

	x.SetInstance(on("a", r1)) // the first is stored, the second still in progress
	wantPairs(t, x)
	x.UndoPlacement("r1") // it is stored: there is nothing to undo
	wantPairs(t, x)

	x.UndoPlacement("r2") // it was not stored: its capacity is free and it is pending again
	wantPairs(t, x, "r2>a")

	x.SetInstance(on("a", r2))
	if used := x.NodeUsage("a"); used != vms(2) {
		t.Errorf("%+v is used, want two VMs", used)
	}
	x.SetNode(machine("a", 3))
	wantPairs(t, x, "r3>a")
	if n := x.PendingCount(); n != 0 {
		t.Errorf("%d requests wait, want none", n)
	}
}

func TestHoldings(t *testing.T) {
	r := ask("r", 1)
	old := func(i int) Instance { return on("a", ask(fmt.Sprint("old", i), 0)) }
	for _, c := range []struct {
		name string
		do   func(*Index)
		want []string
	}{
		{"known before the node", func(x *Index) {
			x.SetInstance(old(1))
			x.SetInstance(old(2))
			x.SetNode(machine("a", 2))
		}, nil},
		{"known after the node", func(x *Index) {
			x.SetNode(machine("a", 2))
			x.SetInstance(old(1))
			x.SetInstance(old(2))
		}, nil},
		{"told twice", func(x *Index) {
			x.SetNode(machine("a", 2))
			x.SetInstance(old(1))
			x.SetInstance(old(1))
		}, []string{"r>a"}},
		{"with foreign VMs", func(x *Index) {
			x.SetInstance(old(1))
			x.SetNode(machine("a", 2, func(n *Node) { n.OrphanedLoad = vms(1) }))
		}, nil},
		{"outlive a node", func(x *Index) {
			x.SetNode(machine("a", 1))
			x.SetInstance(old(1))
			x.RemoveNode("a")
			x.SetNode(machine("a", 1))
		}, nil},
		{"end with the instance", func(x *Index) {
			x.SetNode(machine("a", 1))
			x.SetInstance(old(1))
			x.RemoveInstance("old1")
		}, []string{"r>a"}},
		{"end with the slot", func(x *Index) {
			x.SetNode(machine("a", 1))
			x.SetInstance(old(1))
			done := old(1)
			done.UsesCapacity = false
			x.SetInstance(done)
		}, []string{"r>a"}},
		{"end before the node comes", func(x *Index) {
			x.SetInstance(old(1))
			x.RemoveInstance("old1")
			x.SetNode(machine("a", 1))
		}, []string{"r>a"}},
		{"move", func(x *Index) {
			x.SetNode(machine("a", 1))
			x.SetInstance(old(1))
			x.SetInstance(on("b", ask("old1", 0)))
		}, []string{"r>a"}},
		{"change their size", func(x *Index) {
			x.SetNode(machine("a", 0, func(n *Node) {
				n.CapacityMode, n.VCPULimit, n.MemoryLimitMB = farm.CapacityByResources,
					4, 8192
			}))
			x.SetInstance(on("a", ask("old1", 0, func(r *Request) { r.VCPU = 4 })))
			x.SetInstance(on("a", ask("old1", 0)))
		}, []string{"r>a"}},
		{"were waiting a moment ago", func(x *Index) {
			x.SetNode(machine("a", 1))
			x.SetInstance(waiting(ask("old1", 0)))
			x.SetInstance(old(1))
		}, nil},
		{"of an ended one", func(x *Index) {
			x.SetNode(machine("a", 1))
			x.SetInstance(Instance{Request: ask("old1", 0), Ended: true})
		}, []string{"r>a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := indexOf(nil, []Request{r})
			c.do(x)
			wantPairs(t, x, c.want...)
		})
	}
}

func TestTerminatedWhilePlaced(t *testing.T) {
	x := indexOf([]Node{machine("a", 1)}, []Request{ask("r1", 1), ask("r2", 2)})
	wantPairs(t, x, "r1>a")
	x.RemoveInstance("r1")
	x.UndoPlacement("r1") // the failed commit is reported after the request ended: nothing returns
	wantPairs(t, x, "r2>a")
}

func TestReservedUSBDeviceIsTaken(t *testing.T) {
	usb := func(r *Request) { r.USB = "phone" }
	both := machine("a", 5, func(n *Node) {
		n.USBDevices = []farm.USBDevice{{Name: "phone", Location: "1"}, {Name: "phone", Location: "2"}}
	})
	x := indexOf([]Node{both}, []Request{ask("r1", 1, usb), ask("r2", 2, usb), ask("r3", 3, usb)})
	wantPairs(t, x, "r1>a", "r2>a")
	x.SetNode(both) // the reservations outlive an older description
	wantPairs(t, x)
	x.UndoPlacement("r1")
	wantPairs(t, x, "r1>a")
	x.SetInstance(on("a", ask("r1", 1, usb)))
	x.SetInstance(on("a", ask("r2", 2, usb)))
	wantPairs(t, x)
	x.RemoveInstance("r2")
	if got := x.NodeDevices("a"); !got[0].Busy || got[1].Busy {
		t.Errorf("devices %+v", got)
	}
	wantPairs(t, x, "r3>a")
	for _, d := range both.USBDevices {
		if d.Busy {
			t.Error("the caller's devices were changed")
		}
	}
}

func TestParkedPoolWakes(t *testing.T) {
	groups := []farm.Group{{ID: "g", Name: "gold"}, {ID: "f", Name: "iron"}}
	r := ask("r", 0, func(r *Request) { r.GroupID = "g" })
	full := machine("a", 1, inGroup("g"), func(n *Node) { n.OrphanedLoad = vms(1) })
	for _, c := range []struct {
		name string
		cure func(*Index)
		node string
	}{
		{"a slot becomes free", func(x *Index) { x.SetNode(machine("a", 1, inGroup("g"))) }, "a"},
		{"capacity grows", func(x *Index) { full := full; full.Capacity = 2; x.SetNode(full) }, "a"},
		{"a node comes", func(x *Index) { x.SetNode(machine("b", 1, inGroup("g"))) }, "b"},
		{"a node joins the group", func(x *Index) { x.SetNode(machine("c", 1, inGroup("f", "g"))) }, "c"},
		{"a node returns", func(x *Index) { x.SetNode(machine("d", 1, inGroup("g"))) }, "d"},
		{"the group gets a fallback", func(x *Index) { x.SetGroup(farm.Group{ID: "g", Fallback: "f"}) }, "c"},
		{"the request changes", func(x *Index) { r := r; r.GroupID = ""; x.SetInstance(Instance{Request: r}) }, "c"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := indexOf([]Node{full, machine("c", 1, inGroup("f")), machine("d", 1, inGroup("g"), held("offline"))},
				[]Request{r}, groups...)
			wantPairs(t, x)
			c.cure(x)
			wantPairs(t, x, "r>"+c.node)
		})
	}
}

func TestRemovedThingsAreRemoved(t *testing.T) {
	x := indexOf([]Node{machine("a", 2), machine("b", 2)}, []Request{ask("r1", 1), ask("r2", 2), ask("r3", 3)})
	if d := cmp.Diff([]string{"r1>a"}, pairs(x, 1)); d != "" {
		t.Fatal(d)
	}
	x.RemoveNode("b")
	x.RemoveNode("b")
	x.RemoveInstance("r2")
	x.RemoveInstance("r2")
	x.RemoveGroup("none")
	wantPairs(t, x, "r3>a")
	x.RemoveNode("a")
	x.UndoPlacement("r3")
	wantPairs(t, x)
	x.SetNode(machine("a", 2)) // r1 is still being stored there
	wantPairs(t, x, "r3>a")
}

// TestMostVMs: a host may take no more VMs than it is allowed to, however they are counted.
func TestMostVMs(t *testing.T) {
	record := &farm.Node{ID: "mac", State: farm.NodeActive, Capacity: 9, VCPUOverride: 64, RAMOverride: 64 << 10}
	info := &farm.NodeInfo{OS: "darwin", Arch: "amd64", CPUs: 8, MemoryMB: 64 << 10}
	for arch, want := range map[string]int{"arm64": 2, "amd64": 5} {
		for _, mode := range []farm.CapacityMode{farm.CapacityByVMs, farm.CapacityByResources} {
			record.CapacityMode, info.Arch = mode, arch
			x := New(Options{})
			x.SetNode(NewNode(record, info, Load{}))
			for i := range 5 {
				x.SetInstance(waiting(ask(fmt.Sprint("r", i), 0, func(r *Request) { r.Arch = arch })))
			}
			if got := len(x.Place(noon, 10)); got != want {
				t.Errorf("%s in mode %s takes %d VMs, want %d", arch, mode, got, want)
			}
			one := &farm.Instance{Template: farm.TemplateRef{CPUs: 1, MemoryMB: 1024}}
			if IsFull(record, info, one) || IsFull(record, info, one, one) != (want == 2) {
				t.Errorf("%s in mode %s: full with two is %v", arch, mode, IsFull(record, info, one, one))
			}
		}
	}
}

// TestMostMacOSVMs: a Mac that runs other guests as well has at most two macOS guests among them.
func TestMostMacOSVMs(t *testing.T) {
	record := &farm.Node{ID: "mac", Name: "mini", State: farm.NodeActive, Capacity: 9}
	record.CapacityMode = farm.CapacityByVMs
	info := &farm.NodeInfo{OS: "darwin", Arch: "arm64", Abilities: []string{"macos", "pc"}}
	x := New(Options{})
	x.SetNode(NewNode(record, info, Load{}))
	for i := range 3 {
		x.SetInstance(waiting(ask(fmt.Sprint("m", i), 0, func(r *Request) { r.Arch, r.MacOS = "arm64", true })))
		x.SetInstance(waiting(ask(fmt.Sprint("l", i), 0, func(r *Request) { r.Arch = "arm64" })))
	}
	placed := map[string]bool{}
	for _, p := range x.Place(noon, 10) {
		placed[p.RequestID] = true
	}
	if len(placed) != 5 || !placed["l0"] || !placed["l1"] || !placed["l2"] {
		t.Errorf("placed %v, want two macOS guests and three others", placed)
	}
	for i := range 3 {
		id := fmt.Sprint("m", i)
		if placed[id] {
			continue
		}
		const want = "is full: it has 2 macOS guests, the most on a Mac"
		if got := x.Explain(id, noon); len(got) != 1 || got[0].Text != want {
			t.Errorf("%+v, want %q", got, want)
		}
	}
}

// TestMacOSGuestsWithoutInstance: those that run for other programs, or are orphaned, count toward the two of a Mac.
func TestMacOSGuestsWithoutInstance(t *testing.T) {
	for others, want := range map[int]int{0: 2, 1: 1, 2: 0, 3: 0} {
		record := &farm.Node{ID: "mac", Name: "mini", State: farm.NodeActive, Capacity: 9}
		record.CapacityMode = farm.CapacityByVMs
		info := &farm.NodeInfo{Arch: "arm64", Abilities: []string{"macos"}, OtherMacOS: others}
		x := New(Options{})
		x.SetNode(NewNode(record, info, Load{}))
		for i := range 3 {
			x.SetInstance(waiting(ask(fmt.Sprint("m", i), 0, func(r *Request) { r.Arch, r.MacOS = "arm64", true })))
		}
		if got := len(x.Place(noon, 10)); got != want {
			t.Errorf("next to %d guests %d are placed, want %d", others, got, want)
		}
	}
}

// TestMachineBoundsEveryVM: a VM that needs more CPUs or memory than the whole machine has is
// never placed there, whatever the capacity mode, and the reason names what the machine has.
func TestMachineBoundsEveryVM(t *testing.T) {
	whole := func(cpus, mb int) func(*Node) { return func(n *Node) { n.CPUs, n.MemoryMB = cpus, mb } }
	resources := func(n *Node) { n.CapacityMode, n.VCPULimit, n.MemoryLimitMB = farm.CapacityByResources, 100, 1<<20 }
	size := func(vcpu, mb int) func(*Request) { return func(r *Request) { r.VCPU, r.MemoryMB = vcpu, mb } }
	pinnedTo := func(node string) func(*Request) { return func(r *Request) { r.PinnedNodeID = node } }
	for name, tt := range map[string]struct {
		node   []func(*Node)
		size   func(*Request)
		reason string // "": it is placed
	}{
		"as large as the machine": {[]func(*Node){whole(4, 8192)}, size(4, 8192), ""},
		"unknown machine":         {nil, size(400, 8192), ""},
		"more CPUs": {
			[]func(*Node){whole(4, 8192)},
			size(5, 1024),
			"node name-a is too small for 5 vCPU and 1024 MiB: the machine has 4 CPUs",
		},
		"more memory": {
			[]func(*Node){whole(4, 8192)},
			size(1, 8193),
			"node name-a is too small for 1 vCPU and 8193 MiB: the machine has 8192 MiB of memory",
		},
		"by resources, within the machine": {[]func(*Node){resources, whole(4, 8192)}, size(4, 8192), ""},
		"by resources, more CPUs": {
			[]func(*Node){resources, whole(4, 8192)},
			size(5, 1024),
			"node name-a is too small for 5 vCPU and 1024 MiB: the machine has 4 CPUs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := indexOf([]Node{machine("a", 3, tt.node...)}, []Request{ask("r", 0, tt.size, pinnedTo("a"))})
			if tt.reason == "" {
				wantPairs(t, x, "r>a")
				return
			}
			wantPairs(t, x)
			if why := x.PendingReason("r", noon); why.Name != FilterSize || why.Text != tt.reason {
				t.Errorf("%s: %q, want %q", why.Name, why.Text, tt.reason)
			}
		})
	}
}
