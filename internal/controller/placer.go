package controller

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/controller/lockorder"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/store"
)

// placer feeds the scheduler's index with every change of the records and carries out its
// decisions. The usage of a node is not stored: the index sums the instances placed there.
//
// Every replica has the index, to report why a request waits. Only the leader decides: then the
// index misses no placement, since this process alone makes them. It may miss that an instance
// ended, which errs on the safe side. Its state of a node may be outdated, so every placement
// checks that the node's record is still the one in the index.
type placer struct {
	c    *Controller
	wake chan struct{}

	permitting lockorder.Mutex[lockorder.Permits] // held over a change of the permits, before mu

	mu       lockorder.Mutex[lockorder.Placer] // guards what follows
	starters map[string][]string               // node id -> groups of the index that it is in by permits; nil: permits are not in use
	index    *sched.Index
	nodes    map[string]indexedNode
	reign    *record.Term        // nil: another replica places
	found    []placementDecision // decided while another instance was created, and not written yet
}

// indexedNode is a node as it is in the index.
type indexedNode struct {
	record     *farm.Node
	rev        int64
	otherUsage // its instances, what else is on it
}

// otherUsage is the usage of a node that is not by instances.
type otherUsage struct {
	foreign sched.Load // resources that orphaned VMs use
	untold  bool       // the node's inventory is not known yet: it gets no starts
}

func newPlacer(c *Controller) *placer {
	p := &placer{c: c, wake: make(chan struct{}, 1)}
	p.resetLocked()
	return p
}

func (p *placer) resetLocked() {
	p.index, p.nodes, p.found = sched.New(p.c.opts.Scheduler), map[string]indexedNode{}, nil
}

// load fills the index with the existing records.
func (p *placer) load() {
	p.followPermits(p.c.opts.Permits)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loadLocked()
}

// begin lets this replica place. It rebuilds the index: placements that an earlier leader term
// decided and did not write do not count.
func (p *placer) begin(r *record.Term) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reign = r
	p.resetLocked()
	p.loadLocked()
	p.ring()
}

// finish ends the placing of a leader term.
func (p *placer) finish(r *record.Term) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reign == r {
		p.reign = nil
	}
}

func (p *placer) loadLocked() {
	for _, g := range p.c.tables.Groups.All() {
		p.index.SetGroup(*g)
	}
	for id := range p.c.tables.Nodes.All() {
		p.setNodeLocked(id)
	}
	for id := range p.c.tables.Instances.All() {
		p.setInstanceLocked(id)
	}
}

// observe follows the records. It reads them from the tables, which are never behind the events: a
// record in the index must not go back to an older state.
func (p *placer) observe(events []store.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range events {
		switch e.Kind {
		case record.KindNode, record.KindNodeInfo:
			p.setNodeLocked(e.ID)
		case record.KindGroup:
			p.setGroupLocked(e.ID)
		case record.KindInstance:
			p.noteFailureLocked(e)
			p.setInstanceLocked(e.ID)
		}
	}
	p.ring()
}

// touch reads a node again: its usage other than instances has changed.
func (p *placer) touch(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nodes[node].otherUsage != p.c.besideOn(node) {
		p.setNodeLocked(node)
		p.ring()
	}
}

// touchAll reads all nodes again.
func (p *placer) touchAll() {
	for id := range p.c.tables.Nodes.All() {
		p.touch(id)
	}
}

// reconsider updates instances with a VM that became orphaned, or no longer is.
func (p *placer) reconsider(lists ...[]string) {
	for _, ids := range lists {
		if len(ids) == 0 {
			continue
		}
		p.mu.Lock()
		for _, id := range ids {
			p.setInstanceLocked(id)
		}
		p.mu.Unlock()
		p.ring()
	}
}

func (p *placer) ring() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *placer) setNodeLocked(id string) {
	node, rev, ok := p.c.tables.Nodes.Get(id)
	if !ok {
		p.index.RemoveNode(id)
		delete(p.nodes, id)
		return
	}
	info, _, _ := p.c.tables.Infos.Get(id)
	beside := p.c.besideOn(id)
	was := p.nodes[id]
	p.nodes[id] = indexedNode{node, rev, beside}
	to := sched.NewNode(node, info, beside.foreign)
	to.Groups = p.groupsLocked(node)
	if to.Held == "" && beside.untold {
		to.Held = untold
	}
	p.index.SetNode(to)
	if was.rev != rev && len(to.USB) > 0 {
		p.setInstancesLocked(id)
	}
}

