package controller

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/store"
)

// placer feeds the scheduler's index with every change of the records and carries
// out what it decides. One goroutine places; readers ask for reasons.
type placer struct {
	c    *Controller
	wake chan struct{}

	mu      sync.Mutex // guards what follows
	index   *sched.Index
	foreign map[string]int // node id -> VMs that nobody owns, as the index knows
	reign   *reign         // nil: another replica places
}

func newPlacer(c *Controller) *placer {
	return &placer{
		c: c, wake: make(chan struct{}, 1), index: sched.New(sched.Options{}), foreign: map[string]int{},
	}
}

// load fills the index with the records there are.
func (p *placer) load() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loadLocked()
}

// begin lets this replica place. The index is made anew: what an earlier reign had
// decided and not written does not count.
func (p *placer) begin(r *reign) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.index, p.foreign, p.reign = sched.New(sched.Options{}), map[string]int{}, r
	p.loadLocked()
	p.ring()
}

// finish ends what begin began.
func (p *placer) finish(r *reign) {
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
	for id, inst := range p.c.tables.Instances.All() {
		p.setInstanceLocked(id, inst)
	}
}

// observe follows the records.
func (p *placer) observe(events []store.Event) {
	p.mu.Lock()
	for _, e := range events {
		switch e.Kind {
		case kindNode, kindInfo:
			p.setNodeLocked(e.ID)
		case kindGroup:
			if g, ok := e.New.(*farm.Group); ok {
				p.index.SetGroup(*g)
			} else {
				p.index.RemoveGroup(e.ID)
			}
		case kindInstance:
			inst, _ := e.New.(*farm.Instance)
			p.setInstanceLocked(e.ID, inst)
		}
	}
	p.mu.Unlock()
	p.ring()
}

// touch looks at a node again: what it holds beside its allocations changed.
func (p *placer) touch(node string) {
	p.mu.Lock()
	if p.foreign[node] != p.c.link.foreign(node) {
		p.setNodeLocked(node)
	}
	p.mu.Unlock()
	p.ring()
}

func (p *placer) ring() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *placer) setNodeLocked(id string) {
	node, _, ok := p.c.tables.Nodes.Get(id)
	if !ok {
		p.index.RemoveNode(id)
		delete(p.foreign, id)
		return
	}
	info, _, _ := p.c.tables.Infos.Get(id)
	p.foreign[id] = p.c.link.foreign(id)
	p.index.SetNode(sched.NodeOf(node, info, sched.Load{VMs: p.foreign[id], VCPU: p.foreign[id]}))
}

func (p *placer) setInstanceLocked(id string, inst *farm.Instance) {
	if inst == nil {
		p.index.RemoveInstance(id)
		return
	}
	p.index.SetInstance(sched.InstanceOf(inst))
}

// explain gives waiting instances the reason for that as message.
func (p *placer) explain(list []Listed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.c.now()
	for i, l := range list {
		if l.Instance == nil || !l.Waiting() {
			continue
		}
		if reason := p.index.Why(l.ID, now); reason.Name != sched.Unknown {
			list[i].Message = reason.Text
		}
	}
}

// placeBatch is how many requests one pass places.
const placeBatch = 1000

// run places whenever something changed, as long as the reign lasts.
func (p *placer) run(ctx context.Context, r *reign) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		for p.pass(ctx, r) {
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// pass places one batch and says whether there may be more.
func (p *placer) pass(ctx context.Context, r *reign) bool {
	p.mu.Lock()
	found := p.index.Place(p.c.now(), placeBatch)
	p.mu.Unlock()
	byNode := map[string][]string{}
	for _, a := range found {
		byNode[a.NodeID] = append(byNode[a.NodeID], a.RequestID)
	}
	var wg sync.WaitGroup
	for node, ids := range byNode {
		wg.Go(func() { p.assignAll(ctx, r, node, ids) })
	}
	wg.Wait()
	return len(found) == placeBatch
}

// assignAll writes the placements on one node, as many at a time as fit.
func (p *placer) assignAll(ctx context.Context, r *reign, node string, ids []string) {
	for len(ids) > 0 {
		done, err := p.assign(ctx, r, node, ids)
		if err != nil {
			p.giveBack(ctx, node, ids, err)
			return
		}
		ids = ids[done:]
	}
}

// giveBack lets requests wait again that could not be placed.
func (p *placer) giveBack(ctx context.Context, node string, ids []string, err error) {
	if !errors.Is(err, store.ErrConflict) {
		p.c.log.WarnContext(ctx, "could not place instances", "node", node, "count", len(ids), "error", err)
	}
	p.mu.Lock()
	for _, id := range ids {
		p.index.Unplace(id)
		inst, _, _ := p.c.tables.Instances.Get(id)
		p.setInstanceLocked(id, inst)
	}
	p.setNodeLocked(node)
	p.mu.Unlock()
	if errors.Is(err, store.ErrConflict) {
		p.ring()
	} else {
		time.AfterFunc(time.Second, p.ring)
	}
}

// assign writes placements on one node: the node's allocations and the instances
// in one transaction, each as it was when it was decided on. It takes as many of ids
// as fit and says how many.
func (p *placer) assign(ctx context.Context, r *reign, id string, ids []string) (done int, err error) {
	node, rev, ok := p.c.tables.Nodes.Get(id)
	if !ok || !node.TakesStarts() {
		return 0, &store.ConflictError{Keys: []string{id}}
	}
	n := node.Clone()
	now := p.c.now()
	t := txn{bytes: store.Put(p.c.tables.Nodes, id, n, store.IfRev(rev)).Size()}
	for _, iid := range ids {
		inst, irev, ok := p.c.tables.Instances.Get(iid)
		if ok && inst.State == farm.Scheduling && inst.NodeID == "" {
			i := placed(inst, n, now)
			if !t.add(store.Put(p.c.tables.Instances, iid, i, store.IfRev(irev))) {
				break
			}
			n.Allocs[iid] = farm.Alloc{VCPU: i.VCPU(), MemoryMB: i.VRAM()}
			t.bytes += allocBytes
		}
		done++
	}
	if len(t.changes) == 0 {
		return done, nil
	}
	if n.Mode == farm.ByNumber && len(n.Allocs) > n.Capacity {
		return 0, &store.ConflictError{Keys: []string{id}}
	}
	t.changes = append(t.changes, store.Put(p.c.tables.Nodes, id, n, store.IfRev(rev)))
	return done, r.Commit(ctx, t.changes...)
}

// allocBytes is about what one more allocation adds to a node's record.
const allocBytes = 80

// placed gives the record of an instance on its node, under a claim of its own.
func placed(inst *farm.Instance, n *farm.Node, now time.Time) *farm.Instance {
	to, _ := farm.NextInstance(inst.State, farm.Placed)
	i := inst.Clone()
	i.State, i.NodeID, i.NodeName, i.Claim, i.Placed, i.Updated = to, n.ID, n.Name, uuid.NewString(), now, now
	return i
}
