package sched

import (
	"fmt"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/farm"
)

// Filter names what excludes a node, or every node, for a request.
type Filter string

// The filters, in the order in which they are evaluated.
const (
	// FilterPinned is a node other than the pinned one.
	FilterPinned Filter = "pinned"
	// FilterGroup is a node outside the request's group and its fallbacks.
	FilterGroup Filter = "group"
	// FilterGuestOS is a node that does not run the guest's operating system.
	FilterGuestOS Filter = "guest-os"
	// FilterArch is a node of another architecture.
	FilterArch Filter = "architecture"
	// FilterSavedState is a node on which the saved state of the version does not load.
	FilterSavedState Filter = "saved-state"
	// FilterAbility is a node whose hypervisor cannot do something that was requested.
	FilterAbility Filter = "ability"
	// FilterUSB is a node without the requested USBDevices device.
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
	// FilterFull is a node that is full.
	FilterFull Filter = "full"
	// FilterUSBBusy is a node whose USBDevices devices of the requested kind are all in use.
	FilterUSBBusy Filter = "usb-busy"
)

// The reasons that are not a filter.
const (
	// ReasonNoNodes is a cloud without any node.
	ReasonNoNodes Filter = "no-nodes"
	// ReasonLocality is a request that has a suitable node and waits for one with its version.
	ReasonLocality Filter = "locality"
	// ReasonTurn is a request that has a suitable node and waits for the next round or for more urgent
	// ones.
	ReasonTurn Filter = "turn"
	// ReasonReserved is a request that Place has assigned and whose assignment is not stored yet.
	ReasonReserved Filter = "reserved"
	// ReasonUnknown is a request that is not in the index.
	ReasonUnknown Filter = "unknown"
)

// filterRule is one filter: whether it excludes a node, and its sentence about one node ("node x ...")
// and about all.
type filterRule struct {
	name     Filter
	excludes func(p *requestGroup, n *node) bool
	nodeText func(p *requestGroup, n *node) string
	allText  func(p *requestGroup) string
}

// filterRules are evaluated in this order; the first that excludes a node names the reason. What never
// changes for a node comes before what passes.
var filterRules = []filterRule{
	{
		FilterPinned,
		func(p *requestGroup, n *node) bool { return p.constraints.pinned != "" && p.constraints.pinned != n.ID },
		func(*requestGroup, *node) string { return "is not the pinned node" },
		func(p *requestGroup) string { return fmt.Sprintf("node %s is not known", p.constraints.pinned) },
	},
	{
		FilterGroup,
		func(p *requestGroup, n *node) bool { _, in := p.groupDistance(n); return !in },
		func(p *requestGroup, _ *node) string { return p.constraints.outsideText(p.groupName) },
		func(p *requestGroup) string { return p.constraints.noNodeText(p.groupName) },
	},
	{
		FilterGuestOS,
		func(p *requestGroup, n *node) bool { return !n.runsGuestOf(p.constraints) },
		func(p *requestGroup, _ *node) string {
			if p.constraints.macOS {
				return "does not run macOS guests"
			}
			return "runs macOS guests only"
		},
		func(p *requestGroup) string {
			if p.constraints.macOS {
				return p.sentenceSubject() + " runs macOS guests"
			}
			return p.sentenceSubject() + " runs guests other than macOS"
		},
	},
	{
		FilterArch,
		func(p *requestGroup, n *node) bool { return p.constraints.arch != "" && p.constraints.arch != n.Arch },
		func(p *requestGroup, n *node) string {
			return fmt.Sprintf("has architecture %s, not %s", textOrUnknown(n.Arch), p.constraints.arch)
		},
		func(p *requestGroup) string { return p.sentenceSubject() + " has architecture " + p.constraints.arch },
	},
	{
		FilterSavedState,
		func(p *requestGroup, n *node) bool { return !n.loadsState(p.constraints) },
		func(p *requestGroup, n *node) string {
			return "cannot load the saved state of this version: " + p.constraints.missingForState(n)
		},
		func(p *requestGroup) string {
			return p.sentenceSubject() + " can load the saved state of this version: it needs " +
				p.constraints.savedStateText()
		},
	},
	{
		FilterAbility,
		func(p *requestGroup, n *node) bool { return p.constraints.abilities&n.LacksAbilities != 0 },
		func(p *requestGroup, n *node) string {
			return "cannot " + abilityText(p.constraints.abilities&n.LacksAbilities)
		},
		func(p *requestGroup) string {
			return p.sentenceSubject() + " can " + abilityText(p.constraints.abilities)
		},
	},
	{
		FilterUSB,
		func(p *requestGroup, n *node) bool { has, _ := n.deviceAvailability(p.constraints); return !has },
		func(p *requestGroup, _ *node) string { return "has no USB device " + p.constraints.usb },
		func(p *requestGroup) string { return p.sentenceSubject() + " has a USB device " + p.constraints.usb },
	},
	{
		FilterNetwork,
		func(p *requestGroup, n *node) bool {
			return p.constraints.bridge && p.constraints.vlan == 0 && !n.Bridge
		},
		func(*requestGroup, *node) string { return "has no bridge for guests" },
		func(p *requestGroup) string { return p.sentenceSubject() + " has a bridge for guests" },
	},
	{
		FilterVLAN,
		func(p *requestGroup, n *node) bool {
			return p.constraints.vlan != 0 && !slices.Contains(n.VLANs, p.constraints.vlan)
		},
		func(p *requestGroup, _ *node) string {
			return fmt.Sprintf("does not offer VLAN %d", p.constraints.vlan)
		},
		func(p *requestGroup) string {
			return fmt.Sprintf("%s offers VLAN %d", p.sentenceSubject(), p.constraints.vlan)
		},
	},
	{
		FilterSize,
		func(p *requestGroup, n *node) bool { return n.isTooSmall(p.constraints) },
		func(p *requestGroup, n *node) string {
			return "is too small for " + p.constraints.sizeText() + n.machineSizeText(p.constraints)
		},
		func(p *requestGroup) string {
			return p.sentenceSubject() + " is large enough for " + p.constraints.sizeText()
		},
	},
	{
		FilterState,
		func(_ *requestGroup, n *node) bool { return n.Unschedulable != "" },
		func(_ *requestGroup, n *node) string { return "is " + n.Unschedulable },
		func(p *requestGroup) string { return p.sentenceSubject() + " is schedulable" },
	},
	{
		FilterReserved,
		func(p *requestGroup, n *node) bool { return n.reservedFor != nil && n.reservedFor != p },
		func(*requestGroup, *node) string { return "is reserved for a larger request that has waited long" },
		func(p *requestGroup) string { return p.sentenceSubject() + " has a free slot" },
	},
	{
		FilterFull,
		func(p *requestGroup, n *node) bool { return !n.hasCapacityFor(p.constraints) },
		func(p *requestGroup, n *node) string {
			if n.isFullOfMacOS(p.constraints) {
				return fmt.Sprintf("is full: it has %d macOS guests, the most on a Mac", n.usedLoad.MacOSVMs)
			}
			return n.fullText()
		},
		func(p *requestGroup) string { return p.sentenceSubject() + " has a free slot" },
	},
	{
		FilterUSBBusy,
		func(p *requestGroup, n *node) bool { _, free := n.deviceAvailability(p.constraints); return !free },
		func(p *requestGroup, _ *node) string { return "has no free USB device " + p.constraints.usb },
		func(p *requestGroup) string {
			return p.sentenceSubject() + " has a free USB device " + p.constraints.usb
		},
	},
}