// setInstancesLocked updates the instances of a node whose record has changed: a placement that
// assigned a device to one of them has written the node's record with it, see claims, and the index
// must not have the one without the other.
func (p *placer) setInstancesLocked(node string) {
	p.c.store.WaitConsistent()
	for id := range p.c.tables.Instances.Where(record.ByNode, node) {
		p.setInstanceLocked(id)
	}
}

// untold is why a node gets no starts as long as this process does not have its inventory.
const untold = "still to say what it holds"

// besideOn returns the usage of a node that has no record. Shortly after the start of this process,
// a node that has not sent its inventory may have any number of orphaned VMs: it gets no starts
// until it has sent it, or another replica hears it. A node that does neither needs no starts.
func (c *Controller) besideOn(node string) otherUsage {
	foreign, told := c.foreign(node)
	young := c.now().Before(c.settled())
	return otherUsage{foreign, !told && young && !c.ages.hears(node)}
}

// settled returns when a node that should be in contact has been heard, or is Offline.
func (c *Controller) settled() time.Time { return c.started.Add(c.opts.NodeTimeout) }

func (p *placer) setGroupLocked(id string) {
	if g, _, ok := p.c.tables.Groups.Get(id); ok {
		p.index.SetGroup(*g)
	} else {
		p.index.RemoveGroup(id)
	}
}

func (p *placer) setInstanceLocked(id string) {
	inst, _, ok := p.c.tables.Instances.Get(id)
	switch {
	case !ok, inst.Waiting() && p.c.link.strangers.has(id), // an operator has to decide about its VM first
		p.c.MACs.Lacks(inst):
		p.index.RemoveInstance(id)
	default:
		p.index.SetInstance(p.requestLocked(inst))
	}
}

// noteFailureLocked records a failed start in the index: the node is avoided for a while.
func (p *placer) noteFailureLocked(e store.Event) {
	was, _ := e.Old.(*farm.Instance)
	now, _ := e.New.(*farm.Instance)
	if was == nil || now == nil || now.State != farm.Errored || now.NodeID == "" {
		return
	}
	if was.State == farm.Scheduling || was.State == farm.Pulling {
		p.index.StartFailed(now.NodeID, now.Updated)
	}
}

// explain sets the message of pending instances to the reason.
func (p *placer) explain(list []InstanceView) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, whyNoMAC := p.c.now(), p.c.MACs.Reasons()
	for i, l := range list {
		if l.Instance == nil || !l.Waiting() {
			continue
		}
		if reason := p.index.WaitReason(l.ID, now); reason.Name != sched.Unknown {
			list[i].Message = reason.Text
			if l.Instance.Message != "" { // a note that stays until the VM is pulled or started
				list[i].Message += "; " + l.Instance.Message
			}
		} else if p.c.link.strangers.has(l.ID) {
			list[i].Message = undecided
		} else if p.c.MACs.Lacks(l.Instance) {
			list[i].Message = whyNoMAC(l.Instance)
		}
	}
}

// run places after each change, as long as the leader term lasts.
func (p *placer) run(ctx context.Context, r *record.Term) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	settled := time.NewTimer(p.c.settled().Sub(p.c.now()))
	defer settled.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		case <-settled.C:
			p.touchAll()
		}
		for more := true; more && ctx.Err() == nil; {
			more = p.pass(ctx, r)
		}
		p.mu.Lock()
		next := p.index.NextDeadline()
		p.mu.Unlock()
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(max(next.Sub(p.c.now()), 0))
		}
	}
}

// placed returns the record of an instance on its node, under a new claim, with the location of its
// USB device.
func placed(inst *farm.Instance, n *farm.Node, device string, now time.Time) *farm.Instance {
	to, _ := farm.NextInstanceState(inst.State, farm.Placed)
	i := inst.Clone()
	i.State, i.NodeID, i.NodeName, i.Claim, i.Placed, i.Updated = to, n.ID, n.Name, uuid.NewString(), now, now
	i.USB = device
	return i
}
