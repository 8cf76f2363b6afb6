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

	Group     string // group id; "" is any node
	Pinned    string // node id; "" is any node
	Arch      string // amd64, arm64 or "" for any
	USB       string // claim name or location of a USB device; "" is none
	Device    string // location of the device that it has; "" while it waits
	Next      string // location of the device that a restart will assign to it; "" is none
	Bridge    bool   // its guest joins a network of the node
	VLAN      int    // and that network is a VLAN; 0 is none
	VCPU      int
	MemoryMB  int
	Needs     farm.StateRequirements // of the saved state it resumes from; zero: none
	Template  string                 // template id
	ContentID string                 // the version's immutable id
	Size      int64                  // of the version, in bytes; 0 is unknown
}

// Instance is an instance as the scheduler sees it: it is pending, or it uses capacity of a node.
type Instance struct {
	Request
	Node     string  // ID; "" is pending
	Holds    bool    // it counts against the capacity of Node
	Ended    bool    // it has no node and is not pending
	Pulling  bool    // Node pulls the version for it
	Progress float64 // 0..1, of the pull
}

// NewInstance makes the Instance of a record.
func NewInstance(i *farm.Instance) Instance {
	out := Instance{
		Request: Request{
			ID: i.ID, Created: i.Created, Priority: i.Options.Priority, Owner: i.Owner,
			Group: i.GroupID, Pinned: i.Options.PinnedNode, Arch: i.Template.Arch,
			USB: i.Options.USBDevice, Device: i.USB, Next: nextDevice(i),
			VCPU: i.VCPU(), MemoryMB: i.VRAM(), Needs: i.Template.Needs,
			Template: i.Template.ID, ContentID: i.Template.ContentID, Size: i.Template.Size,
		},
		Node: i.NodeID, Holds: i.UsesCapacity(), Ended: i.NodeID == "" && !i.Waiting(),
		Pulling: i.State == farm.Pulling, Progress: i.Progress,
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
}

func (d constraints) load() Load { return loadOf(d.vcpu, d.memoryMB) }

// version is what decides the locality part of a score.
type version struct {
	template, content string
	size              int64
}

func (r *Request) demand() constraints {
	return constraints{r.Group, r.Pinned, r.Arch, r.USB, r.VCPU, r.MemoryMB, r.Needs, r.Bridge, r.VLAN}
}

func (r *Request) version() version { return version{r.Template, r.ContentID, r.Size} }

// request is an instance in the index: pending in a queue, or using capacity of a node.
type request struct {
	Request
	rank     int64         // see agingRank
	queue    *ownerQueue   // nil when it is not pending
	class    *versionClass // of the request group in which it is pending
	pos      int           // in queue.waiting
	node     string        // whose capacity it uses; "" none
	pulling  bool          // the node pulls the version for it
	reserved bool          // Place assigned it, and no record of it came yet
	device   string        // and assigned this USB device
}

// hold returns which of its node's USB devices the request uses.
func (r *request) hold() deviceHold {
	return deviceHold{want: r.USB, device: cmp.Or(r.Device, r.device), next: r.Next}
}

// pool returns the request group in which the request is pending.
func (r *request) pool() *requestGroup { return r.class.pool }

func (r *request) moved(pos int) { r.pos = pos }

func (r *request) before(o *request) bool {
	if r.rank != o.rank {
		return r.rank < o.rank
	}
	if c := r.Created.Compare(o.Created); c != 0 {
		return c < 0
	}
	return cmp.Less(r.ID, o.ID)
}
