package placement

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Key is the idempotency key of a request that creates instances.
type Key interface {
	// Changes returns the changes that record the request with its response.
	Changes() []store.Change
	// Begun returns the changes that record that a request of several transactions has begun.
	Begun(instances []string) []store.Change
	// End writes the end of such a request: with its response, or as if it had not been made.
	End(ctx context.Context, failed error) error
}

// Creation is new instances that are created together.
type Creation struct {
	Instances []*farm.Instance
	Script    []store.Change // written in each transaction, so that no instance exists without it
	Key       Key            // nil: the request has none

	// Standbys are those that instances claim, by the id that both have. The instances are placed already.
	Standbys map[string]Standby

	// Admit decides on the instances that are going to be pending, before anything is written; release
	// is called when everything is written.
	Admit func(pending []*farm.Instance) (release func(), err error)
}

// Create writes new instances, placed where a node is free, else pending. It fails as a whole:
// instances that a failed call has written are terminated again. Claims of standbys are part of one transaction
// with all else, or the call fails with ErrStandbyTaken.
func (p *Placer) Create(ctx context.Context, c Creation) error {
	drafts, term := p.drafts(c)
	release, err := c.Admit(pendingOf(drafts))
	if err != nil {
		p.dismiss(drafts)
		return err
	}
	defer release()
	batches := p.batches(drafts, c.Script)
	if len(batches) > 1 && len(c.Standbys) > 0 {
		p.dismiss(drafts)
		return ErrStandbyTaken
	}
	switch {
	case c.Key == nil:
		return p.writeBatches(ctx, term, batches)
	case len(batches) == 1:
		batches[0].key = c.Key.Changes()
		return p.writeBatches(ctx, term, batches)
	default:
		return p.writeWithKey(ctx, term, batches, c)
	}
}

// pendingOf returns the instances that have found no node.
func pendingOf(drafts []draft) (pending []*farm.Instance) {
	for _, d := range drafts {
		if d.placed == nil {
			pending = append(pending, d.requested)
		}
	}
	return pending
}

// createBatch is new instances that are written in one transaction.
type createBatch struct {
	drafts []draft
	record.Txn
	script []store.Change // also in Changes
	key    []store.Change // of the idempotency key
}

// batches divides new instances among as few transactions as the store allows. Those of one node stay
// together, so that it is checked one time.
func (p *Placer) batches(drafts []draft, script []store.Change) []*createBatch {
	slices.SortStableFunc(drafts, func(a, b draft) int { return cmp.Compare(a.node, b.node) })
	limits := p.db.Store.Limits()
	limits.MaxOps--              // for the key
	devices := map[string]bool{} // node -> a device of it is assigned
	for _, d := range drafts {
		if d.placed != nil && d.placed.USBLocation != "" {
			devices[d.node] = true
		}
	}

	var batches []*createBatch
	var last *createBatch
	for i, d := range drafts {
		changes := p.creation(d)
		var check []store.Change
		if d.placed != nil {
			check = []store.Change{claim(p.db.Tables, d.node, d.at, devices[d.node])}
		}
		checked := i > 0 && drafts[i-1].node == d.node // if both are in one transaction
		switch {
		case checked && last.Add(changes...):
		case i > 0 && !checked && last.Add(slices.Concat(changes, check)...):
		default:
			last = &createBatch{Txn: record.Txn{Limits: limits}, script: script}
			last.Add(slices.Concat(script, changes, check)...)
			batches = append(batches, last)
		}
		last.drafts = append(last.drafts, d)
	}
	return batches
}

// creation returns the changes that create one instance. It does not check that the id is free: it
// is new, and a check costs the store as much as a write.
func (p *Placer) creation(d draft) []store.Change {
	inst := cmp.Or(d.placed, d.requested)
	if d.standbyRev > 0 { // it keeps the MAC address of the standby
		return []store.Change{store.Put(p.db.Tables.Instances, inst.ID, inst, store.IfRev(d.standbyRev))}
	}
	return append(p.o.AssignMAC(inst), store.Put(p.db.Tables.Instances, inst.ID, inst, store.Any))
}

// writeWithKey writes a request of several batches that has an idempotency key. The first batch records
// that the request has begun; it has a stored response only once it is known to be complete. The owner
// of the keys terminates the instances of a request whose outcome this replica does not know.
func (p *Placer) writeWithKey(ctx context.Context, term *record.Term, batches []*createBatch, c Creation) error {
	ids := make([]string, len(c.Instances))
	for i, inst := range c.Instances {
		ids[i] = inst.ID
	}
	batches[0].key = c.Key.Begun(ids)
	if err := p.writeBatches(ctx, term, batches[:1]); err != nil {
		for _, b := range batches[1:] {
			p.dismiss(b.drafts)
		}
		return err
	}

	failed := p.writeBatches(ctx, term, batches[1:])
	written := batches[:1]
	if failed == nil {
		if failed = c.Key.End(ctx, nil); failed == nil || errors.Is(failed, store.ErrUnknownOutcome) {
			return failed
		}
		written = batches
	}
	for _, b := range written {
		p.rollBack(ctx, b.drafts, true)
	}
	if err := c.Key.End(ctx, failed); err != nil {
		p.db.Log.WarnContext(ctx, "removing the idempotency key of a failed start failed; it expires later", "error",
			err)
	}
	return failed
}

// writeBatches writes batches concurrently, all or none. A batch of unknown outcome is not rolled back
// if it has the idempotency record, which then decides.
func (p *Placer) writeBatches(ctx context.Context, term *record.Term, batches []*createBatch) error {
	errs := make([]error, len(batches))
	var wg sync.WaitGroup
	for i := range batches[1:] {
		wg.Go(func() { errs[i+1] = p.writeBatch(ctx, term, batches[i+1]) })
	}
	errs[0] = p.writeBatch(ctx, term, batches[0])
	wg.Wait()
	err := cmp.Or(errs...)
	for i, b := range batches {
		if err != nil && (errs[i] == nil || (errors.Is(errs[i], store.ErrUnknownOutcome) && b.key == nil)) {
			p.rollBack(ctx, b.drafts, errs[i] == nil)
		}
	}
	return err
}

// writeBatch writes one batch. If a placement in it has lost a race, or another replica has assigned
// one of its MAC addresses, all of its instances become pending, without an address too, and are placed
// like any other. A placement is written even if the caller is gone: one whose outcome is unknown costs
// more.
func (p *Placer) writeBatch(ctx context.Context, term *record.Term, b *createBatch) error {
	var err error
	if term == nil {
		err = p.db.Store.Commit(ctx, append(b.Changes, b.key...)...)
	} else if err = term.Commit(context.WithoutCancel(ctx), append(b.Changes, b.key...)...); err != nil {
		p.dismiss(b.drafts)
	}
	if err == nil || !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrFenced) {
		return err
	}
	if slices.ContainsFunc(b.drafts, func(d draft) bool { return d.standbyRev > 0 }) {
		return ErrStandbyTaken
	}
	changes := slices.Clone(b.script)
	for _, d := range b.drafts {
		inst := d.requested
		if inst.MAC != "" {
			inst = inst.Clone()
			inst.MAC = ""
		}
		changes = append(changes, store.Put(p.db.Tables.Instances, inst.ID, inst, store.Any))
	}
	return p.db.Store.Commit(ctx, append(changes, b.key...)...)
}
