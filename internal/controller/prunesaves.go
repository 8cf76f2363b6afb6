package controller

import (
	"context"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const (
	keepSaves    = 24 * time.Hour // how long a request is kept after its end
	maxSaves     = 20000          // requests, beyond which the oldest ended ones are removed
	savesPerTick = 2000           // removals in one tick, so that a large number of them delays no other job
)

// tidyPending ends the save requests on which no instance works any longer.
func (c *Controller) tidyPending(ctx context.Context, w *record.Term, _ time.Time) error {
	for _, s := range c.tables.Saves.Where(record.ByStatus, string(farm.SavePending)) {
		if err := c.tidySave(ctx, w, s); err != nil {
			return err
		}
	}
	return nil
}

// tidySaves removes the requests that have been kept long enough.
func (c *Controller) tidySaves(ctx context.Context, w *record.Term, now time.Time) error {
	excess := c.tables.Saves.Len() - c.opts.bounds.saves
	surplus := c.admission.SaveSurplus()
	var old []store.Change
	for _, s := range c.tables.Saves.All() {
		if s.Status != farm.SavePending && len(old) < savesPerTick &&
			(len(old) < excess || now.Sub(c.Maintenance.After(s.Updated)) >= keepSaves || surplus.Removes(s)) {
			old = append(old, store.Delete(c.tables.Saves, s.ID, store.Any))
		}
	}
	for some := range slices.Chunk(old, record.TxnChanges) {
		if err := w.Commit(ctx, some...); err != nil {
			return err
		}
	}
	return c.payloads.PruneChunks(ctx, w, now)
}

// tidySave ends a pending request whose instance does not work on it. The tables are not read at
// one moment: the store itself is read before the decision.
func (c *Controller) tidySave(ctx context.Context, w *record.Term, s *farm.SaveRequest) error {
	id := s.Request.InstanceID
	inst, _, _ := c.tables.Instances.Get(id)
	if inst.WorksOn(s.ID) {
		return nil
	}
	inst, _, err := c.tables.Instances.GetLinearizable(ctx, id)
	if err != nil {
		return err
	}
	return c.endSave(ctx, w, s.ID, inst)
}
