package farm

import (
	"slices"
	"time"
)

// NodeState is the state of a node as clients see it.
type NodeState string

// The node states of the API.
const (
	NodeOffline   NodeState = "Offline"
	NodeInactive  NodeState = "Inactive (Invalid License)"
	NodeActive    NodeState = "Active"
	NodeUpdating  NodeState = "Updating"
	NodeUnhealthy NodeState = "Unhealthy"
	NodeDrain     NodeState = "Drain Mode"
)

// CapacityMode is what limits the starts on a node.
type CapacityMode string

// The capacity modes.
const (
	CapacityByVMs       CapacityMode = "number"   // at most Capacity VMs
	CapacityByResources CapacityMode = "resource" // virtual CPUs and memory
)

// DefaultCapacity is the number of VMs of a node without another setting.
const DefaultCapacity = 2

// Node is a build node as configured, and its state. Heartbeats are never written; State changes
// only when the evaluated state changes. The usage of a node is not part of it, but of the
// instances, see Instance.UsesCapacity. A placement requires that the record is unchanged since the
// scheduler read it and does not change it. Like every record, a stored Node is never changed in
// place.
type Node struct {
	ID           string       `json:"id"` // UUID
	Name         string       `json:"name"`
	Host         string       `json:"host"`                 // address or host name
	HostFixed    bool         `json:"host_fixed,omitempty"` // set by an operator: what the node reports is ignored
	Groups       []string     `json:"groups,omitempty"`     // those that were deleted may still be named
	State        NodeState    `json:"state"`                // without drain: see Shown
	StateReason  string       `json:"state_reason,omitempty"`
	StateSince   time.Time    `json:"state_since"`
	Drain        bool         `json:"drain,omitempty"`
	DrainInfo    *DrainInfo   `json:"draining,omitempty"` // nil unless Drain, and in records of older programs
	Capacity     int          `json:"capacity"`           // VMs, in the mode "number"
	CapacityMode CapacityMode `json:"mode"`
	VCPUOverride int          `json:"vcpu_override,omitempty"`
	RAMOverride  int          `json:"ram_override,omitempty"` // MB
	Credential   string       `json:"credential"`             // hex sha256 of the node's secret
	Joined       time.Time    `json:"joined"`
	KeyID        string       `json:"key_id,omitempty"` // of the API key that it has joined with; "": by another way
	NoCentralLog bool         `json:"no_central_log,omitempty"`
	Update       *AgentUpdate `json:"update,omitempty"` // of its agent; nil: none was requested, or it is done
}

// DrainInfo is since when and why a node is drained. Like a Node it is replaced and never changed
// in place.
type DrainInfo struct {
	Since   time.Time `json:"since"`
	Reason  string    `json:"reason,omitempty"`
	Until   time.Time `json:"until,omitzero"`   // what still runs there then is terminated; zero: never
	Emptied time.Time `json:"emptied,omitzero"` // when the node became empty; zero: not yet
}

// Clone copies the record; slice and pointer are shared, since their targets are
// replaced and never changed in place.
func (n *Node) Clone() *Node {
	c := *n
	return &c
}

// VisibleState returns the state that clients see: drain replaces Active only.
func (n *Node) VisibleState() NodeState {
	if n.State == NodeActive && n.Drain {
		return NodeDrain
	}
	return n.State
}

// VisibleSince returns since when the node is in the state that clients see, and why.
func (n *Node) VisibleSince() (since time.Time, reason string) {
	if n.VisibleState() == NodeDrain && n.DrainInfo != nil {
		return n.DrainInfo.Since, n.DrainInfo.Reason
	}
	return n.StateSince, n.StateReason
}

// ApplyEvent applies an event to the node and reports whether that changed its state.
func (n *Node) ApplyEvent(e NodeEvent, reason string, at time.Time) bool {
	to, drain := NextNodeState(n.State, n.Drain, e)
	moved := to != n.State
	n.State, n.Drain = to, drain
	if moved {
		n.StateReason, n.StateSince = reason, at
	}
	return moved
}

