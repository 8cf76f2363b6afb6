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
	// keepCacheJob is how long a cache job is kept after its end.
	keepCacheJob = 24 * time.Hour
	// cacheJobLife is how long a cache job waits for nodes that are not done, counted from the last
	// one that was.
	cacheJobLife = 24 * time.Hour
)

// endCacheJob returns a cache job that has ended.
func endCacheJob(e *farm.CacheJob, why farm.CacheJobEnd, now time.Time) *farm.CacheJob {
	n := *e
	n.Ended, n.End = now, why
	return &n
}

// tidyCacheJobs ends the cache jobs that no node works on any longer and removes those that have been
// kept long enough.
func (c *Controller) tidyCacheJobs(ctx context.Context, w *record.Term, now time.Time) error {
	count, nodes := c.tables.CacheJobs.Len(), 0
	for _, e := range c.tables.CacheJobs.All() {
		nodes += len(e.Nodes)
	}
	for id, e := range c.tables.CacheJobs.All() {
		switch why := c.cacheJobEnd(e, now); {
		case e.Open() && why != "":
			_, err := store.Update(ctx, w, c.tables.CacheJobs, id, func(e *farm.CacheJob) (*farm.CacheJob, error) {
				if e == nil || !e.Open() {
					return e, nil
				}
				return endCacheJob(e, why, now), nil
			})
			if err != nil {
				return err
			}
		case !e.Open() &&
			(count > maxCacheJobs || nodes > 2*maxAddressed || now.Sub(c.Maintenance.After(e.Ended)) >= keepCacheJob):
			if err := w.Commit(ctx, store.Delete(c.tables.CacheJobs, id, store.Any)); err != nil {
				return err
			}
			count--
			nodes -= len(e.Nodes)
		}
	}
	return c.tidyOutcomes(ctx, w)
}

// cacheJobEnd returns why an open cache job has ended; "" when it has not.
func (c *Controller) cacheJobEnd(e *farm.CacheJob, now time.Time) farm.CacheJobEnd {
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
		return farm.CacheJobFinished
	case now.Sub(c.Maintenance.After(last)) >= cacheJobLife:
		return farm.CacheJobExpired
	default:
		return ""
	}
}

// tidyOutcomes deletes the results of removed cache jobs. A result is written only together with
// its cache job, so one without a job belongs to a removed one.
func (c *Controller) tidyOutcomes(ctx context.Context, w *record.Term) error {
	var old []store.Change
	for id := range c.tables.CacheJobResults.All() {
		cacheJob, _ := record.SplitCacheJobResultID(id)
		if _, _, ok := c.tables.CacheJobs.Get(cacheJob); !ok {
			old = append(old, store.Delete(c.tables.CacheJobResults, id, store.Any))
		}
	}
	for some := range slices.Chunk(old, record.TxnChanges) {
		if err := w.Commit(ctx, some...); err != nil {
			return err
		}
	}
	return nil
}
