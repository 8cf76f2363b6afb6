package saves

import (
	"context"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const (
	// Retention is how long a request is kept after its end.
	Retention = 24 * time.Hour
	// maxRemovals is how many requests are removed at a time, so that a large number of them delays no
	// other job.
	maxRemovals = 2000
)

// EndPending ends the requests on which no instance works any longer.
func (s *Saves) EndPending(ctx context.Context, w *record.Term, _ time.Time) error {
	for _, req := range s.db.Tables.Saves.Where(record.ByStatus, string(farm.SavePending)) {
		if err := s.endPending(ctx, w, req); err != nil {
			return err
		}
	}
	return nil
}

// endPending ends a pending request whose instance does not work on it. The tables are not read at
// one moment: the store itself is read before the decision.
func (s *Saves) endPending(ctx context.Context, w *record.Term, req *farm.SaveRequest) error {
	id := req.Request.InstanceID
	if inst, _, _ := s.db.Tables.Instances.Get(id); inst.WorksOn(req.ID) {
		return nil
	}
	inst, _, err := s.db.Tables.Instances.GetLinearizable(ctx, id)
	if err != nil {
		return err
	}
	return s.End(ctx, w, req.ID, inst)
}

// Prune removes the requests that have been kept long enough, and the contents that no request needs.
func (s *Saves) Prune(ctx context.Context, w *record.Term, now time.Time) error {
	excess := s.db.Tables.Saves.Len() - s.o.Max
	isSurplus := s.o.Surplus()
	var removals []store.Change
	for _, req := range s.db.Tables.Saves.All() {
		if req.Status != farm.SavePending && len(removals) < maxRemovals &&
			(len(removals) < excess || now.Sub(s.o.From(req.Updated)) >= Retention || isSurplus(req)) {
			removals = append(removals, store.Delete(s.db.Tables.Saves, req.ID, store.Any))
		}
	}
	for some := range slices.Chunk(removals, record.TxnChanges) {
		if err := w.Commit(ctx, some...); err != nil {
			return err
		}
	}
	return s.o.Contents.PruneChunks(ctx, w, now)
}
