package sched

import (
	"cmp"
	"slices"
	"time"
)

// Load is the capacity of a node that VMs use: their number, virtual CPUs and memory in MiB.
type Load struct {
	VMs      int
	VCPU     int
	MemoryMB int
}

// loadOf returns what one VM uses. One without a size still uses one virtual CPU, so that no node
// accepts infinitely many of them.
func loadOf(vcpu, memoryMB int) Load {
	return Load{VMs: 1, VCPU: max(1, vcpu), MemoryMB: max(0, memoryMB)}
}

func (l Load) plus(o Load) Load {
	return Load{VMs: l.VMs + o.VMs, VCPU: l.VCPU + o.VCPU, MemoryMB: l.MemoryMB + o.MemoryMB}
}

func (l Load) minus(o Load) Load {
	return Load{VMs: l.VMs - o.VMs, VCPU: l.VCPU - o.VCPU, MemoryMB: l.MemoryMB - o.MemoryMB}
}

// nodeUsage is the usage of one node by instances, including those that Place has assigned to it,
// their pulls and recent failures. It is stored by node ID, so that it is right whether the node or
// its instances become known first.
type nodeUsage struct {
	id     string
	node   *node // nil while the node is unknown
	taken  Load
	usb    map[string]deviceHold // instance ID -> its USB devices of the node
	pulls  map[string]*pull      // content id -> its pull
	failed []time.Time           // starts, oldest first
	pos    int                   // in Index.failing, -1 when none failed lately
}

// pull is a version that a node pulls for instances.
type pull struct {
	template string
	progress map[string]int // instance id -> tenths
}

// tenths returns how far the pull is.
func (p *pull) tenths() int {
	most := 0
	for _, t := range p.progress {
		most = max(most, t)
	}
	return most
}

// tenths rounds a progress down, so that a pull does not change its node all the time.
func tenths(progress float64) int {
	if !(progress > 0) { // or NaN
		return 0
	}
	return int(min(progress, 1) * 10)
}

// The bounds of failed starts: those within the last failureTime, and at most that many.
const (
	failureTime = 5 * time.Minute
	maxFailures = 5
)

func (r *nodeUsage) empty() bool {
	return r.node == nil && r.taken == Load{} && len(r.usb) == 0 && len(r.pulls) == 0 && len(r.failed) == 0
}

func (r *nodeUsage) moved(pos int) { r.pos = pos }

// before orders usages by the expiry of their oldest failure.
func (r *nodeUsage) before(o *nodeUsage) bool {
	if c := r.failed[0].Compare(o.failed[0]); c != 0 {
		return c < 0
	}
	return cmp.Less(r.id, o.id)
}

// room returns the usage of a node, which may still be unknown.
func (x *Index) room(id string) *nodeUsage {
	r := x.rooms[id]
	if r == nil {
		r = &nodeUsage{id: id, pos: -1}
		x.rooms[id] = r
	}
	return r
}

// tidy removes an empty usage.
func (x *Index) tidy(r *nodeUsage) {
	if r.empty() {
		delete(x.rooms, r.id)
	}
}

// UsedBy returns the usage of a node by instances, including those that Place has assigned to it.
// Orphaned VMs are not included.
func (x *Index) UsedBy(node string) Load {
	if r := x.rooms[node]; r != nil {
		return r.taken
	}
	return Load{}
}

// occupy adds an instance to the usage of a node.
func (x *Index) occupy(r *request, id string) {
	e := x.room(id)
	r.node = id
	e.taken = e.taken.plus(loadOf(r.VCPU, r.MemoryMB))
	if h := r.hold(); h != (deviceHold{}) {
		if e.usb == nil {
			e.usb = map[string]deviceHold{}
		}
		e.usb[r.ID] = h
	}
	x.changes++
	if e.node == nil {
		return
	}
	e.node.recount()
	if x.options.Fit { // only then a fuller node is a better one
		x.changed(e.node)
	}
}

// vacate removes an instance from the usage of its node.
func (x *Index) vacate(r *request) {
	if r.node == "" {
		return
	}
	x.pull(r, false, 0)
	e := x.rooms[r.node]
	e.taken = e.taken.minus(loadOf(r.VCPU, r.MemoryMB))
	delete(e.usb, r.ID)
	r.node, r.reserved, r.device = "", false, ""
	if e.node != nil {
		e.node.recount()
		x.changed(e.node)
	}
	x.tidy(e)
}

// pull records whether the instance's node pulls its version for it, and the progress.
func (x *Index) pull(r *request, pulling bool, progress float64) {
	e := x.rooms[r.node]
	v := e.pulls[r.ContentID]
	switch {
	case !pulling && !r.pulling:
		return
	case !pulling:
		r.pulling = false
		x.sources.drop(r.ContentID, e.id)
		if delete(v.progress, r.ID); len(v.progress) == 0 {
			delete(e.pulls, r.ContentID)
		}
	default:
		if v == nil {
			v = &pull{template: r.Template, progress: map[string]int{}}
			if e.pulls == nil {
				e.pulls = map[string]*pull{}
			}
			e.pulls[r.ContentID] = v
		}
		to := tenths(progress)
		if r.pulling && v.progress[r.ID] == to {
			return
		}
		if !r.pulling {
			r.pulling = true
			x.sources.add(r.ContentID, e.id)
		}
		v.progress[r.ID] = to
	}
	if e.node != nil {
		x.changed(e.node)
	}
}

// StartFailed records that a start failed on a node: for some minutes others of the same group are
// preferred to it.
func (x *Index) StartFailed(node string, at time.Time) {
	e := x.room(node)
	i, _ := slices.BinarySearchFunc(e.failed, at, time.Time.Compare)
	e.failed = slices.Insert(e.failed, i, at)
	if len(e.failed) > maxFailures {
		e.failed = slices.Delete(e.failed, 0, 1)
	}
	if e.pos < 0 {
		x.failing.push(e)
	} else {
		x.failing.fix(e.pos)
	}
	if e.node != nil {
		e.node.failures = len(e.failed)
		x.changed(e.node)
	}
}

// resetFailures removes failures that are older than failureTime.
func (x *Index) resetFailures(now time.Time) {
	for len(x.failing) > 0 {
		e := x.failing[0]
		old := 0
		for old < len(e.failed) && now.Sub(e.failed[old]) >= failureTime {
			old++
		}
		if old == 0 {
			return
		}
		if old == len(e.failed) {
			x.failing.remove(0)
			e.failed = nil
		} else {
			e.failed = slices.Delete(e.failed, 0, old)
			x.failing.fix(0)
		}
		if e.node != nil {
			e.node.failures = len(e.failed)
			x.changed(e.node)
		}
		x.tidy(e)
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

func (s versionLocations) drop(content, node string) {
	if s[content][node]--; s[content][node] > 0 {
		return
	}
	if delete(s[content], node); len(s[content]) == 0 {
		delete(s, content)
	}
}
