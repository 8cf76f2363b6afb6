package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/buildyard/buildyard/internal/controller/admission"
	"github.com/buildyard/buildyard/internal/controller/idempotency"
	"github.com/buildyard/buildyard/internal/controller/macpool"
	"github.com/buildyard/buildyard/internal/controller/placement"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// create writes new instances, placed where a node is free, else pending. It fails as a whole:
// instances that a failed call has written are ended again.
func (c *Controller) create(
	ctx context.Context, instances []*farm.Instance, script []store.Change, m *idempotency.Write,
) error {
	drafts, r := c.placer.Admit(instances)
	release, err := c.admission.Admit(instances[0].Caller, demandOf(drafts, script))
	if err != nil {
		c.placer.Dismiss(drafts)
		return err
	}
	defer release()
	parts := c.parts(drafts, script)
	if m == nil {
		return c.createParts(ctx, r, parts)
	}
	if len(parts) == 1 {
		parts[0].with = m.Changes()
		return c.createParts(ctx, r, parts)
	}
	return c.createNamed(ctx, r, parts, m, idsOf(instances))
}

// demandOf returns the amounts of drafts and their script. A draft with a node does not count as
// pending.
func demandOf(drafts []placement.Draft, script []store.Change) (more admission.Amounts) {
	for _, d := range drafts {
		if d.Placed == nil {
			more[admission.Instances]++
			more[admission.InstancesSize] += int64(record.InstanceSize(d.Asked))
		}
	}
	for _, change := range script {
		if s, ok := change.Value().(*record.Script); ok {
			more[admission.ScriptsSize] += int64(s.Size)
		}
	}
	return more
}

// createNamed writes a start of several parts that has an idempotency key. The first part records
// that the start has begun; the start has a stored answer only once it is known to be complete.
// idempotency.Keys.Prune resolves a start whose outcome this replica does not know.
func (c *Controller) createNamed(
	ctx context.Context, r *record.Term, parts []*createBatch, m *idempotency.Write, ids []string,
) error {
	parts[0].with = m.Begun(ids)
	if err := c.createParts(ctx, r, parts[:1]); err != nil {
		for _, p := range parts[1:] {
			c.placer.Dismiss(p.drafts)
		}
		return err
	}
	failed := c.createParts(ctx, r, parts[1:])
	whole := parts[:1]
	if failed == nil {
		if failed = m.End(ctx, nil); failed == nil || errors.Is(failed, store.ErrUnknownOutcome) {
			return failed
		}
		whole = parts
	}
	for _, p := range whole {
		c.rollBack(ctx, p.drafts, true)
	}
	if err := m.End(ctx, failed); err != nil {
		c.log.WarnContext(ctx, "removing the idempotency key of a failed start failed; it expires later", "error", err)
	}
	return failed
}

func idsOf(instances []*farm.Instance) []string {
	ids := make([]string, len(instances))
	for i, inst := range instances {
		ids[i] = inst.ID
	}
	return ids
}

// createParts writes parts concurrently, all or none. A part of unknown outcome is not rolled back
// if it has the idempotency record, which then decides.
func (c *Controller) createParts(ctx context.Context, r *record.Term, parts []*createBatch) error {
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i := range parts[1:] {
		wg.Go(func() { errs[i+1] = c.createPart(ctx, r, parts[i+1]) })
	}
	errs[0] = c.createPart(ctx, r, parts[0])
	wg.Wait()
	err := cmp.Or(errs...)
	for i := range parts {
		if err != nil && (errs[i] == nil || (errors.Is(errs[i], store.ErrUnknownOutcome) && parts[i].with == nil)) {
			c.rollBack(ctx, parts[i].drafts, errs[i] == nil)
		}
	}
	return err
}

// createBatch is a group of new instances that go into one transaction.
type createBatch struct {
	drafts []placement.Draft
	record.Txn
	script []store.Change // of these instances, so that none exists without it
	with   []store.Change // additional changes
}

// parts divides new instances among as few transactions as the store allows. Those of one node stay
// together, so that it is checked one time.
func (c *Controller) parts(drafts []placement.Draft, script []store.Change) []*createBatch {
	slices.SortStableFunc(drafts, func(a, b placement.Draft) int { return cmp.Compare(a.Node, b.Node) })
	limits := c.store.Limits()
	limits.Ops-- // for with
	var parts []*createBatch
	var last *createBatch
	devices := map[string]bool{} // node -> a device of it is assigned
	for _, d := range drafts {
		if d.Placed != nil && d.Placed.USB != "" {
			devices[d.Node] = true
		}
	}
	for i, d := range drafts {
		changes := c.creation(d)
		check := d.Placed != nil && (last == nil || i == 0 || drafts[i-1].Node != d.Node)
		if check {
			changes = append(changes, d.Claim(c.tables, devices[d.Node]))
		}
		if last == nil || !last.Add(changes...) {
			last = &createBatch{Txn: record.Txn{Limits: limits}, script: script}
			parts = append(parts, last)
			if d.Placed != nil && !check {
				changes = append(changes, d.Claim(c.tables, devices[d.Node]))
			}
			last.Add(slices.Concat(script, changes)...)
		}
		last.drafts = append(last.drafts, d)
	}
	return parts
}

// creation returns the changes that create one instance. It does not check that the id is free: it
// is new, and a check costs the store as much as a write.
func (c *Controller) creation(d placement.Draft) []store.Change {
	inst := d.Placed
	if inst == nil {
		inst = d.Asked
	}
	return append(macpool.Take(c.tables, inst), store.Put(c.tables.Instances, inst.ID, inst, store.Any))
}

// createPart writes some of the new instances. If a placement among them has lost a race, or
// another replica has assigned one of their MAC addresses, all of them become pending, without an
// address too, and are placed like any other. A placement is written even if the caller is gone:
// one whose outcome is unknown costs more.
func (c *Controller) createPart(ctx context.Context, r *record.Term, p *createBatch) error {
	var err error
	if r == nil {
		err = c.store.Commit(ctx, append(p.Changes, p.with...)...)
	} else if err = r.Commit(context.WithoutCancel(ctx), append(p.Changes, p.with...)...); err != nil {
		c.placer.Dismiss(p.drafts)
	}
	if err == nil || !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrFenced) {
		return err
	}
	changes := slices.Clone(p.script)
	for _, d := range p.drafts {
		inst := d.Asked
		if inst.MAC != "" {
			inst = inst.Clone()
			inst.MAC = ""
		}
		changes = append(changes, store.Put(c.tables.Instances, inst.ID, inst, store.Any))
	}
	return c.store.Commit(ctx, append(changes, p.with...)...)
}