// firstExclusion returns the first rule that excludes the node, nil when it can take the request now.
func (p *requestGroup) firstExclusion(n *node) *filterRule {
	for i := range filterRules {
		if filterRules[i].excludes(p, n) {
			return &filterRules[i]
		}
	}
	return nil
}

// sentenceSubject begins a sentence about the nodes that were considered.
func (p *requestGroup) sentenceSubject() string {
	if p.constraints.group == "" {
		return "no node"
	}
	return p.constraints.amongText(p.groupName)
}

// machineSizeText names what the whole machine has, where a VM of this size needs more than that.
func (n *node) machineSizeText(d constraints) string {
	alone := d.vmLoad()
	switch {
	case exceeds(alone.VCPU, n.CPUs):
		return fmt.Sprintf(": the machine has %d CPUs", n.CPUs)
	case exceeds(alone.MemoryMB, n.MemoryMB):
		return fmt.Sprintf(": the machine has %d MiB of memory", n.MemoryMB)
	default:
		return ""
	}
}

func (d constraints) sizeText() string {
	return fmt.Sprintf("%d vCPU and %d MiB", max(1, d.vcpu), d.memoryMB)
}

// savedStateText describes what the saved state needs.
func (d constraints) savedStateText() string {
	text := fmt.Sprintf("%s %s with %s, CPU %s", d.needs.Driver, d.needs.Version, d.needs.Accelerator, d.needs.CPU)
	if d.needs.Machine != "" {
		text += ", machine " + d.needs.Machine
	}
	if d.needs.HostCPU != "" {
		text += ", on a host with " + d.needs.HostCPU
	}
	return text
}

// missingForState names the first thing that the saved state needs and the node does not have.
func (d constraints) missingForState(n *node) string {
	const text = "it needs %s %s, the node has %s"
	for _, row := range []struct{ what, need, have string }{
		{"driver", d.needs.Driver, n.StateSupport.Driver},
		{"hypervisor version", d.needs.Version, n.StateSupport.Version},
		{"accelerator", d.needs.Accelerator, n.StateSupport.Accelerator},
		{"machine type", d.needs.Machine, n.StateSupport.Machine},
		{"CPU model", d.needs.CPU, n.StateSupport.CPU},
	} {
		if row.need != row.have {
			return fmt.Sprintf(text, row.what, textOrUnknown(row.need), textOrUnknown(row.have))
		}
	}
	return fmt.Sprintf(text, "host CPU", textOrUnknown(d.needs.HostCPU), textOrUnknown(n.StateSupport.HostCPU))
}

func textOrUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// abilityTexts complete "can" and "cannot".
var abilityTexts = []struct {
	ability farm.AbilitySet
	text    string
}{
	{farm.CanSetMAC, "set the MAC address of a guest"},
	{farm.CanSetIdentity, "set hardware UUID and serial number of a guest"},
	{farm.HasVGA, `offer the video controller "fbuf"`},
	{farm.HasNetworkHost, `offer the network mode "host"`},
	{farm.HasNetworkDisconnected, `offer the network mode "disconnected"`},
	{farm.RunsAnkaImages, "start macOS guests from archives of anka"},
	{farm.RunsMacDisks, "start macOS guests from raw disks"},
	{farm.TakesOver, "let a start take over the VM of a standby"},
}

// abilityText names the abilities of a set.
func abilityText(set farm.AbilitySet) string {
	var parts []string
	for _, row := range abilityTexts {
		if set&row.ability != 0 {
			parts = append(parts, row.text)
		}
	}
	return strings.Join(parts, " or ")
}
