package sched

import (
	"fmt"
	"slices"
)

// Filter names what excludes a node, or every node, for a request.
type Filter string

// The filters, in the order in which they are evaluated.
const (
	// FilterPinned is a node other than the pinned one.
	FilterPinned Filter = "pinned"
	// FilterGroup is a node outside the request's group and its fallbacks.
	FilterGroup Filter = "group"
	// FilterArch is a node of another architecture.
	FilterArch Filter = "architecture"
	// FilterSaved is a node on which the saved state of the version does not load.
	FilterSaved Filter = "saved-state"
	// FilterUSB is a node without the requested USB device.
	FilterUSB Filter = "usb"
	// FilterNetwork is a node without the requested kind of network.
	FilterNetwork Filter = "network"
	// FilterVLAN is a node without the requested VLAN.
	FilterVLAN Filter = "vlan"
	// FilterSize is a node that is too small even when it is empty.
	FilterSize Filter = "size"
	// FilterState is a node that is not schedulable now: offline, drained and so on.
	FilterState Filter = "state"
	// FilterReserved is a node that is reserved for requests that have waited long for as much
	// capacity.
	FilterReserved Filter = "reserved-node"
	// FilterRoom is a node that is full.
	FilterRoom Filter = "full"
	// FilterDevice is a node whose USB devices of the requested kind are all in use.
	FilterDevice Filter = "usb-busy"
)

// The reasons that are not a filter.
const (
	// NoNodes is a cloud without any node.
	NoNodes Filter = "no-nodes"
	// Nearby is a request that has a suitable node and waits for one with its version.
	Nearby Filter = "locality"
	// Turn is a request that has a suitable node and waits for the next round or for more urgent
	// ones.
	Turn Filter = "turn"
	// Reserved is a request that Place has assigned and whose assignment is not stored yet.
	Reserved Filter = "reserved"
	// Unknown is a request that is not in the index.
	Unknown Filter = "unknown"
)

// rule is one filter: whether it excludes a node, and its sentence about one node ("node x ...")
// and about all.
type rule struct {
	name    Filter
	refuses func(p *requestGroup, n *node) bool
	one     func(p *requestGroup, n *node) string
	all     func(p *requestGroup) string
}

// rules are evaluated in this order; the first that excludes a node names the reason. What never
// changes for a node comes before what passes.
var rules = []rule{
	{
		FilterPinned,
		func(p *requestGroup, n *node) bool { return p.want.pinned != "" && p.want.pinned != n.ID },
		func(*requestGroup, *node) string { return "is not the pinned node" },
		func(p *requestGroup) string { return fmt.Sprintf("node %s is not known", p.want.pinned) },
	},
	{
		FilterGroup,
		func(p *requestGroup, n *node) bool { _, in := p.tier(n); return !in },
		func(p *requestGroup, _ *node) string { return p.want.outside(p.groupName) },
		func(p *requestGroup) string { return p.want.nowhere(p.groupName) },
	},
	{
		FilterArch,
		func(p *requestGroup, n *node) bool { return p.want.arch != "" && p.want.arch != n.Arch },
		func(p *requestGroup, n *node) string {
			return fmt.Sprintf("has architecture %s, not %s", orUnknown(n.Arch), p.want.arch)
		},
		func(p *requestGroup) string { return p.subject() + " has architecture " + p.want.arch },
	},
	{
		FilterSaved,
		func(p *requestGroup, n *node) bool { return !n.loads(p.want) },
		func(p *requestGroup, n *node) string {
			return "cannot load the saved state of this version: " + p.want.lacks(n)
		},
		func(p *requestGroup) string {
			return p.subject() + " can load the saved state of this version: it needs " + p.want.saved()
		},
	},
	{
		FilterUSB,
		func(p *requestGroup, n *node) bool { has, _ := n.device(p.want); return !has },
		func(p *requestGroup, _ *node) string { return "has no USB device " + p.want.usb },
		func(p *requestGroup) string { return p.subject() + " has a USB device " + p.want.usb },
	},
	{
		FilterNetwork,
		func(p *requestGroup, n *node) bool { return p.want.bridge && p.want.vlan == 0 && !n.Bridge },
		func(*requestGroup, *node) string { return "has no bridge for guests" },
		func(p *requestGroup) string { return p.subject() + " has a bridge for guests" },
	},
	{
		FilterVLAN,
		func(p *requestGroup, n *node) bool { return p.want.vlan != 0 && !slices.Contains(n.VLANs, p.want.vlan) },
		func(p *requestGroup, _ *node) string { return fmt.Sprintf("does not offer VLAN %d", p.want.vlan) },
		func(p *requestGroup) string { return fmt.Sprintf("%s offers VLAN %d", p.subject(), p.want.vlan) },
	},
	{
		FilterSize,
		func(p *requestGroup, n *node) bool { return n.tooSmall(p.want) },
		func(p *requestGroup, n *node) string {
			return "is too small for " + p.want.size() + n.machineSize(p.want)
		},
		func(p *requestGroup) string { return p.subject() + " is large enough for " + p.want.size() },
	},
	{
		FilterState,
		func(_ *requestGroup, n *node) bool { return n.Unschedulable != "" },
		func(_ *requestGroup, n *node) string { return "is " + n.Unschedulable },
		func(p *requestGroup) string { return p.subject() + " is schedulable" },
	},
	{
		FilterReserved,
		func(p *requestGroup, n *node) bool { return n.promised != nil && n.promised != p },
		func(*requestGroup, *node) string { return "is reserved for a larger request that has waited long" },
		func(p *requestGroup) string { return p.subject() + " has a free slot" },
	},
	{
		FilterRoom,
		func(p *requestGroup, n *node) bool { return !n.fits(p.want) },
		func(*requestGroup, *node) string { return "is full" },
		func(p *requestGroup) string { return p.subject() + " has a free slot" },
	},
	{
		FilterDevice,
		func(p *requestGroup, n *node) bool { _, free := n.device(p.want); return !free },
		func(p *requestGroup, _ *node) string { return "has no free USB device " + p.want.usb },
		func(p *requestGroup) string { return p.subject() + " has a free USB device " + p.want.usb },
	},
}

