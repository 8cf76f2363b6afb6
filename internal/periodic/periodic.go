// Package periodic runs background jobs, each at its own interval, and again after a pause when one
// fails. It does not know their purpose, and it stores nothing: a new Run runs all of them
// immediately.
//
// Invariant: one background job of a list runs at a time, and one that fails delays the others at
// most by its timeout.
package periodic

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/retry"
)

// Job is a background job.
type Job struct {
	What  string        // what it manages, in the plural
	Every time.Duration // after a success
	Do    func(ctx context.Context) error
}

// For every background job: its time limit, and the first and the longest delay after failures.
const (
	limit      = 10 * time.Second
	firstPause = time.Second
	mostPause  = time.Minute
)

// jobState is a background job with its current state.
type jobState struct {
	Job
	nextRun time.Time
	backoff *retry.Backoff // after failures
}

// Run runs background jobs until the context ends, all of them immediately at first.
func Run(ctx context.Context, list []Job, log *slog.Logger) {
	if len(list) == 0 {
		return
	}
	turns := make([]jobState, len(list))
	for i, c := range list {
		turns[i] = jobState{Job: c, backoff: retry.New(firstPause, mostPause)}
	}
	for {
		for i := range turns {
			turns[i].runJob(ctx, log)
		}
		next := slices.MinFunc(turns, func(a, b jobState) int { return a.nextRun.Compare(b.nextRun) }).nextRun
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(next)):
		}
	}
}

// runJob runs a background job if it is due.
func (t *jobState) runJob(ctx context.Context, log *slog.Logger) {
	if ctx.Err() != nil || t.nextRun.After(time.Now()) {
		return
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := t.Do(limited)
	if err == nil {
		t.nextRun = time.Now().Add(t.Every)
		t.backoff.Reset()
		return
	}
	if ctx.Err() != nil {
		return
	}
	pause := t.backoff.Next()
	t.nextRun = time.Now().Add(pause)
	log.WarnContext(ctx, "background job failed", "what", t.What, "pause", pause.String(), "error", err)
}
