package sched

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/farm"
)

func TestWhy(t *testing.T) {
	saved := farm.StateRequirements{
		Driver: "qemu", Version: "7.2.22", Machine: "pc-q35-7.2", Accelerator: "tcg", CPU: "max", HostCPU: "Zeta",
	}
	full := func(n *Node) { n.OrphanedLoad = vms(n.Capacity) }
	gold := farm.Group{ID: "g", Name: "gold"}
	small := machine("a", 0, func(n *Node) {
		n.CapacityMode, n.VCPULimit, n.MemoryLimitMB = farm.CapacityByResources,
			1, 100
	})
	var fleet []Node
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		fleet = append(fleet, machine(id, 1, full))
	}
	for _, id := range []string{"i", "j", "k"} {
		fleet = append(fleet, machine(id, 1, full, held("offline")))
	}
	fleet = append(fleet, machine("l", 1, held("in drain mode")))

	for _, c := range []struct {
		name  string
		nodes []Node
		edit  func(*Request)
		want  Filter
		text  string
	}{
		{"an empty cloud", nil, nil, ReasonNoNodes, "there are no nodes"},
		{
			"a full cloud", fleet, nil, FilterFull,
			"no node has a free slot (12 nodes: 8 full, 3 offline, 1 in drain mode)",
		},
		{"one full node", []Node{machine("a", 1, full)}, nil, FilterFull, "no node has a free slot (1 node: 1 full)"},
		{
			"only the nodes in question are counted",
			append(fleet, machine("z", 9, func(n *Node) { n.Arch = "arm64" })),
			nil, FilterFull, "no node has a free slot (12 nodes: 8 full, 3 offline, 1 in drain mode)",
		},
		{
			"nothing but held nodes",
			[]Node{machine("a", 1, held("offline"))},
			nil, FilterState,
			"no node is schedulable (1 node: 1 offline)",
		},
		{"no architecture", fleet, func(r *Request) { r.Arch = "arm64" }, FilterArch, "no node has architecture arm64"},
		{"no architecture in the group", []Node{machine("a", 1, inGroup("g"))}, func(r *Request) {
			r.Arch, r.GroupID = "arm64", "g"
		}, FilterArch, "no node of group gold has architecture arm64"},
		{"an empty group", fleet, func(r *Request) { r.GroupID = "g" }, FilterGroup, "group gold has no nodes"},
		{"an unknown group", fleet, func(r *Request) { r.GroupID = "x" }, FilterGroup, "group x has no nodes"},
		{
			"no place for a saved state", fleet, needing(saved), FilterSavedState,
			"no node can load the saved state of this version: it needs qemu 7.2.22 with tcg, CPU max, machine " +
				"pc-q35-7.2, on a host with Zeta",
		},
		{
			"no place for a saved state in the group",
			[]Node{machine("a", 1, inGroup("g"))},
			func(r *Request) {
				r.StateNeeds, r.GroupID = farm.StateRequirements{
					Driver: "sim", Version: "1", Accelerator: "sim", CPU: "sim",
				},
					"g"
			}, FilterSavedState,
			"no node of group gold can load the saved state of this version: it needs sim 1 with sim, CPU sim",
		},
		{
			"a pinned node for a saved state",
			[]Node{
				machine("a", 1, loading(saved, func(n *farm.StateRequirements) { n.Accelerator = "kvm" })),
			},
			needing(saved, func(r *Request) { r.PinnedNodeID = "a" }), FilterSavedState,
			"node name-a cannot load the saved state of this version: it needs accelerator tcg, the node has kvm",
		},
		{
			"another host CPU",
			[]Node{
				machine("a", 1, loading(saved, func(n *farm.StateRequirements) { n.HostCPU = "" })),
			},
			needing(saved, func(r *Request) { r.PinnedNodeID = "a" }), FilterSavedState,
			"node name-a cannot load the saved state of this version: it needs host CPU Zeta, the node has unknown",
		},
		{
			"a saved state and no room",
			[]Node{machine("a", 1, full, loading(saved)), machine("b", 1)},
			needing(saved),
			FilterFull, "no node has a free slot (1 node: 1 full)",
		},
		{"a place for a saved state", []Node{machine("a", 1, loading(saved))}, needing(saved), ReasonTurn, "queued"},
		{"no Mac", fleet, func(r *Request) { r.MacOS = true }, FilterGuestOS, "no node runs macOS guests"},
		{
			"Macs only",
			[]Node{machine("a", 1, mac), machine("b", 1, mac)},
			nil, FilterGuestOS,
			"no node runs guests other than macOS",
		},
		{
			"a pinned Mac",
			[]Node{machine("a", 1, mac)},
			func(r *Request) { r.PinnedNodeID = "a" }, FilterGuestOS,
			"node name-a runs macOS guests only",
		},
		{
			"a pinned node that is no Mac",
			[]Node{machine("a", 1)},
			func(r *Request) { r.MacOS, r.PinnedNodeID = true, "a" }, FilterGuestOS,
			"node name-a does not run macOS guests",
		},
		{
			"no video controller",
			[]Node{machine("a", 1, lacking(farm.HasVGA))},
			func(r *Request) { r.Abilities = farm.HasVGA }, FilterAbility,
			`no node can offer the video controller "fbuf"`,
		},
		{
			"an archive of anka for tart",
			[]Node{machine("a", 1, mac, lacking(farm.RunsAnkaImages))},
			func(r *Request) { r.MacOS, r.Abilities, r.PinnedNodeID = true, farm.RunsAnkaImages, "a" }, FilterAbility,
			"node name-a cannot start macOS guests from archives of anka",
		},
		{
			"raw disks for anka",
			[]Node{machine("a", 1, mac, lacking(farm.RunsMacDisks))},
			func(r *Request) { r.MacOS, r.Abilities = true, farm.RunsMacDisks }, FilterAbility,
			"no node can start macOS guests from raw disks",
		},
		{
			"two abilities",
			[]Node{machine("a", 1, lacking(farm.CanSetMAC|farm.HasNetworkHost|farm.HasVGA))},
			func(r *Request) { r.Abilities, r.PinnedNodeID = farm.CanSetMAC|farm.HasNetworkHost, "a" }, FilterAbility,
			`node name-a cannot set the MAC address of a guest or offer the network mode "host"`,
		},
		{
			"a Mac with an unrequested lack",
			[]Node{machine("a", 1, lacking(farm.HasVGA))},
			func(r *Request) { r.Abilities = farm.CanSetMAC }, ReasonTurn, "queued",
		},
		{"no USB device", fleet, func(r *Request) { r.USB = "phone" }, FilterUSB, "no node has a USB device phone"},
		{"no bridge", fleet, func(r *Request) { r.Bridge = true }, FilterNetwork, "no node has a bridge for guests"},
		{"no VLAN", fleet, func(r *Request) { r.Bridge, r.VLAN = true, 10 }, FilterVLAN, "no node offers VLAN 10"},
		{
			"a taken USB device",
			[]Node{
				machine("a", 1, func(n *Node) { n.USBDevices = []farm.USBDevice{{Name: "phone", Busy: true}} }),
			},
			func(r *Request) { r.USB = "phone" }, FilterUSBBusy,
			"no node has a free USB device phone (1 node: 1 with the USB device taken)",
		},
		{
			"a node of no capacity",
			[]Node{machine("a", 0)},
			nil, FilterSize,
			"no node is large enough for 2 vCPU and 4096 MiB",
		},
		{"the full ones first", []Node{machine("a", 1, full), machine("b", 1, held("offline")), machine("c", 1,
			held("offline"))}, nil, FilterFull, "no node has a free slot (3 nodes: 1 full, 2 offline)"},
		{
			"nothing saved, on a node where much loads",
			[]Node{machine("a", 1, loading(saved))},
			nil, ReasonTurn,
			"queued",
		},
		{"too large", []Node{small}, nil, FilterSize, "no node is large enough for 2 vCPU and 4096 MiB"},
		{"an unknown pinned node", fleet, func(r *Request) {
			r.PinnedNodeID = "x"
		}, FilterPinned, "node x is not known"},
		{"an offline pinned node", fleet, func(r *Request) {
			r.PinnedNodeID = "i"
		}, FilterState, "node name-i is offline"},
		{
			"a full pinned node", fleet, func(r *Request) { r.PinnedNodeID = "a" }, FilterFull,
			"node name-a is full: 1 orphaned of 1",
		},
		{
			"a pinned node of another architecture",
			[]Node{machine("a", 1, func(n *Node) { n.Arch = "" })},
			func(r *Request) { r.PinnedNodeID = "a" }, FilterArch, "node name-a has architecture unknown, not amd64",
		},
		{"a pinned node outside the group", fleet, func(r *Request) {
			r.PinnedNodeID, r.GroupID = "a",
				"g"
		}, FilterGroup, "node name-a is not in group gold"},
		{"no permission anywhere", fleet, func(r *Request) {
			r.GroupID = PolicyGroup("ci")
		}, FilterGroup, "no node is open to the permission group ci"},
		{
			"no room where that is permitted",
			[]Node{
				machine("a", 1), machine("z", 1, inGroup("g", PolicyGroup("ci")), full),
			},
			func(r *Request) { r.GroupID = PolicyGroup("ci") }, FilterFull,
			"no node that is open to the permission group ci has a free slot (1 node: 1 full)",
		},
		{"no permission on the pinned node", fleet, func(r *Request) {
			r.PinnedNodeID, r.GroupID = "a",
				PolicyGroup("ci")
		}, FilterGroup, "node name-a is not open to the permission group ci"},
		{"a place is free", []Node{machine("a", 1)}, nil, ReasonTurn, "queued"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := ask("r", 0)
			if c.edit != nil {
				c.edit(&r)
			}
			x := indexOf(c.nodes, []Request{r}, gold)
			got := x.PendingReason("r", noon)
			if got.Name != c.want || got.Text != c.text || got.Nodes != len(c.nodes) {
				t.Errorf("got %q %q of %d nodes, want %q %q", got.Name, got.Text, got.Nodes, c.want, c.text)
			}
		})
	}
}