// refusal returns the first rule that excludes the node, nil when it can take the request now.
func (p *requestGroup) refusal(n *node) *rule {
	for i := range rules {
		if rules[i].refuses(p, n) {
			return &rules[i]
		}
	}
	return nil
}

// subject begins a sentence about the nodes that were considered.
func (p *requestGroup) subject() string {
	if p.want.group == "" {
		return "no node"
	}
	return p.want.among(p.groupName)
}

// machineSize names what the whole machine has, where a VM of this size needs more than that.
func (n *node) machineSize(d constraints) string {
	alone := d.load()
	switch {
	case exceeds(alone.VCPU, n.CPUs):
		return fmt.Sprintf(": the machine has %d CPUs", n.CPUs)
	case exceeds(alone.MemoryMB, n.MemoryMB):
		return fmt.Sprintf(": the machine has %d MiB of memory", n.MemoryMB)
	default:
		return ""
	}
}

func (d constraints) size() string {
	return fmt.Sprintf("%d vCPU and %d MiB", max(1, d.vcpu), d.memoryMB)
}

// saved describes what the saved state needs.
func (d constraints) saved() string {
	text := fmt.Sprintf("%s %s with %s, CPU %s", d.needs.Driver, d.needs.Version, d.needs.Accelerator, d.needs.CPU)
	if d.needs.Machine != "" {
		text += ", machine " + d.needs.Machine
	}
	if d.needs.HostCPU != "" {
		text += ", on a host with " + d.needs.HostCPU
	}
	return text
}

// lacks names the first thing that the saved state needs and the node does not have.
func (d constraints) lacks(n *node) string {
	const text = "it needs %s %s, the node has %s"
	for _, row := range []struct{ what, need, have string }{
		{"driver", d.needs.Driver, n.Loads.Driver},
		{"hypervisor version", d.needs.Version, n.Loads.Version},
		{"accelerator", d.needs.Accelerator, n.Loads.Accelerator},
		{"machine type", d.needs.Machine, n.Loads.Machine},
		{"CPU model", d.needs.CPU, n.Loads.CPU},
	} {
		if row.need != row.have {
			return fmt.Sprintf(text, row.what, orUnknown(row.need), orUnknown(row.have))
		}
	}
	return fmt.Sprintf(text, "host CPU", orUnknown(d.needs.HostCPU), orUnknown(n.Loads.HostCPU))
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
