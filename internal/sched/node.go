package sched

import (
	"slices"

	"github.com/buildyard/buildyard/internal/farm"
)

// reservedRAM is what a node keeps for itself in resource mode, in MB.
const reservedRAM = 2048

// cpuOvercommit is how many virtual CPUs a core gives in resource mode.
const cpuOvercommit = 2

// Load is what VMs take of a node: their number, virtual CPUs and memory in MB.
type Load struct {
	VMs      int
	VCPU     int
	MemoryMB int
}

// add counts one more VM. One that says no size still takes one virtual CPU, so
// that no node takes infinitely many of them.
func (l Load) add(a farm.Alloc) Load {
	return Load{VMs: l.VMs + 1, VCPU: l.VCPU + max(1, a.VCPU), MemoryMB: l.MemoryMB + max(0, a.MemoryMB)}
}

// Node is what the scheduler must know of a build node. Maps and slices are read
// only and may be shared with the caller, who replaces and never changes them.
type Node struct {
	ID     string
	Name   string
	Arch   string     // amd64 or arm64; "" fits no request that asks for one
	Loads  farm.Needs // what a saved state may need to load here
	Groups []string   // ids of its groups
	Held   string     // "" when it takes starts, else the reason as in "node x is <held>"

	Mode          farm.CapacityMode
	Capacity      int // VMs, in number mode
	VCPULimit     int // in resource mode
	MemoryLimitMB int // in resource mode

	Allocs  map[string]farm.Alloc // request id -> what it takes
	Foreign Load                  // VMs that nobody owns; they take room too

	Cached []farm.NodeTemplate // versions that lie on the node's disk
	USB    []farm.USBDevice    // Busy as the caller knows, for the requests in Allocs at least
}

// heldBy names why a node in a state takes no starts.
var heldBy = map[farm.NodeState]string{
	farm.NodeOffline:   "offline",
	farm.NodeInactive:  "without a valid license",
	farm.NodeUpdating:  "updating",
	farm.NodeUnhealthy: "unhealthy",
	farm.NodeDrain:     "in drain mode",
}

// NodeOf makes a Node of the stored record and the node's own description, which
// may be nil when it is not known: then nothing that asks for an architecture or
// is counted by resources fits.
func NodeOf(n *farm.Node, info *farm.NodeInfo, foreign Load) Node {
	out := Node{
		ID: n.ID, Name: n.Name, Groups: n.Groups,
		Mode: n.Mode, Capacity: n.Capacity, Allocs: n.Allocs, Foreign: foreign,
	}
	if !n.TakesStarts() {
		out.Held = heldBy[n.Shown()]
		if out.Held == "" {
			out.Held = "in an unknown state"
		}
	}
	if info == nil {
		info = &farm.NodeInfo{}
	}
	out.Arch, out.Cached, out.USB, out.Loads = info.Arch, info.Templates, info.USB, loads(info.Hypervisor)
	out.VCPULimit, out.MemoryLimitMB = Limits(n, info)
	return out
}

// loads gives what a saved state may need to load under a hypervisor.
func loads(h farm.Hypervisor) farm.Needs {
	return farm.Needs{
		Driver: h.Driver, Version: h.Version, Machine: h.Machine, Accelerator: h.Accelerator, CPU: h.CPUModel, HostCPU: h.HostCPU,
	}
}

// Limits gives the virtual CPUs and the memory in MB that a node offers in
// resource mode: its overrides, else twice its cores and its memory minus 2 GB.
func Limits(n *farm.Node, info *farm.NodeInfo) (vcpu, memoryMB int) {
	vcpu, memoryMB = info.CPUs*cpuOvercommit, max(0, info.MemoryMB-reservedRAM)
	if n.VCPUOverride > 0 {
		vcpu = n.VCPUOverride
	}
	if n.RAMOverride > 0 {
		memoryMB = n.RAMOverride
	}
	return vcpu, memoryMB
}

// node is a Node in the index with what was computed from it.
type node struct {
	Node
	used      Load // allocations, reservations and foreign VMs
	load      int  // how full, in millionths
	reserved  map[string]demand
	contents  map[string]struct{}
	templates map[string]struct{}
	devices   []farm.USBDevice // USB with the reservations' devices busy
}

// set takes over a newer description. Reservations that it already holds as
// allocations end here, so that nothing is counted twice or forgotten in between.
func (n *node) set(to Node) {
	if n.contents == nil || !slices.Equal(n.Cached, to.Cached) {
		n.contents = make(map[string]struct{}, len(to.Cached))
		n.templates = make(map[string]struct{}, len(to.Cached))
		for _, t := range to.Cached {
			n.contents[t.ContentID] = struct{}{}
			n.templates[t.ID] = struct{}{}
		}
	}
	n.Node = to
	for id := range n.reserved {
		if _, stored := to.Allocs[id]; stored {
			delete(n.reserved, id)
		}
	}
	n.recount()
}

// recount computes what is used from the allocations and reservations. It is
// derived every time and never counted up and down, so it cannot drift.
func (n *node) recount() {
	n.used = n.Foreign
	for _, a := range n.Allocs {
		n.used = n.used.add(a)
	}
	n.devices = n.USB
	for _, id := range sortedKeys(n.reserved) {
		n.count(n.reserved[id])
	}
	n.weigh()
}

// reserve takes room for a request until its allocation is stored.
func (n *node) reserve(id string, d demand) {
	if n.reserved == nil {
		n.reserved = map[string]demand{}
	}
	n.reserved[id] = d
	n.count(d)
	n.weigh()
}

// release gives back what reserve took.
func (n *node) release(id string) {
	delete(n.reserved, id)
	n.recount()
}

func (n *node) count(d demand) {
	n.used = n.used.add(d.alloc())
	if d.usb == "" {
		return
	}
	n.devices = slices.Clone(n.devices)
	for i, dev := range n.devices {
		if !dev.Busy && d.wants(dev) {
			n.devices[i].Busy = true
			return
		}
	}
}

func (n *node) weigh() {
	if n.Mode == farm.ByResource {
		n.load = max(millionths(n.used.VCPU, n.VCPULimit), millionths(n.used.MemoryMB, n.MemoryLimitMB))
		return
	}
	n.load = millionths(n.used.VMs, n.Capacity)
}

func millionths(part, whole int) int {
	if whole <= 0 {
		return 1_000_000
	}
	return int(int64(part) * 1_000_000 / int64(whole))
}

// room says whether one more VM of this size has a place now.
func (n *node) room(d demand) bool {
	if n.Mode != farm.ByResource {
		return n.used.VMs < n.Capacity
	}
	with := n.used.add(d.alloc())
	return with.VCPU <= n.VCPULimit && with.MemoryMB <= n.MemoryLimitMB
}

// tooSmall says whether a VM of this size never has a place, even on an empty node.
func (n *node) tooSmall(d demand) bool {
	if n.Mode != farm.ByResource {
		return n.Capacity < 1
	}
	alone := Load{}.add(d.alloc())
	return alone.VCPU > n.VCPULimit || alone.MemoryMB > n.MemoryLimitMB
}

// loads says whether the saved state that a request goes on from loads on the node.
func (n *node) loads(d demand) bool { return d.needs == farm.Needs{} || d.needs == n.Loads }

// device says whether the node has a wanted USB device, and whether one is free.
func (n *node) device(d demand) (has, free bool) {
	if d.usb == "" {
		return true, true
	}
	for _, dev := range n.devices {
		if d.wants(dev) {
			has, free = true, free || !dev.Busy
		}
	}
	return has, free
}
