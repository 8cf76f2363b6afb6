package placement

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/controller/lockorder"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/metric"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/store"
)

// Options configures a Placer.
type Options struct {
	Scheduler sched.Options
	Permits   Policy // nil: every node is open to all callers
	Blocker   Blocker
	// Others returns the usage of a node that is not by instances.
	Others  func(node string) OtherUsage
	Settled time.Time // when Others may change without a call of Touch

	// AssignMAC returns the changes that assign the MAC address of a new instance to it.
	AssignMAC func(inst *farm.Instance) []store.Change
	// Terminate ends an instance of a creation that has failed.
	Terminate func(ctx context.Context, w store.Writer, id string) error
	// TerminateClaimed is Terminate for one that was to claim a standby, if it has that claim; else farm.CodeNotFound.
	TerminateClaimed func(ctx context.Context, w store.Writer, id, claim string) error
	Stopped          <-chan struct{} // is closed when the process ends
}

// Blocker keeps instances from the scheduler.
type Blocker interface {
	// Blocked reports whether an instance cannot be placed yet, whatever the nodes have.
	Blocked(i *farm.Instance) bool
	// Reasons returns a function that returns why a blocked instance waits. What is the same for all
	// instances is computed one time.
	Reasons() func(i *farm.Instance) string
}

// OtherUsage is the usage of a node that is not by instances.
type OtherUsage struct {
	Orphans    sched.Load // resources that orphaned VMs use
	Unreported bool       // the node's inventory is not known yet: it gets no starts
}

// Placer feeds the scheduler's index with every change of the records and carries out its
// decisions. The usage of a node is not stored: the index sums the instances placed there.
//
// Every replica has the index, to report why a request waits. Only the leader decides: then the
// index misses no placement, since this process alone makes them. It may miss that an instance
// ended, which errs on the safe side. Its state of a node may be outdated, so every placement
// checks that the node's record is still the one in the index.
type Placer struct {
	db   record.DB
	o    Options
	wake chan struct{} // has a value when there may be something to place

	rounds *metric.Histogram

	permitting lockorder.Mutex[lockorder.Permits] // held over a change of the permits, before mu

	mu lockorder.Mutex[lockorder.Placer] // guards the fields below
	// node id -> groups of the index that it is in by permits; nil: permits are not in use
	starters map[string][]string
	index    *sched.Index
	nodes    map[string]indexedNode
	term     *record.Term // nil: another replica places
	found    []Decision   // decided while another instance was created, and not written yet
}

// indexedNode is a node as it is in the index.
type indexedNode struct {
	record     *farm.Node
	rev        int64
	OtherUsage // besides its instances
}

// New returns a placer with an empty index.
func New(db record.DB, o Options) *Placer {
	p := &Placer{db: db, o: o, wake: make(chan struct{}, 1), rounds: metric.NewHistogram(metric.Short)}
	p.resetLocked()
	return p
}

// Families returns the metrics of the scheduler.
func (p *Placer) Families() []metric.Family {
	return []metric.Family{
		metric.HistogramFamily("buildyard_scheduler_round_seconds",
			"Duration of a scheduler round, including its writes", p.rounds),
	}
}

func (p *Placer) resetLocked() {
	p.index, p.nodes, p.found = sched.New(p.o.Scheduler), map[string]indexedNode{}, nil
}

// Load fills the index with the existing records.
func (p *Placer) Load() {
	p.followPermits(p.o.Permits)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loadLocked()
}

// Begin lets this replica place. It rebuilds the index: placements that an earlier leader term
// decided and did not write do not count.
func (p *Placer) Begin(term *record.Term) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.term = term
	p.resetLocked()
	p.loadLocked()
	p.Wake()
}

// Finish ends the placing of a leader term.
func (p *Placer) Finish(term *record.Term) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term == term {
		p.term = nil
	}
}

func (p *Placer) loadLocked() {
	for _, g := range p.db.Tables.Groups.All() {
		p.index.SetGroup(*g)
	}
	for id := range p.db.Tables.Nodes.All() {
		p.setNodeLocked(id)
	}
	for id := range p.db.Tables.Instances.All() {
		p.setInstanceLocked(id)
	}
}

// Observe follows the records. It reads them from the tables, which are never behind the events: a
// record in the index must not go back to an older state.
func (p *Placer) Observe(events []store.Event) {
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
	p.Wake()
}

// Touch reads a node again: its usage other than instances has changed.
func (p *Placer) Touch(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nodes[node].OtherUsage != p.o.Others(node) {
		p.setNodeLocked(node)
		p.Wake()
	}
}

// TouchAll reads all nodes again.
func (p *Placer) TouchAll() {
	for id := range p.db.Tables.Nodes.All() {
		p.Touch(id)
	}
}

// Reconsider updates instances with a VM that became orphaned, or no longer is.
func (p *Placer) Reconsider(lists ...[]string) {
	for _, ids := range lists {
		if len(ids) == 0 {
			continue
		}
		p.mu.Lock()
		for _, id := range ids {
			p.setInstanceLocked(id)
		}
		p.mu.Unlock()
		p.Wake()
	}
}

