package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// create writes new instances, placed where a node is free, else waiting. It fails
// whole: what was written of a call that failed is ended again.
func (c *Controller) create(ctx context.Context, instances []*farm.Instance) error {
	drafts, r := c.placer.admit(instances)
	parts := c.parts(drafts)
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i := range parts[1:] {
		wg.Go(func() { errs[i+1] = c.createPart(ctx, r, parts[i+1]) })
	}
	errs[0] = c.createPart(ctx, r, parts[0])
	wg.Wait()
	err := cmp.Or(errs...)
	for i := range parts {
		if err != nil && (errs[i] == nil || errors.Is(errs[i], store.ErrUnknownOutcome)) {
			c.rollBack(ctx, parts[i].drafts, errs[i] == nil)
		}
	}
	return err
}

// part is some new instances that go into one transaction.
type part struct {
	drafts []draft
	txn
}

// parts divides new instances among as few transactions as the store allows. Those of
// one node stay together, so that it is checked once.
func (c *Controller) parts(drafts []draft) []*part {
	slices.SortStableFunc(drafts, func(a, b draft) int { return cmp.Compare(a.node, b.node) })
	var parts []*part
	var last *part
	devices := map[string]bool{} // node -> a device of it is given away
	for _, d := range drafts {
		if d.placed != nil && d.placed.USB != "" {
			devices[d.node] = true
		}
	}
	for i, d := range drafts {
		changes := c.creation(d)
		check := d.placed != nil && (last == nil || i == 0 || drafts[i-1].node != d.node)
		if check {
			changes = append(changes, c.claims(d.node, d.at, devices[d.node]))
		}
		if last == nil || !last.add(changes...) {
			last = &part{txn: txn{limits: c.store.Limits()}}
			parts = append(parts, last)
			if d.placed != nil && !check {
				changes = append(changes, c.claims(d.node, d.at, devices[d.node]))
			}
			last.add(changes...)
		}
		last.drafts = append(last.drafts, d)
	}
	return parts
}

// creation gives the changes that make one instance. That the id is free needs no asking: it
// is new, and asking costs the store as much as writing.
func (c *Controller) creation(d draft) []store.Change {
	inst := d.placed
	if inst == nil {
		inst = d.asked
	}
	return append(c.takeMAC(inst), store.Put(c.tables.Instances, inst.ID, inst, store.Any))
}

// createPart writes some of the new instances. Where a placement among them has
// lost a race, or another replica has given a MAC address of theirs away, all of them
// wait, for an address too, and are placed like any other. A placement is written
// whether the caller is still there or not: one whose outcome is unknown costs more.
func (c *Controller) createPart(ctx context.Context, r *reign, p *part) error {
	var err error
	if r == nil {
		err = c.store.Commit(ctx, p.changes...)
	} else if err = r.Commit(context.WithoutCancel(ctx), p.changes...); err != nil {
		c.placer.dismiss(p.drafts)
	}
	if err == nil || !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrFenced) {
		return err
	}
	changes := make([]store.Change, len(p.drafts))
	for i, d := range p.drafts {
		inst := d.asked
		if inst.MAC != "" {
			inst = inst.Clone()
			inst.MAC = ""
		}
		changes[i] = store.Put(c.tables.Instances, inst.ID, inst, store.Any)
	}
	return c.store.Commit(ctx, changes...)
}