// needing makes requests that resume from a saved state.
func needing(needs farm.StateRequirements, more ...func(*Request)) func(*Request) {
	return func(r *Request) {
		r.StateNeeds = needs
		for _, edit := range more {
			edit(r)
		}
	}
}

// loading makes nodes on which a saved state loads, except as changed by edits.
func loading(needs farm.StateRequirements, edits ...func(*farm.StateRequirements)) func(*Node) {
	for _, edit := range edits {
		edit(&needs)
	}
	return func(n *Node) { n.StateSupport = needs }
}

func TestWhyFollowsChanges(t *testing.T) {
	x := indexOf([]Node{machine("a", 1)}, []Request{ask("r1", 0), ask("r2", 1)})
	why := func(id string, want Filter) {
		t.Helper()
		if got := x.PendingReason(id, noon).Name; got != want {
			t.Errorf("why %s: got %q, want %q", id, got, want)
		}
	}
	why("r1", ReasonTurn)
	wantPairs(t, x, "r1>a")
	why("r1", ReasonReserved)
	why("r2", FilterFull)
	x.SetNode(machine("a", 1, func(n *Node) { n.Name = "" }))
	if got := x.PendingReason("r1", noon); got.Text != "being assigned to node a" {
		t.Errorf("why r1, whose node has no name: %+v", got)
	}
	x.SetNode(machine("b", 1, held("offline")))
	if d := cmp.Diff([]FilterCount{{FilterFull, "full", 1}, {FilterState, "offline", 1}},
		x.PendingReason("r2", noon).Counts); d != "" {
		t.Errorf("counts (-want +got):\n%s", d)
	}
	x.RemoveNode("a")
	if got := x.PendingReason("r1", noon); got.Name != ReasonReserved || got.Text != "being assigned to node a" {
		t.Errorf("why r1, whose node is gone: %+v", got)
	}
	why("r2", FilterState)
	x.RemoveNode("b")
	why("r2", ReasonNoNodes)
	x.RemoveInstance("r2")
	why("r2", ReasonUnknown)
}