// Wake lets the placer look for placements.
func (p *Placer) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Placer) setNodeLocked(id string) {
	node, rev, ok := p.db.Tables.Nodes.Get(id)
	if !ok {
		p.index.RemoveNode(id)
		delete(p.nodes, id)
		return
	}
	info, _, _ := p.db.Tables.Infos.Get(id)
	others := p.o.Others(id)
	was := p.nodes[id]
	p.nodes[id] = indexedNode{node, rev, others}
	to := sched.NewNode(node, info, others.Orphans)
	to.Groups = p.groupsLocked(node)
	if to.Unschedulable == "" && others.Unreported {
		to.Unschedulable = notReported
	}
	p.index.SetNode(to)
	if was.rev != rev && len(to.USBDevices) > 0 {
		p.setInstancesLocked(id)
	}
}

// setInstancesLocked updates the instances of a node whose record has changed: a placement that
// assigned a device to one of them has written the node's record with it, see claims, and the index
// must not have the one without the other.
func (p *Placer) setInstancesLocked(node string) {
	p.db.Store.WaitConsistent()
	for id := range p.db.Tables.Instances.Where(record.ByNode, node) {
		p.setInstanceLocked(id)
	}
}

// notReported is why a node gets no starts as long as this process does not have its inventory.
const notReported = "has not reported its inventory yet"

func (p *Placer) setGroupLocked(id string) {
	if g, _, ok := p.db.Tables.Groups.Get(id); ok {
		p.index.SetGroup(*g)
	} else {
		p.index.RemoveGroup(id)
	}
}

func (p *Placer) setInstanceLocked(id string) {
	inst, _, ok := p.db.Tables.Instances.Get(id)
	switch {
	case !ok, p.o.Blocker.Blocked(inst):
		p.index.RemoveInstance(id)
	default:
		p.index.SetInstance(p.requestLocked(inst))
	}
}

// noteFailureLocked records a failed start in the index: the node is avoided for a while.
func (p *Placer) noteFailureLocked(e store.Event) {
	was, _ := e.Old.(*farm.Instance)
	now, _ := e.New.(*farm.Instance)
	if was == nil || now == nil || now.State != farm.Errored || now.NodeID == "" {
		return
	}
	if was.State == farm.Scheduling || was.State == farm.Pulling {
		p.index.RecordStartFailure(now.NodeID, now.Updated)
	}
}

// Run places after each change, as long as the leader term lasts.
func (p *Placer) Run(ctx context.Context, term *record.Term) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	settled := time.NewTimer(p.o.Settled.Sub(p.db.Now()))
	defer settled.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		case <-settled.C:
			p.TouchAll()
		}
		for more := true; more && ctx.Err() == nil; {
			more = p.pass(ctx, term)
		}
		p.mu.Lock()
		next := p.index.NextDeadline()
		p.mu.Unlock()
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(max(next.Sub(p.db.Now()), 0))
		}
	}
}

// placed returns the record of an instance on its node, under a new claim, with the location of its
// USB device.
func placed(inst *farm.Instance, n *farm.Node, device string, now time.Time) *farm.Instance {
	to, _ := farm.NextInstanceState(inst.State, farm.Placed)
	i := inst.Clone()
	i.State, i.NodeID, i.NodeName, i.Claim, i.Placed, i.Updated = to, n.ID, n.Name, uuid.NewString(), now, now
	i.USBLocation = device
	return i
}

// WaitReasons returns why each of some pending instances waits; "" for another instance, or where the
// record's own message says why.
func (p *Placer) WaitReasons(list []*farm.Instance) []string {
	out := make([]string, len(list))
	p.mu.Lock()
	defer p.mu.Unlock()
	now, blocked := p.db.Now(), sync.OnceValue(p.o.Blocker.Reasons)
	for i, inst := range list {
		if inst == nil || !inst.AwaitsPlacement() {
			continue
		}
		if reason := p.index.PendingReason(inst.ID, now); reason.Name != sched.ReasonUnknown {
			out[i] = reason.Text
			if inst.Message != "" { // a note that stays until the VM is pulled or started
				out[i] += "; " + inst.Message
			}
		} else if p.o.Blocker.Blocked(inst) {
			out[i] = blocked()(inst)
		}
	}
	return out
}

// Explain returns, for a pending instance, why each node can or cannot start it, and its place in the queue;
// nil when it has none.
func (p *Placer) Explain(id string) (nodes []sched.NodeReason, at *sched.QueuePosition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.db.Now()
	if position, ok := p.index.Position(id, now); ok {
		at = &position
	}
	return p.index.Explain(id, now), at
}

// Used returns what the instances on a node use of it, and what else does, as the index has it.
func (p *Placer) Used(node string) (byInstances sched.Load, other OtherUsage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.index.NodeUsage(node), p.nodes[node].OtherUsage
}

// Term returns the leader term in which this replica places; nil when another one does.
func (p *Placer) Term() *record.Term {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.term
}
