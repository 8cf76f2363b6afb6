package placement

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/store"
)

const (
	placeBatch = 1000        // how many requests one pass places
	placeRetry = time.Second // after placements that could not be written
)

// Decision assigns a request to a node, with the node as it was at that time: a later
// change of the node invalidates it.
type Decision struct {
	id, node string
	device   string // location of the USB device that goes with it; "" for none
	at       indexedNode
}

func (p *Placer) decisionLocked(a sched.Assignment) Decision {
	return Decision{a.RequestID, a.NodeID, a.USBLocation, p.nodes[a.NodeID]}
}

func (d Decision) givesDevice() bool { return d.device != "" }

// together orders decisions so that those which one check covers are adjacent.
func together(a, b Decision) int {
	return cmp.Or(strings.Compare(a.node, b.node), cmp.Compare(a.at.rev, b.at.rev))
}

// pass places one batch and reports whether there may be more.
func (p *Placer) pass(ctx context.Context, term *record.Term) bool {
	began := time.Now()
	defer func() { p.rounds.Observe(time.Since(began)) }()
	p.mu.Lock()
	found := p.found
	p.found = nil
	assigned := p.index.Place(p.db.Now(), placeBatch)
	for _, a := range assigned {
		found = append(found, p.decisionLocked(a))
	}
	p.mu.Unlock()
	slices.SortStableFunc(found, together)
	var failed atomic.Bool
	var wg sync.WaitGroup
	for len(found) > 0 {
		n := slices.IndexFunc(found, func(d Decision) bool { return together(d, found[0]) != 0 })
		if n < 0 {
			n = len(found)
		}
		some := found[:n]
		found = found[n:]
		wg.Go(func() {
			if !p.Write(ctx, term, some) {
				failed.Store(true)
			}
		})
	}
	wg.Wait()
	return len(assigned) == placeBatch && !failed.Load() // returned requests are tried again when the placer is woken
}

// Write writes placements on one node, as many at a time as fit, and reports whether all of
// them were written.
func (p *Placer) Write(ctx context.Context, term *record.Term, some []Decision) bool {
	for len(some) > 0 {
		done, err := p.assign(ctx, term, some)
		if err != nil {
			p.giveBack(ctx, term, some, err)
			return false
		}
		some = some[done:]
	}
	return true
}

// assign writes placements on one node as it was when they were decided. It writes as many as fit
// and returns their number.
func (p *Placer) assign(ctx context.Context, term *record.Term, some []Decision) (done int, err error) {
	id, at := some[0].node, some[0].at
	if at.record == nil {
		return 0, &store.ConflictError{Keys: []string{id}}
	}
	t := record.Txn{Limits: p.db.Store.Limits()}
	t.Add(claim(p.db.Tables, id, at, slices.ContainsFunc(some, Decision.givesDevice)))
	now := p.db.Now()
	for _, d := range some {
		inst, rev, ok := p.db.Tables.Instances.Get(d.id)
		if ok && inst.AwaitsPlacement() &&
			!t.Add(store.Put(p.db.Tables.Instances, d.id, placed(inst, at.record, d.device, now), store.IfRev(rev))) {
			break
		}
		done++
	}
	if len(t.Changes) == 1 {
		return done, nil
	}
	return done, term.Commit(ctx, t.Changes...)
}

// giveBack returns requests to the pending ones whose placement could not be written. After a lost
// race it first waits until the tables, and so the index, show the change that won: it may be of
// the node.
func (p *Placer) giveBack(ctx context.Context, term *record.Term, some []Decision, err error) {
	lost := errors.Is(err, store.ErrConflict)
	if lost && p.db.UpToDate(ctx) != nil {
		term.End() // it does not see the change that it lost to
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range some {
		p.takeBackLocked(d.id)
	}
	switch {
	case lost:
		p.setNodeLocked(some[0].node)
		p.Wake()
	case ctx.Err() == nil:
		p.db.Log.WarnContext(ctx, "writing placements failed; retrying", "count", len(some), "error", err)
		time.AfterFunc(placeRetry, p.Wake)
	}
}

// takeBackLocked undoes a decision: the index has the instance as in the records again.
func (p *Placer) takeBackLocked(id string) {
	p.index.UndoPlacement(id)
	p.setInstanceLocked(id)
}

// draft is an instance that is about to be created: as it was requested and, where a node is free
// for it, as placed there.
type draft struct {
	requested, placed *farm.Instance // placed: nil when it has to wait
	node              string
	at                indexedNode // that node when it was decided on
	standbyRev        int64       // of the standby that it claims; 0: none
}

// admit decides on instances before they exist, so that they are placed from the first moment on.
// The returned leader term must write them; it is nil when this replica does not decide, or none
// could be placed.
func (p *Placer) admit(instances []*farm.Instance) ([]draft, *record.Term) {
	drafts := make([]draft, len(instances))
	for i, inst := range instances {
		drafts[i].requested = inst
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.term == nil {
		return drafts, nil
	}
	own := make(map[string]*draft, len(drafts))
	for i, inst := range instances {
		if p.o.Blocker.Blocked(inst) {
			continue
		}
		own[inst.ID] = &drafts[i]
		p.index.SetInstance(p.requestLocked(inst))
	}
	now, some := p.db.Now(), false
	for _, a := range p.index.Place(now, len(drafts)+placeBatch) {
		node, there := p.nodes[a.NodeID]
		d := own[a.RequestID]
		switch {
		case d == nil:
			p.found = append(p.found, p.decisionLocked(a))
		case there:
			d.placed, d.node, d.at = placed(d.requested, node.record, a.USBLocation, now), a.NodeID, node
			some = true
		}
	}
	for id, d := range own {
		if d.placed == nil { // not yet a request that the next pass could place
			p.index.RemoveInstance(id)
		}
	}
	if len(p.found) > 0 {
		p.Wake()
	}
	if !some {
		return drafts, nil
	}
	return drafts, p.term
}

// dismiss undoes the decisions of admit for instances that were not created.
func (p *Placer) dismiss(drafts []draft) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range drafts {
		if d.standbyRev == 0 {
			p.takeBackLocked(d.requested.ID)
		}
	}
	p.Wake()
}

// Decide returns the decision to place an instance on a node as it is in the index.
func (p *Placer) Decide(instance, node string) Decision {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.decisionLocked(sched.Assignment{RequestID: instance, NodeID: node})
}

// claim returns the change that goes with placements on a node: a check that its record is the one
// that they were decided on. Placements that assign devices rewrite it instead, so that the next
// ones see them.
func claim(t *record.Tables, node string, at indexedNode, devices bool) store.Change {
	if devices {
		return store.Put(t.Nodes, node, at.record, store.IfRev(at.rev))
	}
	return store.Check(t.Nodes, node, store.IfRev(at.rev))
}
