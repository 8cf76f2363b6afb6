package sched

import (
	"cmp"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// The bounds of a priority; a value outside is moved to the nearer one.
const (
	mostUrgent  = 1
	leastUrgent = 10000
)

// Request is an instance that waits for a node.
type Request struct {
	ID       string
	Created  time.Time
	Priority int // 1..10000, lower is more urgent

	Owner string // whose it is, for fairness

	Group     string // group id; "" is any node
	Pinned    string // node id; "" is any node
	Arch      string // amd64, arm64 or "" for any
	USB       string // claim name or location of a USB device; "" is none
	VCPU      int
	MemoryMB  int
	Needs     farm.Needs // of the saved state it goes on from; zero asks nothing
	Template  string     // template id
	ContentID string     // the version's immutable id
	Size      int64      // of the version, in bytes; 0 is unknown
}

// Instance is an instance as far as the scheduler cares: it waits for a node, or
// it takes room on one.
type Instance struct {
	Request
	Node     string  // id; "" waits
	Holds    bool    // it counts against the capacity of Node
	Ended    bool    // it has no node and waits for none
	Pulling  bool    // Node pulls the version for it
	Progress float64 // 0..1, of the pull
}

// InstanceOf makes the Instance of a record.
func InstanceOf(i *farm.Instance) Instance {
	return Instance{
		Request: Request{
			ID: i.ID, Created: i.Created, Priority: i.Options.Priority, Owner: i.Owner,
			Group: i.GroupID, Pinned: i.Options.PinnedNode, Arch: i.Template.Arch,
			USB: i.Options.USBDevice, VCPU: i.VCPU(), MemoryMB: i.VRAM(), Needs: i.Template.Needs,
			Template: i.Template.ID, ContentID: i.Template.ContentID, Size: i.Template.Size,
		},
		Node: i.NodeID, Holds: i.HoldsSlot(), Ended: i.NodeID == "" && !i.Waiting(),
		Pulling: i.State == farm.Pulling, Progress: i.Progress,
	}
}

// demand is what decides feasibility: requests with equal demands fit the same nodes.
type demand struct {
	group, pinned, arch, usb string
	vcpu, memoryMB           int
	needs                    farm.Needs
}

func (d demand) load() Load { return loadOf(d.vcpu, d.memoryMB) }

// wants says whether a device is one that the demand asks for.
func (d demand) wants(dev farm.USBDevice) bool { return dev.Name == d.usb || dev.Location == d.usb }

// version is what decides the locality part of a score.
type version struct{ template, content string }

func (r *Request) demand() demand {
	return demand{r.Group, r.Pinned, r.Arch, r.USB, r.VCPU, r.MemoryMB, r.Needs}
}

func (r *Request) version() version { return version{r.Template, r.ContentID} }

// request is an instance in the index: waiting in a pool, or with room on a node.
type request struct {
	Request
	rank     int64  // see ranker
	pool     *pool  // nil when it does not wait
	pos      int    // in pool.queue
	node     string // where it takes room; "" nowhere
	reserved bool   // Place assigned it, and no record of it came yet
}

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

// ranker turns a priority and a time of creation into one number that never
// changes. The effective priority is priority - rate*(now - created); since now
// and the rate are the same for all, its order is that of created + priority/rate.
// So ageing costs nothing: the queue is never sorted again.
type ranker struct{ microsPerPoint int64 }

const (
	defaultAgePerSecond = 1000.0 / 1800 // a default priority is worth 30 minutes
	maxMicrosPerPoint   = 1e13          // keeps the least urgent rank inside an int64
)

func newRanker(agePerSecond float64) ranker {
	if !(agePerSecond > 0) {
		agePerSecond = defaultAgePerSecond
	}
	return ranker{int64(min(max(1, 1e6/agePerSecond), maxMicrosPerPoint))}
}

func (k ranker) rank(r *Request) int64 {
	points := int64(min(max(r.Priority, mostUrgent), leastUrgent))
	return r.Created.UnixMicro() + points*k.microsPerPoint
}
