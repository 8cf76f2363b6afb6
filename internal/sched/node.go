package sched

import (
	"math"
	"slices"

	"github.com/buildyard/buildyard/internal/farm"
)

// hostReservedMB is what a node keeps for itself in resource mode, in MiB.
const hostReservedMB = 2048

// cpuOvercommit is the number of virtual CPUs per core in resource mode.
const cpuOvercommit = 2

// Node is the scheduler's description of a build node. Maps and slices are read only and may be
// shared with the caller, who replaces and never changes them.
type Node struct {
	ID            string
	Name          string
	Arch          string                 // amd64 or arm64; "" fits no request with an architecture
	StateSupport  farm.StateRequirements // what a saved state may need to load here
	Groups        []string               // ids of its groups
	Unschedulable string                 // "" when it is schedulable, else the reason as in "node x is <unschedulable>"

	CapacityMode  farm.CapacityMode
	Capacity      int // VMs, in number mode
	MaxVMs        int // VMs, in any mode; 0: no such limit
	MaxMacOSVMs   int // macOS VMs, in any mode; 0: no such limit
	VCPULimit     int // in resource mode
	MemoryLimitMB int // in resource mode

	// CPUs and MemoryMB are those of the whole machine: no VM gets more, in any mode. 0 is unknown.
	CPUs     int
	MemoryMB int

	OrphanedLoad Load // orphaned VMs; they use capacity too

	CachedVersions []farm.NodeTemplate // versions that are on the node's disk
	USBDevices     []farm.USBDevice    // Busy: in use, but not by an instance of the index
	Bridge         bool                // guests can join a network of the node
	VLANs          []int               // and of these VLANs
	MacOS          bool                // it runs macOS guests
	MacOSOnly      bool                // and no others
	LacksAbilities farm.AbilitySet     // of those that instances can request
	PullsLazily    bool                // its VMs start before all of their version is there
}

// unschedulableTexts names why a node in a state is not schedulable.
var unschedulableTexts = map[farm.NodeState]string{
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
		CapacityMode: n.CapacityMode, OrphanedLoad: foreign,
	}
	if !n.AcceptsStarts() {
		out.Unschedulable = unschedulableTexts[n.VisibleState()]
		if out.Unschedulable == "" {
			out.Unschedulable = "in an unknown state"
		}
	}
	if info == nil {
		info = &farm.NodeInfo{}
	}
	out.OrphanedLoad.MacOSVMs = max(foreign.MacOSVMs, info.OtherMacOS)
	out.Capacity, out.MaxVMs, out.MaxMacOSVMs = n.VMLimit(info), info.MaxVMs(), info.MaxMacOSVMs()
	out.MacOS, out.MacOSOnly = info.RunsMacOS(), !info.RunsPCs()
	out.LacksAbilities = ^info.RequestableAbilities() & farm.AllAbilities
	out.Arch, out.CachedVersions, out.USBDevices, out.StateSupport = info.Arch, info.Templates, info.USBDevices,
		stateSupportOf(info.Hypervisor)
	out.PullsLazily = slices.Contains(info.Abilities, farm.AbilityLazyPull)
	out.Bridge, out.VLANs = slices.Contains(info.Abilities, farm.AbilityBridge), info.VLANs
	out.VCPULimit, out.MemoryLimitMB = ResourceLimits(n, info)
	out.CPUs, out.MemoryMB = info.CPUs, info.MemoryMB
	return out
}

// stateSupportOf returns the requirements of a saved state that a hypervisor satisfies.
func stateSupportOf(h farm.Hypervisor) farm.StateRequirements {
	return farm.StateRequirements{
		Driver: h.Driver, Version: h.Version, Machine: h.Machine, Accelerator: h.Accelerator, CPU: h.CPUModel,
		HostCPU: h.HostCPU,
	}
}

// ResourceLimits returns the virtual CPUs and the memory in MiB that a node offers in
// resource mode: its overrides, else twice its cores and its memory minus 2 GiB.
func ResourceLimits(n *farm.Node, info *farm.NodeInfo) (vcpu, memoryMB int) {
	vcpu, memoryMB = info.CPUs*cpuOvercommit, max(0, info.MemoryMB-hostReservedMB)
	if n.VCPUOverride > 0 {
		vcpu = n.VCPUOverride
	}
	if n.RAMOverride > 0 {
		memoryMB = n.RAMOverride
	}
	return vcpu, memoryMB
}

// IsFull reports whether a node has no capacity for any VM, however small, in addition to the
// instances.
func IsFull(n *farm.Node, info *farm.NodeInfo, instances ...*farm.Instance) bool {
	x := node{Node: NewNode(n, info, Load{})}
	for _, i := range instances {
		x.usedLoad = x.usedLoad.add(new(NewInstance(i)).load())
	}
	return !x.hasCapacityFor(constraints{})
}

