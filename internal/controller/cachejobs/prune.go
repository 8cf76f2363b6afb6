package cachejobs

import (
	"context"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const (
	// keepEnded is how long a cache job is kept after its end.
	keepEnded = 24 * time.Hour
	// maxWait is how long a cache job waits for nodes that are not done, counted from the last one that
	// was.
	maxWait = 24 * time.Hour
)

// ended returns a cache job that has ended.
func ended(job *farm.CacheJob, why farm.CacheJobEndReason, now time.Time) *farm.CacheJob {
	n := *job
	n.EndedAt, n.EndReason = now, why
	return &n
}

// Prune ends the cache jobs that no node works on any longer and removes those that have been kept
// long enough.
func (j *Jobs) Prune(ctx context.Context, w *record.Term, now time.Time) error {
	count, nodes := j.db.Tables.CacheJobs.Len(), 0
	for _, job := range j.db.Tables.CacheJobs.All() {
		nodes += len(job.Nodes)
	}
	for id, job := range j.db.Tables.CacheJobs.All() {
		why := j.endOf(job, now)
		full := count > maxJobs || nodes > 2*maxTotalNodes
		switch {
		case job.IsOpen() && why != "":
			if err := j.end(ctx, w, id, why, now); err != nil {
				return err
			}
		case !job.IsOpen() && (full || now.Sub(j.opts.After(job.EndedAt)) >= keepEnded):
			if err := w.Commit(ctx, store.Delete(j.db.Tables.CacheJobs, id, store.Any)); err != nil {
				return err
			}
			count--
			nodes -= len(job.Nodes)
		}
	}
	return j.pruneResults(ctx, w)
}

func (j *Jobs) end(ctx context.Context, w store.Writer, id string, why farm.CacheJobEndReason, now time.Time) error {
	_, err := store.Update(ctx, w, j.db.Tables.CacheJobs, id, func(job *farm.CacheJob) (*farm.CacheJob, error) {
		if job == nil || !job.IsOpen() {
			return job, nil
		}
		return ended(job, why, now), nil
	})
	return err
}

// endOf returns why an open cache job has ended; "" when it has not.
func (j *Jobs) endOf(job *farm.CacheJob, now time.Time) farm.CacheJobEndReason {
	if !job.IsOpen() {
		return ""
	}
	last, waiting := job.RequestedAt, false
	results := j.results(job.ID)
	for _, result := range results {
		if result.EndedAt.After(last) {
			last = result.EndedAt
		}
	}
	for _, node := range job.Nodes {
		waiting = waiting || results[node] == nil && job.HasWorkFor(node) && j.nodeExists(node)
	}
	switch {
	case !waiting:
		return farm.CacheJobFinished
	case now.Sub(j.opts.After(last)) >= maxWait:
		return farm.CacheJobExpired
	default:
		return ""
	}
}

// pruneResults deletes the results of removed cache jobs. A result is written only together with its
// cache job, so one without a job belongs to a removed one.
func (j *Jobs) pruneResults(ctx context.Context, w store.Writer) error {
	var old []store.Change
	for id := range j.db.Tables.CacheJobResults.All() {
		job, _ := record.SplitCacheJobResultID(id)
		if _, _, ok := j.db.Tables.CacheJobs.Get(job); !ok {
			old = append(old, store.Delete(j.db.Tables.CacheJobResults, id, store.Any))
		}
	}
	for some := range slices.Chunk(old, record.TxnChanges) {
		if err := w.Commit(ctx, some...); err != nil {
			return err
		}
	}
	return nil
}