// AcceptsStarts reports whether the scheduler may place new instances on the node.
func (n *Node) AcceptsStarts() bool { return n.VisibleState() == NodeActive }

// maxVMsOnAppleSilicon is how many macOS VMs the license of macOS allows on one Mac with Apple silicon.
const maxVMsOnAppleSilicon = 2

// MaxVMs returns how many VMs may run on such a host at a time, regardless of its configuration; 0:
// unlimited. QEMU does not run macOS.
func (i *NodeInfo) MaxVMs() int {
	if i.OS == "darwin" && i.Arch == "arm64" && i.Hypervisor.Driver != "qemu" &&
		!slices.Contains(i.Abilities, AbilityPC) {
		return maxVMsOnAppleSilicon
	}
	return 0
}

// MaxMacOSVMs returns how many macOS VMs may run on a host that runs others as well; 0: unlimited.
func (i *NodeInfo) MaxMacOSVMs() int {
	if i.RunsMacOS() {
		return maxVMsOnAppleSilicon
	}
	return 0
}

// VMLimit returns how many VMs the node may run at a time where capacity is counted by VMs.
func (n *Node) VMLimit(info *NodeInfo) int {
	if most := info.MaxVMs(); most > 0 {
		return min(most, n.Capacity)
	}
	return n.Capacity
}

// NodeInfo is how a node describes itself. It is sent in full when it changes and stored next to
// the Node, so that lists are complete after a restart.
type NodeInfo struct {
	NodeID       string         `json:"node_id"`
	Arch         string         `json:"arch"` // amd64 or arm64
	OS           string         `json:"os"`
	OSVersion    string         `json:"os_version,omitempty"`  // name and version for a reader
	OtherMacOS   int            `json:"other_macos,omitempty"` // macOS guests that run and belong to no instance
	Processor    string         `json:"processor,omitempty"`   // its name for a reader
	CPUs         int            `json:"cpus"`
	MemoryMB     int            `json:"memory_mb"`
	DiskSize     int64          `json:"disk_size"`  // bytes
	FreeDisk     int64          `json:"free_disk"`  // bytes, rounded so that noise changes nothing
	CacheUsage   int64          `json:"cache_used"` // bytes taken by templates and VMs
	AgentVersion string         `json:"agent_version"`
	Hypervisor   Hypervisor     `json:"hypervisor"`
	Templates    []NodeTemplate `json:"templates,omitempty"`
	USBDevices   []USBDevice    `json:"usb,omitempty"`
	Abilities    []string       `json:"abilities,omitempty"`    // of the hypervisor, sorted
	VLANs        []int          `json:"vlans,omitempty"`        // ids that guests can be in, rising
	PeerAddress  string         `json:"peer_address,omitempty"` // where other nodes read versions; "": nowhere
	PeerKey      string         `json:"peer_key,omitempty"`     // hex SHA-256 of its certificate
}

// Hypervisor describes a node's driver.
type Hypervisor struct {
	Driver         string `json:"driver"` // qemu, sim, anka, tart
	Version        string `json:"version"`
	Accelerator    string `json:"accelerator"` // kvm, tcg, hvf, sim
	Machine        string `json:"machine,omitempty"`
	CPUModel       string `json:"cpu_model,omitempty"`
	HostCPU        string `json:"host_cpu,omitempty"` // what a saved state depends on of the host's own CPU
	LicenseKind    string `json:"license,omitempty"`  // its kind
	LicenseExpires string `json:"expires,omitempty"`  // that of the license: see LicenseExpiresAt
	Problem        string `json:"problem,omitempty"`  // why it starts no VMs, and the remedy; "": it does
}

// expiryLayouts are how hypervisors write when their license ends. One that is a day is
// valid to the end of it.
var expiryLayouts = []struct {
	layout string
	valid  time.Duration
}{
	{time.RFC3339, 0}, {"2006-01-02", 24 * time.Hour}, {"02-Jan-2006", 24 * time.Hour}, {"2-Jan-2006", 24 * time.Hour},
}

// InvalidLicense is the LicenseExpires of a license that is missing or not valid. It is in the past.
const InvalidLicense = "1970-01-01"

