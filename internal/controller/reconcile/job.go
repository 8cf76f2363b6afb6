package reconcile

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/store"
)

// Job is a periodic task of the leader. It is due every SweepInterval, and when one of the fields says
// so.
type Job struct {
	Name   string
	Always bool                     // it is due at every tick
	After  func(e store.Event) bool // whether it is due after a change; nil: after none
	Due    func() bool              // called at every tick; nil: never true
	Pauses bool                     // maintenance mode delays it, since no caller has requested it

	// Do receives the leader term as its only writer, so that it can write nothing without the fence.
	Do func(ctx context.Context, term *record.Term, now time.Time) error
}

// job is a Job of a reconciler.
type job struct {
	Job
	changed atomic.Bool // it is due after a change
}

func (j *job) observe(e store.Event) {
	if j.After != nil && j.After(e) {
		j.changed.Store(true)
	}
}

// runJobs runs the jobs that are due.
func (r *Reconciler) runJobs(ctx context.Context) {
	now := r.db.Now()
	sweep := now.Sub(r.swept) >= SweepInterval
	if sweep {
		r.swept = now
	}
	paused := r.o.Paused()
	for _, j := range r.jobs {
		if j.Pauses && paused {
			continue
		}
		due := j.changed.Swap(false) || sweep || j.Always
		if !(j.Job.Due != nil && j.Job.Due()) && !due {
			continue
		}
		if err := j.Do(ctx, r.term, now); err != nil && ctx.Err() == nil {
			r.db.Log.WarnContext(ctx, "pruning expired records failed", "what", j.Name, "error", err)
		}
	}
}