func TestExplain(t *testing.T) {
	x := indexOf([]Node{
		machine("a", 2), machine("b", 2, caching("t", "t1")), machine("c", 1, held("updating")),
		machine("d", 2, func(n *Node) { n.OrphanedLoad = vms(1) }),
		machine("e", 1, func(n *Node) { n.OrphanedLoad = vms(1) }),
		machine("a2", 2), machine("f", 1, held("offline")), machine("g", 1, held("offline")),
		machine("h", 1, held("offline")),
	}, []Request{ask("r", 0)})
	want := []NodeReason{
		{NodeID: "b", NodeName: "name-b", Text: "has the version, 0 % full", Score: Score{Locality: VersionCached}},
		{NodeID: "a2", NodeName: "name-a2", Text: "has nothing of the template, 0 % full"},
		{NodeID: "a", NodeName: "name-a", Text: "has nothing of the template, 0 % full"},
		{NodeID: "d", NodeName: "name-d", Text: "has nothing of the template, 50 % full", Score: Score{Load: 500_000}},
		{NodeID: "c", NodeName: "name-c", Filter: FilterState, Text: "is updating", Label: "updating"},
		{NodeID: "e", NodeName: "name-e", Filter: FilterFull, Text: "is full: 1 orphaned of 1", Label: "full"},
		{NodeID: "f", NodeName: "name-f", Filter: FilterState, Text: "is offline", Label: "offline"},
		{NodeID: "g", NodeName: "name-g", Filter: FilterState, Text: "is offline", Label: "offline"},
		{NodeID: "h", NodeName: "name-h", Filter: FilterState, Text: "is offline", Label: "offline"},
	}
	x.RecordStartFailure("b", noon.Add(-failureWindow)) // long past
	if d := cmp.Diff(want, x.Explain("r", noon)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	wantPairs(t, x, "r>b")
	if got := x.Explain("none", noon); got != nil {
		t.Errorf("a request that does not wait is explained: %v", got)
	}
}

// mac makes a node run macOS guests only.
func mac(n *Node) { n.MacOS, n.MacOSOnly = true, true }

// lacking removes abilities from a node.
func lacking(set farm.AbilitySet) func(*Node) { return func(n *Node) { n.LacksAbilities = set } }

// What an agent announces of its guests, against agents that announce nothing.
func TestGuestsOfNode(t *testing.T) {
	for name, tt := range map[string]struct {
		os, driver string
		abilities  []string
		want       Node
	}{
		"a former agent": {"linux", "qemu", []string{"bridge", "save"}, Node{LacksAbilities: farm.TakesOver}},
		"a former Mac":   {"darwin", "qemu", nil, Node{LacksAbilities: farm.TakesOver}},
		"QEMU": {
			"linux", "qemu",
			[]string{"identity", "mac", "network-disconnected", "network-host", "pc", "vga"},
			Node{LacksAbilities: farm.RunsAnkaImages | farm.TakesOver},
		},
		"a Mac": {"darwin", "tart", []string{"mac", "macos"}, Node{
			MacOS: true, MacOSOnly: true, MaxVMs: 2, MaxMacOSVMs: 2,
			LacksAbilities: farm.AllAbilities &^ (farm.CanSetMAC | farm.RunsMacDisks),
		}},
		"a Mac with anka": {"darwin", "anka", []string{"anka-images", "mac", "macos"}, Node{
			MacOS: true, MacOSOnly: true, MaxVMs: 2, MaxMacOSVMs: 2,
			LacksAbilities: farm.AllAbilities &^ (farm.CanSetMAC | farm.RunsAnkaImages),
		}},
		"a Mac with both": {"darwin", "tart", []string{"identity", "mac", "macos", "pc", "vga"}, Node{
			MacOS: true, MaxMacOSVMs: 2, LacksAbilities: farm.HasNetworkHost | farm.HasNetworkDisconnected |
				farm.RunsAnkaImages | farm.TakesOver,
		}},
	} {
		info := &farm.NodeInfo{
			OS: tt.os, Arch: "arm64", Hypervisor: farm.Hypervisor{Driver: tt.driver}, Abilities: tt.abilities,
		}
		got := NewNode(&farm.Node{}, info, Load{})
		got = Node{
			MacOS: got.MacOS, MacOSOnly: got.MacOSOnly, MaxVMs: got.MaxVMs, MaxMacOSVMs: got.MaxMacOSVMs,
			LacksAbilities: got.LacksAbilities,
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestNodeOf(t *testing.T) {
	record := &farm.Node{
		ID: "n", Name: "mini", Groups: []string{"g"}, State: farm.NodeActive, Capacity: 3,
		CapacityMode: farm.CapacityByResources,
	}
	info := &farm.NodeInfo{
		Arch: "arm64", CPUs: 8, MemoryMB: 16384,
		Hypervisor: farm.Hypervisor{
			Driver: "qemu", Version: "7", Accelerator: "tcg", Machine: "m", CPUModel: "max",
			HostCPU: "z", LicenseKind: "l",
		},
		Templates: []farm.NodeTemplate{{ID: "t", ContentID: "t1"}}, USBDevices: []farm.USBDevice{{Name: "phone"}},
		Abilities: []string{"bridge", "usb"}, VLANs: []int{7},
	}
	want := Node{
		ID: "n", Name: "mini", Arch: "arm64", Groups: record.Groups, CapacityMode: farm.CapacityByResources,
		Capacity:  3,
		VCPULimit: 16, MemoryLimitMB: 14336, CPUs: 8, MemoryMB: 16384, OrphanedLoad: Load{VMs: 1},
		StateSupport: farm.StateRequirements{
			Driver: "qemu", Version: "7", Accelerator: "tcg", Machine: "m", CPU: "max", HostCPU: "z",
		},
		CachedVersions: info.Templates, USBDevices: info.USBDevices, Bridge: true, VLANs: []int{7},
		LacksAbilities: farm.TakesOver,
	}
	if d := cmp.Diff(want, NewNode(record, info, Load{VMs: 1})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	record.VCPUOverride, record.RAMOverride = 5, 6
	if got := NewNode(record, info, Load{}); got.VCPULimit != 5 || got.MemoryLimitMB != 6 {
		t.Errorf("overrides: got %d vCPU and %d MB", got.VCPULimit, got.MemoryLimitMB)
	}
	record.VCPUOverride, record.RAMOverride = 0, 0
	if got := NewNode(record, nil, Load{}); got.Arch != "" || got.VCPULimit != 0 || got.MemoryLimitMB != 0 {
		t.Errorf("an unknown node offers %+v", got)
	}
	for _, s := range append([]farm.NodeState{"", "Strange"}, farm.NodeStates...) {
		for _, drain := range []bool{false, true} {
			record.State, record.Drain = s, drain
			if got := NewNode(record, info, Load{}).Unschedulable; (got == "") != record.AcceptsStarts() {
				t.Errorf("state %q drain %t: held %q", s, drain, got)
			}
		}
	}
}

func TestInstanceOf(t *testing.T) {
	i := &farm.Instance{
		ID: "i", State: farm.Scheduling, Created: noon, GroupID: "g", Owner: "ci",
		Template: farm.TemplateRef{
			ID: "t", ContentID: "t1", Arch: "amd64", CPUs: 2, MemoryMB: 2048, Size: 9,
			Needs: farm.StateRequirements{Driver: "qemu"},
		},
		Options: farm.StartOptions{Priority: 7, PinnedNode: "n", USBDevice: "phone", CPUs: 4},
	}
	want := Instance{Request: Request{
		ID: "i", Created: noon, Priority: 7, Owner: "ci", GroupID: "g", PinnedNodeID: "n", Arch: "amd64", USB: "phone",
		VCPU: 4, MemoryMB: 2048, StateNeeds: farm.StateRequirements{Driver: "qemu"}, TemplateID: "t", ContentID: "t1",
		VersionBytes: 9,
	}}
	check := func() {
		t.Helper()
		if d := cmp.Diff(want, NewInstance(i)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	check()
	i.NodeID, i.State, i.PullProgress = "n", farm.Pulling, 0.5
	want.NodeID, want.UsesCapacity, want.Pulling, want.Progress = "n", true, true, 0.5
	want.Slot = farm.SlotOther
	check()
	i.State = farm.Terminated
	want.UsesCapacity, want.Pulling, want.Slot = false, false, farm.SlotUnused
	check()
	i.NodeID = ""
	want.NodeID, want.Ended = "", true
	check()
	i.USBLocation, i.Task = "1-2", &farm.NodeTask{Restart: &farm.RestartOptions{Device: "1-3"}}
	want.USBLocation, want.NextUSBLocation = "1-2", "1-3"
	check()
	i.Task, want.NextUSBLocation = &farm.NodeTask{Kind: farm.TaskSave}, ""
	check()
	i.Template.Network, i.Template.VLAN = farm.NetworkBridge, "12"
	want.Bridge, want.VLAN = true, 12
	check()
	i.Options.NetworkMode, i.Options.VLAN = farm.NetworkNAT, "4094"
	want.Bridge, want.VLAN = false, 4094
	check()
}
