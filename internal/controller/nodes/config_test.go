package nodes

import (
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestRefusedConfigurations: a configuration that a node cannot have changes nothing.
func TestRefusedConfigurations(t *testing.T) {
	n := open(t)
	id := n.addNode(farm.NodeInfo{Arch: "amd64", MemoryMB: 16384})
	mac := n.addNode(farm.NodeInfo{Arch: "arm64", OS: "darwin", Hypervisor: farm.Hypervisor{Driver: "anka"}})
	for _, tt := range []struct {
		node string
		text string
		conf Config
	}{
		{id, "ram_override cannot be 20000 MiB: node one has 16384 MiB of memory", Config{RAMOverride: new(20000)}},
		{id, "vcpu_override counts in the capacity mode resource only", Config{VCPUOverride: new(4)}},
		{id, "ram_override counts in the capacity mode resource only", Config{RAMOverride: new(4)}},
		{id, "Node one is not drained", Config{DrainReason: new("x")}},
		{id, "Node one is not drained", Config{DrainFor: new(time.Minute)}},
		{
			mac, "max_vm_count cannot be 3: node one is a Mac with Apple silicon, on which at most 2 macOS VMs may run",
			Config{Capacity: new(3)},
		},
	} {
		tt.conf.NoCentralLog = new(true)
		wantRefused(t, n.Configure(t.Context(), tt.node, tt.conf), farm.CodeRefused, tt.text)
		if n.node(tt.node).NoCentralLog {
			t.Errorf("%s: the refused configuration was half carried out", tt.text)
		}
	}
	wantRefused(t, n.Configure(t.Context(), "x", Config{}), farm.CodeNotFound, farm.NotFoundMessage)
	n.wantEvents()
}

// TestConfigure: an address that an operator has set stays until it is unset, a drain keeps its start
// while its reason and deadline change, and what changes nothing causes no event.
func TestConfigure(t *testing.T) {
	n := open(t)
	id := n.addNode(farm.NodeInfo{})
	configure := func(conf Config) *farm.Node {
		t.Helper()
		if err := n.Configure(t.Context(), id, conf); err != nil {
			t.Fatal(err)
		}
		return n.node(id)
	}
	if node := configure(Config{Host: new("build1.example")}); node.Host != "build1.example" || !node.HostFixed {
		t.Errorf("%+v", node)
	}
	if node := configure(Config{Host: new("")}); node.Host != "build1.example" || node.HostFixed {
		t.Errorf("%+v", node)
	}
	began := configure(Config{Drain: new(true), DrainFor: new(time.Hour)}).DrainInfo
	d := configure(Config{Drain: new(true), DrainReason: new("disk")}).DrainInfo
	if !d.Since.Equal(began.Since) || d.Reason != "disk" || !d.Until.Equal(began.Since.Add(time.Hour)) {
		t.Errorf("%+v, then %+v", began, d)
	}
	if d := configure(Config{DrainFor: new(time.Duration(0))}).DrainInfo; !d.Until.IsZero() || d.Reason != "disk" {
		t.Errorf("without a deadline: %+v", d)
	}
	if node := configure(Config{Drain: new(false)}); node.DrainInfo != nil || node.Drain {
		t.Errorf("%+v", node)
	}
	n.events = nil
	configure(Config{Drain: new(false)})
	n.wantEvents()
}