// LicenseExpiresAt returns when the license of the hypervisor ends; zero when it does not, or
// that cannot be read.
func (h Hypervisor) LicenseExpiresAt() time.Time {
	for _, form := range expiryLayouts {
		if at, err := time.Parse(form.layout, h.LicenseExpires); err == nil {
			return at.Add(form.valid)
		}
	}
	return time.Time{}
}

// ContactEvent returns the event of a node that is in contact, with its reason, by the license of its
// hypervisor.
func (i *NodeInfo) ContactEvent(now time.Time) (event NodeEvent, reason string) {
	if i.Hypervisor.LicenseExpires == InvalidLicense {
		return LicenseExpired, "its hypervisor has no valid license"
	}
	if ends := i.Hypervisor.LicenseExpiresAt(); !ends.IsZero() && !ends.After(now) {
		return LicenseExpired, "its license expired: " + i.Hypervisor.LicenseExpires
	}
	return NodeContacted, ""
}

// MaxVLAN is the highest id of a VLAN.
const MaxVLAN = 4094

// NodeTemplate is one cached version of a template on a node.
type NodeTemplate struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Tag       string `json:"tag"`
	ContentID string `json:"content_id"`
	Size      int64  `json:"size"` // bytes
}

// USBDevice is a device that a node offers to VMs.
type USBDevice struct {
	Name     string `json:"name"` // claim name, shared by devices of one class
	Location string `json:"location"`
	Busy     bool   `json:"busy"`
}

// NodeEvent moves a node.
type NodeEvent string

// The node events.
const (
	NodeContacted   NodeEvent = "contact"
	NodeTimedOut    NodeEvent = "silence"
	LicenseExpired  NodeEvent = "licence-expired"
	UpdateBegun     NodeEvent = "update-begun"
	UpdateDone      NodeEvent = "update-done"
	FullNoneRunning NodeEvent = "full-and-none-running"
	OneRunning      NodeEvent = "one-running"
	DrainOn         NodeEvent = "drain-on"
	DrainOff        NodeEvent = "drain-off"
)

// NodeEvents lists every node event.
var NodeEvents = []NodeEvent{
	NodeContacted, NodeTimedOut, LicenseExpired, UpdateBegun, UpdateDone,
	FullNoneRunning, OneRunning, DrainOn, DrainOff,
}

// NodeStates lists the stored states of a node. Drain Mode is not among them: it
// is Active with the drain flag, see Node.Shown.
var NodeStates = []NodeState{NodeOffline, NodeInactive, NodeActive, NodeUpdating, NodeUnhealthy}

// nodeTransitions holds the edges that change a state; every other pair keeps it.
var nodeTransitions = map[NodeState]map[NodeEvent]NodeState{
	NodeOffline: {
		NodeContacted: NodeActive, LicenseExpired: NodeInactive, UpdateDone: NodeActive,
	},
	NodeActive: {
		NodeTimedOut: NodeOffline, LicenseExpired: NodeInactive,
		UpdateBegun: NodeUpdating, FullNoneRunning: NodeUnhealthy,
	},
	NodeUnhealthy: {
		NodeTimedOut: NodeOffline, LicenseExpired: NodeInactive,
		UpdateBegun: NodeUpdating, OneRunning: NodeActive,
	},
	NodeUpdating: {
		NodeTimedOut: NodeOffline, UpdateDone: NodeActive, LicenseExpired: NodeInactive,
	},
	NodeInactive: {
		NodeTimedOut: NodeOffline, NodeContacted: NodeActive,
	},
}

// NextNodeState returns the state and the drain flag of a node after an event. An event
// that means nothing in a state changes nothing. NodeContacted stands for a contact
// with a valid license; a contact without one is LicenseExpired.
func NextNodeState(s NodeState, drain bool, e NodeEvent) (NodeState, bool) {
	switch e {
	case DrainOn:
		return s, true
	case DrainOff:
		return s, false
	}
	if to, ok := nodeTransitions[s][e]; ok {
		return to, drain
	}
	return s, drain
}
