package sched

import (
	"cmp"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// Request is a pending instance.
type Request struct {
	ID       string
	Created  time.Time
	Priority int // 1..10000, lower is more urgent

	Owner string // for fairness

	GroupID         string // group id; "" is any node
	PinnedNodeID    string // node id; "" is any node
	Arch            string // amd64, arm64 or "" for any
	MacOS           bool   // its guest is macOS
	Abilities       farm.AbilitySet
	USB             string // claim name or location of a USBDevices device; "" is none
	USBLocation     string // location of the device that it has; "" while it waits
	NextUSBLocation string // location of the device that a restart will assign to it; "" is none
	Bridge          bool   // its guest joins a network of the node
	VLAN            int    // and that network is a VLAN; 0 is none
	VCPU            int
	MemoryMB        int
	StateNeeds      farm.StateRequirements // of the saved state it resumes from; zero: none
	TemplateID      string                 // template id
	ContentID       string                 // the version's immutable id
	VersionBytes    int64                  // of the version, in bytes; 0 is unknown
}

// Instance is an instance as the scheduler sees it: it is pending, or it uses capacity of a node.
type Instance struct {
	Request
	NodeID       string // ID; "" is pending
	UsesCapacity bool   // it counts against the capacity of Node
	Slot         farm.SlotUse
	Ended        bool    // it has no node and is not pending
	Pulling      bool    // Node pulls the version for it
	Progress     float64 // 0..1, of the pull
	PlacedAt     time.Time
}

// NewInstance makes the Instance of a record.
func NewInstance(i *farm.Instance) Instance {
	out := Instance{
		Request: Request{
			ID: i.ID, Created: i.Created, Priority: i.Options.Priority, Owner: i.Owner,
			GroupID: i.GroupID, PinnedNodeID: i.Options.PinnedNode, Arch: i.Template.Arch,
			USB: i.Options.USBDevice, USBLocation: i.USBLocation, NextUSBLocation: nextDevice(i),
			VCPU: i.GuestCPUs(), MemoryMB: i.GuestMemoryMB(), StateNeeds: i.Template.Needs,
			MacOS: i.Template.OS == farm.OSMacOS, Abilities: i.RequestedAbilities(),
			TemplateID: i.Template.ID, ContentID: i.Template.ContentID, VersionBytes: i.Template.Size,
		},
		NodeID: i.NodeID, UsesCapacity: i.UsesCapacity(), Slot: i.SlotUse(),
		Ended:   i.NodeID == "" && !i.AwaitsPlacement(),
		Pulling: i.State == farm.Pulling, Progress: i.PullProgress, PlacedAt: i.Placed,
	}
	out.Bridge = i.NetworkMode() == farm.NetworkBridge
	if vlan := i.VLAN(); vlan != "" {
		out.VLAN, _ = strconv.Atoi(vlan) // validated on creation
	}
	return out
}

// nextDevice returns the device that a restart in progress assigns to an instance.
func nextDevice(i *farm.Instance) string {
	if i.Task == nil || i.Task.Restart == nil {
		return ""
	}
	return i.Task.Restart.Device
}

// constraints is what decides feasibility: requests with equal constraints fit the same nodes.
type constraints struct {
	group, pinned, arch, usb string
	vcpu, memoryMB           int
	needs                    farm.StateRequirements
	bridge                   bool
	vlan                     int
	macOS                    bool
	abilities                farm.AbilitySet
}

func (d constraints) vmLoad() Load { return loadOf(d.vcpu, d.memoryMB).ofGuest(d.macOS) }

// version is what decides the locality part of a score.
type version struct {
	templateID, contentID string
	bytes                 int64
}

func (r *Request) constraints() constraints {
	return constraints{
		r.GroupID, r.PinnedNodeID, r.Arch, r.USB, r.VCPU, r.MemoryMB, r.StateNeeds, r.Bridge, r.VLAN, r.MacOS,
		r.Abilities,
	}
}

func (r *Request) version() version { return version{r.TemplateID, r.ContentID, r.VersionBytes} }

// request is an instance in the index: pending in a queue, or using capacity of a node.
type request struct {
	Request
	rank        int64         // see agingRank
	queue       *ownerQueue   // nil when it is not pending
	class       *versionClass // of the request group in which it is pending
	heapPos     int           // in queue.waiting
	nodeID      string        // whose capacity it uses; "" none
	slot        farm.SlotUse  // what it uses the capacity for
	pulling     bool          // the node pulls the version for it
	reserved    bool          // Place assigned it, and no record of it came yet
	usbLocation string        // and assigned this USBDevices device
}

// deviceUse returns which of its node's USBDevices devices the request uses.
func (r *request) deviceUse() deviceUse {
	return deviceUse{requested: r.USB, assigned: cmp.Or(r.USBLocation, r.usbLocation), nextAssigned: r.NextUSBLocation}
}

// requestGroup returns the request group in which the request is pending.
func (r *request) requestGroup() *requestGroup { return r.class.group }

func (r *request) setHeapPos(pos int) { r.heapPos = pos }

func (r *request) before(o *request) bool {
	if r.rank != o.rank {
		return r.rank < o.rank
	}
	if c := r.Created.Compare(o.Created); c != 0 {
		return c < 0
	}
	return cmp.Less(r.ID, o.ID)
}
