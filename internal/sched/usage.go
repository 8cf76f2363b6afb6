package sched

import (
	"cmp"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// Load is the capacity of a node that VMs use: their number, virtual CPUs and memory in MiB.
type Load struct {
	VMs      int
	MacOSVMs int // those of VMs that have a macOS guest
	VCPU     int
	MemoryMB int
}

// loadOf returns what one VM uses. One without a size still uses one virtual CPU, so that no node
// accepts infinitely many of them.
func loadOf(vcpu, memoryMB int) Load {
	return Load{VMs: 1, VCPU: max(1, vcpu), MemoryMB: max(0, memoryMB)}
}

// load returns what the VM of the request uses.
func (r *Request) load() Load { return loadOf(r.VCPU, r.MemoryMB).ofGuest(r.MacOS) }

// ofGuest returns the load of a VM whose guest is macOS or another.
func (l Load) ofGuest(isMacOS bool) Load {
	if isMacOS {
		l.MacOSVMs = l.VMs
	}
	return l
}

func (l Load) add(o Load) Load {
	return Load{
		VMs: l.VMs + o.VMs, MacOSVMs: l.MacOSVMs + o.MacOSVMs, VCPU: l.VCPU + o.VCPU, MemoryMB: l.MemoryMB + o.MemoryMB,
	}
}

func (l Load) sub(o Load) Load {
	return l.add(Load{VMs: -o.VMs, MacOSVMs: -o.MacOSVMs, VCPU: -o.VCPU, MemoryMB: -o.MemoryMB})
}

// nodeUsage is the usage of one node by instances, including those that Place has assigned to it,
// their pulls and recent failures. It is stored by node ID, so that it is right whether the node or
// its instances become known first.
type nodeUsage struct {
	id           string
	node         *node // nil while the node is unknown
	used         Load
	slots        slotCounts
	usb          map[string]deviceUse    // instance ID -> its USBDevices devices of the node
	pulls        map[string]*runningPull // content id -> its pull
	failedStarts []time.Time             // starts, oldest first
	heapPos      int                     // in Index.failingNodes, -1 when none failed lately
}

// runningPull is a version that a node pulls for instances.
type runningPull struct {
	templateID string
	progress   map[string]int // instance id -> tenths
}

// progressTenths returns how far the pull is.
func (p *runningPull) progressTenths() int {
	most := 0
	for _, t := range p.progress {
		most = max(most, t)
	}
	return most
}

// progressTenths rounds a progress down, so that a pull does not change its node all the time.
func progressTenths(progress float64) int {
	if !(progress > 0) { // or NaN
		return 0
	}
	return int(min(progress, 1) * 10)
}

// The bounds of failed starts: those within the last failureWindow, and at most that many.
const (
	failureWindow      = 5 * time.Minute
	maxCountedFailures = 5
)

func (r *nodeUsage) isEmpty() bool {
	return r.node == nil && r.used == Load{} && len(r.usb) == 0 && len(r.pulls) == 0 && len(r.failedStarts) == 0
}

func (r *nodeUsage) setHeapPos(pos int) { r.heapPos = pos }

// before orders usages by the expiry of their oldest failure.
func (r *nodeUsage) before(o *nodeUsage) bool {
	if c := r.failedStarts[0].Compare(o.failedStarts[0]); c != 0 {
		return c < 0
	}
	return cmp.Less(r.id, o.id)
}

// usageOf returns the usage of a node, which may still be unknown.
func (x *Index) usageOf(id string) *nodeUsage {
	r := x.usages[id]
	if r == nil {
		r = &nodeUsage{id: id, heapPos: -1}
		x.usages[id] = r
	}
	return r
}

// removeIfEmpty removes an empty usage.
func (x *Index) removeIfEmpty(r *nodeUsage) {
	if r.isEmpty() {
		delete(x.usages, r.id)
	}
}

// NodeUsage returns the usage of a node by instances, including those that Place has assigned to it.
// Orphaned VMs are not included.
func (x *Index) NodeUsage(node string) Load {
	if r := x.usages[node]; r != nil {
		return r.used
	}
	return Load{}
}

// addUsage adds an instance to the usage of a node.
func (x *Index) addUsage(r *request, id string) {
	e := x.usageOf(id)
	r.nodeID = id
	e.used = e.used.add(r.load())
	e.slots.add(r.slot, 1)
	if h := r.deviceUse(); h != (deviceUse{}) {
		if e.usb == nil {
			e.usb = map[string]deviceUse{}
		}
		e.usb[r.ID] = h
	}
	x.changeCount++
	if e.node == nil {
		return
	}
	e.node.recompute()
	if x.options.BinPack { // only then a fuller node is a better one
		x.offerNode(e.node)
	}
}

// removeUsage removes an instance from the usage of its node.
func (x *Index) removeUsage(r *request) {
	if r.nodeID == "" {
		return
	}
	x.setPull(r, false, 0)
	e := x.usages[r.nodeID]
	e.used = e.used.sub(r.load())
	e.slots.add(r.slot, -1)
	delete(e.usb, r.ID)
	r.nodeID, r.reserved, r.usbLocation, r.slot = "", false, "", farm.SlotUnused
	if e.node != nil {
		e.node.recompute()
		x.offerNode(e.node)
	}
	x.removeIfEmpty(e)
}

// setPull records whether the instance's node pulls its version for it, and the progress.
func (x *Index) setPull(r *request, pulling bool, progress float64) {
	e := x.usages[r.nodeID]
	v := e.pulls[r.ContentID]
	switch {
	case !pulling && !r.pulling:
		return
	case !pulling:
		r.pulling = false
		x.locations.remove(r.ContentID, e.id)
		if delete(v.progress, r.ID); len(v.progress) == 0 {
			delete(e.pulls, r.ContentID)
		}
	default:
		if v == nil {
			v = &runningPull{templateID: r.TemplateID, progress: map[string]int{}}
			if e.pulls == nil {
				e.pulls = map[string]*runningPull{}
			}
			e.pulls[r.ContentID] = v
		}
		to := progressTenths(progress)
		if r.pulling && v.progress[r.ID] == to {
			return
		}
		if !r.pulling {
			r.pulling = true
			x.locations.add(r.ContentID, e.id)
		}
		v.progress[r.ID] = to
	}
	if e.node != nil {
		x.offerNode(e.node)
	}
}

// RecordStartFailure records that a start failed on a node: for some minutes others of the same group are
// preferred to it.
func (x *Index) RecordStartFailure(node string, at time.Time) {
	e := x.usageOf(node)
	i, _ := slices.BinarySearchFunc(e.failedStarts, at, time.Time.Compare)
	e.failedStarts = slices.Insert(e.failedStarts, i, at)
	if len(e.failedStarts) > maxCountedFailures {
		e.failedStarts = slices.Delete(e.failedStarts, 0, 1)
	}
	if e.heapPos < 0 {
		x.failingNodes.push(e)
	} else {
		x.failingNodes.fix(e.heapPos)
	}
	if e.node != nil {
		e.node.recentFailures = len(e.failedStarts)
		x.offerNode(e.node)
	}
}

// resetFailures removes failures that are older than failureWindow.
func (x *Index) resetFailures(now time.Time) {
	for len(x.failingNodes) > 0 {
		e := x.failingNodes[0]
		old := 0
		for old < len(e.failedStarts) && now.Sub(e.failedStarts[old]) >= failureWindow {
			old++
		}
		if old == 0 {
			return
		}
		if old == len(e.failedStarts) {
			x.failingNodes.remove(0)
			e.failedStarts = nil
		} else {
			e.failedStarts = slices.Delete(e.failedStarts, 0, old)
			x.failingNodes.fix(0)
		}
		if e.node != nil {
			e.node.recentFailures = len(e.failedStarts)
			x.offerNode(e.node)
		}
		x.removeIfEmpty(e)
	}
}

// versionLocations records which nodes have a version or pull it: content ID -> node ID -> number
// of reasons.
type versionLocations map[string]map[string]int

func (s versionLocations) add(content, node string) {
	if s[content] == nil {
		s[content] = map[string]int{}
	}
	s[content][node]++
}

func (s versionLocations) remove(content, node string) {
	if s[content][node]--; s[content][node] > 0 {
		return
	}
	if delete(s[content], node); len(s[content]) == 0 {
		delete(s, content)
	}
}
