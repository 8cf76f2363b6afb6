package controller

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// wired joins a node with VLANs, and with a bridge for guests if abilities has it.
func (c *cloud) wired(name string, abilities []string, vlans ...int) *agent {
	c.t.Helper()
	a := c.join(name, 9)
	a.info = &api.NodeInfo{Arch: "amd64", CPUs: 8, MemoryMB: 16384, Driver: "sim", Abilities: abilities, VLANs: vlans}
	a.contact()
	synctest.Wait()
	return a
}

var bridge = []string{farm.AbilityBridge}

func TestVLANsOfAllNodes(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		if got := c.Nodes.VLANs(everyNode); len(got) != 0 {
			t.Errorf("without nodes: %v", got)
		}
		c.wired("one", nil, 100, 20, 3, 0, 4095, 20, -1)
		if got := c.Nodes.VLANs(everyNode); !slices.Equal(got, []int{3, 20, 100}) {
			t.Errorf("of one node: %v", got)
		}
		two := c.wired("two", nil, 100, 3, 7)
		if got := c.Nodes.VLANs(everyNode); !slices.Equal(got, []int{3, 100}) {
			t.Errorf("of two nodes: %v", got)
		}
		c.join("three", 1)
		if got := c.Nodes.VLANs(everyNode); len(got) != 0 {
			t.Errorf("with a node that offers none: %v", got)
		}
		for n := range c.Nodes.Views() {
			if n.Node.ID != two.id {
				off := n.Node.Clone()
				off.State = farm.NodeOffline
				c.putNode(off)
			}
		}
		if got := c.Nodes.VLANs(everyNode); !slices.Equal(got, []int{3, 7, 100}) {
			t.Errorf("of the one that is up: %v", got)
		}
	})
}

func TestNetworksArePlaced(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		plain, bridged := c.wired("plain", nil), c.wired("bridged", bridge, 20)
		vlan := c.wired("vlan", nil, 10)
		for _, tt := range []struct {
			o    farm.StartOptions
			node string // "" is any
		}{
			{farm.StartOptions{NetworkMode: "bridge"}, bridged.id},
			{farm.StartOptions{NetworkMode: "bridge", VLAN: "20"}, bridged.id},
			{farm.StartOptions{NetworkMode: "bridge", VLAN: "10"}, vlan.id},
			{farm.StartOptions{NetworkMode: "disconnected", PinnedNode: plain.id}, plain.id},
			{farm.StartOptions{NetworkMode: "host", PinnedNode: plain.id}, plain.id},
			{farm.StartOptions{NetworkMode: "nat", PinnedNode: plain.id}, plain.id},
		} {
			id := c.mustStart(StartRequest{Options: tt.o})[0]
			inst, _ := c.Instances.Get(t.Context(), id)
			if inst.NodeID != tt.node {
				t.Errorf("%+v is on %q: %s", tt.o, inst.NodeName, inst.Message)
			}
			if tt.o.VLAN != "10" {
				continue
			}
			if m := vlan.take(api.OrderStart).Start.Machine; m.VLAN != 10 || m.Network != "bridge" {
				t.Errorf("machine %+v", m)
			}
		}
		id := c.mustStart(StartRequest{Options: farm.StartOptions{NetworkMode: "bridge", PinnedNode: plain.id}})[0]
		if inst, _ := c.Instances.Get(t.Context(), id); inst.Message != "node plain has no bridge for guests" {
			t.Errorf("message %q", inst.Message)
		}
	})
}

func TestRefusedNetworks(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		c.wired("one", bridge, 10)
		rule := []farm.Port{{Name: "ssh", GuestPort: 22}}
		for want, o := range map[string]farm.StartOptions{
			"vlan_tag requires the network mode bridge, but the template has shared: set network_mode to " +
				"bridge, or leave vlan_tag out": {VLAN: "10"},
			"vlan_tag requires the network mode bridge, but network_mode is nat: set network_mode to bridge, or " +
				"leave vlan_tag out": {VLAN: "10", NetworkMode: "nat"},
			"vlan_tag 11 cannot be used: no node offers that VLAN; leave it out, or have a node offer it (buildnode " +
				"run --vlan)": {VLAN: "11", NetworkMode: "bridge"},
			"port_forwarding_override cannot be used: the network mode bridge has no port rules; leave it out, or " +
				"use shared, nat or host": {NetworkMode: "bridge", PortOverride: true, Ports: rule},
			"port_forwarding_override cannot be used: the network mode disconnected has no port rules; leave it out, " +
				"or use shared, nat or host": {NetworkMode: "disconnected", PortOverride: true, Ports: rule},
			"network_local forceOn cannot be used: a guest in the network mode bridge cannot be isolated; leave it " +
				"out, or use host or disconnected": {NetworkMode: "bridge", NetworkLocal: "forceOn"},
		} {
			_, err := c.Start(t.Context(), StartRequest{TemplateID: templateID, Count: 1, Options: o})
			if err == nil || err.Error() != want || farm.CodeOf(err) != farm.CodeRefused {
				t.Errorf("%+v: %v, want %q", o, err, want)
			}
		}
	})
}

// TestNetworkOfASavedState: a suspended guest continues in the network that it was saved in.
func TestNetworkOfASavedState(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		pin := aPin
		pin.Network, pin.VLAN = "tap", 10
		c.shelf.suspend(pin)
		id := c.mustStart(StartRequest{})[0]
		inst, _ := c.Instances.Get(t.Context(), id)
		if inst.NetworkMode() != farm.NetworkBridge || inst.VLAN() != "10" ||
			inst.Options.NetworkMode != "" || inst.Options.VLAN != "" {
			t.Errorf("the instance is %+v", inst.Template)
		}
		a := c.wired("one", bridge, 20)
		info := *a.info
		info.Hypervisor, info.Machine, info.Accelerator, info.CPUModel, info.HostCPU, info.Driver = "7.2.22",
			"pc-q35-7.2", "tcg", "max", "Zeta", "qemu"
		a.info = &info
		a.poll(api.PollRequest{Info: a.info, HasHeld: true}, 0)
		synctest.Wait()
		if inst, _ := c.Instances.Get(t.Context(), id); inst.Message != "no node offers VLAN 10" {
			t.Errorf("message %q on %s", inst.Message, inst.NodeID)
		}
	})
}