// node is a Node in the index with what was computed from it.
type node struct {
	Node
	usage          *nodeUsage
	tieBreak       uint32              // see heapEntry
	binPack        bool                // see Options
	isRemoved      bool                // it was removed
	reservedFor    *requestGroup       // request group that it is reserved for; nil: none
	usedLoad       Load                // instances and foreign VMs
	loadMillionths int                 // how full, in millionths
	recentFailures int                 // starts that failed lately
	cachedContents map[string]struct{} // of Cached
	largestCached  map[string]int64    // template id -> size of its largest version in Cached
	devicesWithUse []farm.USBDevice    // USBDevices with the instances' devices busy
}

// setCached indexes the versions on a node's disk.
func (n *node) setCached(list []farm.NodeTemplate) {
	n.cachedContents = make(map[string]struct{}, len(list))
	n.largestCached = make(map[string]int64, len(list))
	for _, t := range list {
		n.cachedContents[t.ContentID] = struct{}{}
		n.largestCached[t.ID] = max(n.largestCached[t.ID], t.Size)
	}
}

// sameVersions is cheap for a list that is shared between two descriptions.
func sameVersions(a, b []farm.NodeTemplate) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b))
}

// recompute computes what depends on the description and on the usage.
func (n *node) recompute() {
	n.usedLoad = n.OrphanedLoad.add(n.usage.used)
	n.devicesWithUse = markBusyDevices(n.USBDevices, n.usage.usb)
	n.computeLoad()
}

// isClosed reports whether the node accepts nothing at all now.
func (n *node) isClosed() bool { return n.Unschedulable != "" || !n.hasCapacityFor(constraints{}) }

// memoryLeft returns the memory in MiB of the largest VM that may fit.
func (n *node) memoryLeft() int {
	whole := math.MaxInt
	if n.MemoryMB > 0 {
		whole = n.MemoryMB
	}
	if n.CapacityMode != farm.CapacityByResources {
		return whole
	}
	return min(whole, n.MemoryLimitMB-n.usedLoad.MemoryMB)
}

func (n *node) computeLoad() {
	if n.CapacityMode == farm.CapacityByResources {
		n.loadMillionths = max(ratioMillionths(n.usedLoad.VCPU, n.VCPULimit),
			ratioMillionths(n.usedLoad.MemoryMB, n.MemoryLimitMB))
		return
	}
	n.loadMillionths = ratioMillionths(n.usedLoad.VMs, n.Capacity)
}

func ratioMillionths(part, whole int) int {
	if whole <= 0 {
		return 1_000_000
	}
	return int(int64(part) * 1_000_000 / int64(whole))
}

// hasCapacityFor reports whether one more VM of this size fits now.
func (n *node) hasCapacityFor(d constraints) bool {
	if n.MaxVMs > 0 && n.usedLoad.VMs >= n.MaxVMs {
		return false
	}
	if n.isFullOfMacOS(d) {
		return false
	}
	if n.CapacityMode != farm.CapacityByResources {
		return n.usedLoad.VMs < n.Capacity
	}
	with := n.usedLoad.add(d.vmLoad())
	return with.VCPU <= n.VCPULimit && with.MemoryMB <= n.MemoryLimitMB
}

// isTooSmall reports whether a VM of this size never fits, even on an empty node.
func (n *node) isTooSmall(d constraints) bool {
	alone := d.vmLoad()
	if exceeds(alone.VCPU, n.CPUs) || exceeds(alone.MemoryMB, n.MemoryMB) {
		return true
	}
	if n.CapacityMode != farm.CapacityByResources {
		return n.Capacity < 1
	}
	return alone.VCPU > n.VCPULimit || alone.MemoryMB > n.MemoryLimitMB
}

// exceeds reports whether a VM needs more of a resource than the whole machine has; 0 is unknown.
func exceeds(need, machine int) bool { return machine > 0 && need > machine }

// loadsState reports whether the saved state that a request resumes from loads on the node.
func (n *node) loadsState(d constraints) bool {
	return d.needs == farm.StateRequirements{} || d.needs == n.StateSupport
}

// runsGuestOf reports whether the node runs the guest's operating system.
func (n *node) runsGuestOf(d constraints) bool {
	if d.macOS {
		return n.MacOS
	}
	return !n.MacOSOnly
}

// isFullOfMacOS reports whether the node has as many macOS guests as it may, where one more is requested.
func (n *node) isFullOfMacOS(d constraints) bool {
	return d.macOS && n.MaxMacOSVMs > 0 && n.usedLoad.MacOSVMs >= n.MaxMacOSVMs
}
