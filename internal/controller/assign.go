package controller

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

// placementDecision assigns a request to a node, with the node as it was at that time: a later
// change of the node invalidates it.
type placementDecision struct {
	id, node string
	device   string // location of the USB device that goes with it; "" for none
	at       indexedNode
}

func (p *placer) decisionLocked(a sched.Assignment) placementDecision {
	return placementDecision{a.RequestID, a.NodeID, a.Device, p.nodes[a.NodeID]}
}

func (d placementDecision) givesDevice() bool { return d.device != "" }

// together orders decisions so that those which one check covers are adjacent.
func together(a, b placementDecision) int {
	return cmp.Or(strings.Compare(a.node, b.node), cmp.Compare(a.at.rev, b.at.rev))
}

// pass places one batch and reports whether there may be more.
func (p *placer) pass(ctx context.Context, r *record.Term) bool {
	defer p.c.meters.round(time.Now())
	p.mu.Lock()
	found := p.found
	p.found = nil
	assigned := p.index.Place(p.c.now(), placeBatch)
	for _, a := range assigned {
		found = append(found, p.decisionLocked(a))
	}
	p.mu.Unlock()
	slices.SortStableFunc(found, together)
	var failed atomic.Bool
	var wg sync.WaitGroup
	for len(found) > 0 {
		n := slices.IndexFunc(found, func(d placementDecision) bool { return together(d, found[0]) != 0 })
		if n < 0 {
			n = len(found)
		}
		some := found[:n]
		found = found[n:]
		wg.Go(func() {
			if !p.assignAll(ctx, r, some) {
				failed.Store(true)
			}
		})
	}
	wg.Wait()
	return len(assigned) == placeBatch && !failed.Load() // returned requests are tried again when the placer is woken
}

// assignAll writes placements on one node, as many at a time as fit, and reports whether all of
// them were written.
func (p *placer) assignAll(ctx context.Context, r *record.Term, some []placementDecision) bool {
	for len(some) > 0 {
		done, err := p.assign(ctx, r, some)
		if err != nil {
			p.giveBack(ctx, r, some, err)
			return false
		}
		some = some[done:]
	}
	return true
}

// assign writes placements on one node as it was when they were decided. It writes as many as fit
// and returns their number.
func (p *placer) assign(ctx context.Context, r *record.Term, some []placementDecision) (done int, err error) {
	id, at := some[0].node, some[0].at
	if at.record == nil {
		return 0, &store.ConflictError{Keys: []string{id}}
	}
	t := record.Txn{Limits: p.c.store.Limits()}
	t.Add(p.c.claims(id, at, slices.ContainsFunc(some, placementDecision.givesDevice)))
	now := p.c.now()
	for _, d := range some {
		inst, rev, ok := p.c.tables.Instances.Get(d.id)
		if ok && inst.Waiting() &&
			!t.Add(store.Put(p.c.tables.Instances, d.id, placed(inst, at.record, d.device, now), store.IfRev(rev))) {
			break
		}
		done++
	}
	if len(t.Changes) == 1 {
		return done, nil
	}
	return done, r.Commit(ctx, t.Changes...)
}

// giveBack returns requests to the pending ones whose placement could not be written. After a lost
// race it first waits until the tables, and so the index, show the change that won: it may be of
// the node.
func (p *placer) giveBack(ctx context.Context, r *record.Term, some []placementDecision, err error) {
	lost := errors.Is(err, store.ErrConflict)
	if lost && p.c.db.UpToDate(ctx) != nil {
		r.End() // it does not see the change that it lost to
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range some {
		p.takeBackLocked(d.id)
	}
	switch {
	case lost:
		p.setNodeLocked(some[0].node)
		p.ring()
	case ctx.Err() == nil:
		p.c.log.WarnContext(ctx, "could not place instances", "count", len(some), "error", err)
		time.AfterFunc(placeRetry, p.ring)
	}
}

// takeBackLocked undoes a decision: the index has the instance as in the records again.
func (p *placer) takeBackLocked(id string) {
	p.index.UndoPlacement(id)
	p.setInstanceLocked(id)
}

// draft is an instance that is about to be created: as it was requested and, where a node is free
// for it, as placed there.
type draft struct {
	asked, placed *farm.Instance // placed: nil when it has to wait
	node          string
	at            indexedNode // that node when it was decided on
}

// admit decides on instances before they exist, so that they are placed from the first moment on.
// The returned leader term must write them; it is nil when this replica does not decide, or none
// could be placed.
func (p *placer) admit(instances []*farm.Instance) ([]draft, *record.Term) {
	drafts := make([]draft, len(instances))
	for i, inst := range instances {
		drafts[i].asked = inst
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reign == nil {
		return drafts, nil
	}
	own := make(map[string]*draft, len(drafts))
	for i, inst := range instances {
		if p.c.MACs.Lacks(inst) {
			continue
		}
		own[inst.ID] = &drafts[i]
		p.index.SetInstance(p.requestLocked(inst))
	}
	now, some := p.c.now(), false
	for _, a := range p.index.Place(now, len(drafts)+placeBatch) {
		node, there := p.nodes[a.NodeID]
		d := own[a.RequestID]
		switch {
		case d == nil:
			p.found = append(p.found, p.decisionLocked(a))
		case there:
			d.placed, d.node, d.at = placed(d.asked, node.record, a.Device, now), a.NodeID, node
			some = true
		}
	}
	for id, d := range own {
		if d.placed == nil { // not yet a request that the next pass could place
			p.index.RemoveInstance(id)
		}
	}
	if len(p.found) > 0 {
		p.ring()
	}
	if !some {
		return drafts, nil
	}
	return drafts, p.reign
}

// dismiss undoes the decisions of admit for instances that were not created.
func (p *placer) dismiss(drafts []draft) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range drafts {
		p.takeBackLocked(d.asked.ID)
	}
	p.ring()
}
