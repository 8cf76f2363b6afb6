package sched

import (
	"math"
	"slices"

	"github.com/buildyard/buildyard/internal/farm"
)

// reservedRAM is what a node keeps for itself in resource mode, in MiB.
const reservedRAM = 2048

// cpuOvercommit is the number of virtual CPUs per core in resource mode.
const cpuOvercommit = 2

// Node is the scheduler's description of a build node. Maps and slices are read only and may be
// shared with the caller, who replaces and never changes them.
type Node struct {
	ID            string
	Name          string
	Arch          string                 // amd64 or arm64; "" fits no request with an architecture
	Loads         farm.StateRequirements // what a saved state may need to load here
	Groups        []string               // ids of its groups
	Unschedulable string                 // "" when it is schedulable, else the reason as in "node x is <unschedulable>"

	Mode          farm.CapacityMode
	Capacity      int // VMs, in number mode
	MostVMs       int // VMs, in any mode; 0: no such limit
	VCPULimit     int // in resource mode
	MemoryLimitMB int // in resource mode

	// CPUs and MemoryMB are those of the whole machine: no VM gets more, in any mode. 0 is unknown.
	CPUs     int
	MemoryMB int

	Foreign Load // orphaned VMs; they use capacity too

	Cached []farm.NodeTemplate // versions that are on the node's disk
	USB    []farm.USBDevice    // Busy: in use, but not by an instance of the index
	Bridge bool                // guests can join a network of the node
	VLANs  []int               // and of these VLANs
}

// heldBy names why a node in a state is not schedulable.
var heldBy = map[farm.NodeState]string{
	farm.NodeOffline:   "offline",
	farm.NodeInactive:  "without a valid license",
	farm.NodeUpdating:  "updating",
	farm.NodeUnhealthy: "unhealthy",
	farm.NodeDrain:     "in drain mode",
}

// NewNode returns the Node for a stored record and the node's own description, which may be nil
// when it is unknown: then no request with an architecture or with resources fits.
func NewNode(n *farm.Node, info *farm.NodeInfo, foreign Load) Node {
	out := Node{
		ID: n.ID, Name: n.Name, Groups: n.Groups,
		Mode: n.Mode, Foreign: foreign,
	}
	if !n.TakesStarts() {
		out.Unschedulable = heldBy[n.Shown()]
		if out.Unschedulable == "" {
			out.Unschedulable = "in an unknown state"
		}
	}
	if info == nil {
		info = &farm.NodeInfo{}
	}
	out.Capacity, out.MostVMs = n.Slots(info), info.MaxVMs()
	out.Arch, out.Cached, out.USB, out.Loads = info.Arch, info.Templates, info.USB, loads(info.Hypervisor)
	out.Bridge, out.VLANs = slices.Contains(info.Abilities, farm.AbilityBridge), info.VLANs
	out.VCPULimit, out.MemoryLimitMB = Limits(n, info)
	out.CPUs, out.MemoryMB = info.CPUs, info.MemoryMB
	return out
}

// loads returns the requirements of a saved state that a hypervisor satisfies.
func loads(h farm.Hypervisor) farm.StateRequirements {
	return farm.StateRequirements{
		Driver: h.Driver, Version: h.Version, Machine: h.Machine, Accelerator: h.Accelerator, CPU: h.CPUModel,
		HostCPU: h.HostCPU,
	}
}

// Limits returns the virtual CPUs and the memory in MiB that a node offers in
// resource mode: its overrides, else twice its cores and its memory minus 2 GiB.
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

// Full reports whether a node has no capacity for any VM, however small, in addition to the
// instances.
func Full(n *farm.Node, info *farm.NodeInfo, instances ...*farm.Instance) bool {
	x := node{Node: NewNode(n, info, Load{})}
	for _, i := range instances {
		x.used = x.used.plus(loadOf(i.VCPU(), i.VRAM()))
	}
	return !x.fits(constraints{})
}

// node is a Node in the index with what was computed from it.
type node struct {
	Node
	room      *nodeUsage
	tie       uint32              // see heapEntry
	fit       bool                // see Options
	gone      bool                // it was removed
	promised  *requestGroup       // request group that it is reserved for; nil: none
	used      Load                // instances and foreign VMs
	load      int                 // how full, in millionths
	failures  int                 // starts that failed lately
	contents  map[string]struct{} // of Cached
	templates map[string]int64    // template id -> size of its largest version in Cached
	devices   []farm.USBDevice    // USB with the instances' devices busy
}

// cache indexes the versions on a node's disk.
func (n *node) cache(list []farm.NodeTemplate) {
	n.contents = make(map[string]struct{}, len(list))
	n.templates = make(map[string]int64, len(list))
	for _, t := range list {
		n.contents[t.ContentID] = struct{}{}
		n.templates[t.ID] = max(n.templates[t.ID], t.Size)
	}
}

// sameVersions is cheap for a list that is shared between two descriptions.
func sameVersions(a, b []farm.NodeTemplate) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// recount computes what depends on the description and on the usage.
func (n *node) recount() {
	n.used = n.Foreign.plus(n.room.taken)
	n.devices = attach(n.USB, n.room.usb)
	n.weigh()
}

// isClosed reports whether the node accepts nothing at all now.
func (n *node) isClosed() bool { return n.Unschedulable != "" || !n.fits(constraints{}) }

// memoryLeft returns the memory in MiB of the largest VM that may fit.
func (n *node) memoryLeft() int {
	whole := math.MaxInt
	if n.MemoryMB > 0 {
		whole = n.MemoryMB
	}
	if n.Mode != farm.CapacityByResources {
		return whole
	}
	return min(whole, n.MemoryLimitMB-n.used.MemoryMB)
}

func (n *node) weigh() {
	if n.Mode == farm.CapacityByResources {
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

// fits reports whether one more VM of this size fits now.
func (n *node) fits(d constraints) bool {
	if n.MostVMs > 0 && n.used.VMs >= n.MostVMs {
		return false
	}
	if n.Mode != farm.CapacityByResources {
		return n.used.VMs < n.Capacity
	}
	with := n.used.plus(d.load())
	return with.VCPU <= n.VCPULimit && with.MemoryMB <= n.MemoryLimitMB
}

// tooSmall reports whether a VM of this size never fits, even on an empty node.
func (n *node) tooSmall(d constraints) bool {
	alone := d.load()
	if exceeds(alone.VCPU, n.CPUs) || exceeds(alone.MemoryMB, n.MemoryMB) {
		return true
	}
	if n.Mode != farm.CapacityByResources {
		return n.Capacity < 1
	}
	return alone.VCPU > n.VCPULimit || alone.MemoryMB > n.MemoryLimitMB
}

// exceeds reports whether a VM needs more of a resource than the whole machine has; 0 is unknown.
func exceeds(need, machine int) bool { return machine > 0 && need > machine }

// loads reports whether the saved state that a request resumes from loads on the node.
func (n *node) loads(d constraints) bool {
	return d.needs == farm.StateRequirements{} || d.needs == n.Loads
}
