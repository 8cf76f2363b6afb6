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
	for i, d := range drafts {
		changes := c.creation(d, last == nil || i == 0 || drafts[i-1].node != d.node)
		if last == nil || !last.add(changes...) {
			last = &part{txn: txn{limits: c.store.Limits()}}
			parts = append(parts, last)
			last.add(c.creation(d, true)...)
		}
		last.drafts = append(last.drafts, d)
	}
	return parts
}

// creation gives the changes that make one instance, with the check of its node if asked
// for. That the id is free needs no asking: it is new, and asking costs the store as
// much as writing.
func (c *Controller) creation(d draft, check bool) []store.Change {
	if d.placed == nil {
		return []store.Change{store.Put(c.tables.Instances, d.asked.ID, d.asked, store.Any)}
	}
	changes := []store.Change{store.Put(c.tables.Instances, d.asked.ID, d.placed, store.Any)}
	if check {
		changes = append(changes, store.Check(c.tables.Nodes, d.node, store.IfRev(d.rev)))
	}
	return changes
}

// createPart writes some of the new instances. Where a placement among them has
// lost a race all of them wait, and are placed like any other. A placement is written
// whether the caller is still there or not: one whose outcome is unknown costs more.
func (c *Controller) createPart(ctx context.Context, r *reign, p *part) error {
	if r == nil {
		return c.store.Commit(ctx, p.changes...)
	}
	err := r.Commit(context.WithoutCancel(ctx), p.changes...)
	if err == nil {
		return nil
	}
	c.placer.dismiss(p.drafts)
	if !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrFenced) {
		return err
	}
	changes := make([]store.Change, len(p.drafts))
	for i, d := range p.drafts {
		changes[i] = store.Put(c.tables.Instances, d.asked.ID, d.asked, store.Any)
	}
	return c.store.Commit(ctx, changes...)
}
