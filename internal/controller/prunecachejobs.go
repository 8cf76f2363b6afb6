package controller

import (
	"context"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const (
	// keepErrand is how long a cache job is kept after its end.
	keepErrand = 24 * time.Hour
	// errandLife is how long a cache job waits for nodes that are not done, counted from the last
	// one that was.
	errandLife = 24 * time.Hour
)

// endErrand returns a cache job that has ended.
func endErrand(e *farm.CacheJob, why farm.CacheJobEnd, now time.Time) *farm.CacheJob {
	n := *e
	n.Ended, n.End = now, why
	return &n
}

// tidyErrands ends the cache jobs that no node works on any longer and removes those that have been
// kept long enough.
func (c *Controller) tidyErrands(ctx context.Context, w *leaderTerm, now time.Time) error {
	count, nodes := c.tables.Errands.Len(), 0
	for _, e := range c.tables.Errands.All() {
		nodes += len(e.Nodes)
	}
	for id, e := range c.tables.Errands.All() {
		switch why := c.errandEnd(e, now); {
		case e.Open() && why != "":
			_, err := store.Update(ctx, w, c.tables.Errands, id, func(e *farm.CacheJob) (*farm.CacheJob, error) {
				if e == nil || !e.Open() {
					return e, nil
				}
				return endErrand(e, why, now), nil
			})
			if err != nil {
				return err
			}
		case !e.Open() && (count > maxErrands || nodes > 2*maxAddressed || now.Sub(c.afterMaintenance(e.Ended)) >= keepErrand):
			if err := w.Commit(ctx, store.Delete(c.tables.Errands, id, store.Any)); err != nil {
				return err
			}
			count--
			nodes -= len(e.Nodes)
		}
	}
	return c.tidyOutcomes(ctx, w)
}

// errandEnd returns why an open cache job has ended; "" when it has not.
func (c *Controller) errandEnd(e *farm.CacheJob, now time.Time) farm.CacheJobEnd {
	if !e.Open() {
		return ""
	}
	last, waiting := e.Asked, false
	outcomes := c.outcomesOf(e.ID)
	for _, o := range outcomes {
		if o.At.After(last) {
			last = o.At
		}
	}
	for _, node := range e.Nodes {
		waiting = waiting || outcomes[node] == nil && e.Addresses(node) && c.nodeExists(node)
	}
	switch {
	case !waiting:
		return farm.ErrandFinished
	case now.Sub(c.afterMaintenance(last)) >= errandLife:
		return farm.ErrandExpired
	default:
		return ""
	}
}

// tidyOutcomes deletes the results of removed cache jobs. A result is written only together with
// its cache job, so one without a job belongs to a removed one.
func (c *Controller) tidyOutcomes(ctx context.Context, w *leaderTerm) error {
	var old []store.Change
	for id := range c.tables.Outcomes.All() {
		errand, _ := ofOutcome(id)
		if _, _, ok := c.tables.Errands.Get(errand); !ok {
			old = append(old, store.Delete(c.tables.Outcomes, id, store.Any))
		}
	}
	for some := range slices.Chunk(old, txnChanges) {
		if err := w.Commit(ctx, some...); err != nil {
			return err
		}
	}
	return nil
}
