package usage

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/store"
)

// load resumes from what is recorded.
func (t *usageStats) load() {
	for _, f := range t.db.Tables.Series.All() {
		t.take(f)
	}
}

// observe takes over steps that another replica recorded before this one was started.
func (t *usageStats) observe(events []store.Event) {
	for _, e := range events {
		if f, ok := e.New.(*record.SeriesRecord); ok {
			t.take(f)
		}
	}
}

// take takes over a recorded step of which more was counted than of our own.
func (t *usageStats) take(f *record.SeriesRecord) {
	if f.Usage == nil {
		return
	}
	now := t.db.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.rings {
		r := &t.rings[i]
		last := r.number(now)
		if f.Step != int64(r.step/time.Second) || f.Usage.At > last || f.Usage.At <= last-r.size {
			continue
		}
		if own := r.steps[f.Usage.At]; own == nil || own.samples < f.Usage.Samples {
			r.steps[f.Usage.At] = usageStepOf(f.Usage)
		}
	}
}

// usageStepOf returns the usage of a recorded step.
func usageStepOf(f *record.UsageStep) *usageStep {
	s := newUsageStep()
	s.samples = f.Samples
	for i := range f.Rows {
		r := &f.Rows[i]
		s.row(usageKey{r.By, r.Key, r.Other}, r.Name).add(&usageRow{
			seconds: max(r.Seconds, 0), starts: max(r.Starts, 0), failures: max(r.Failures, 0),
			queued: timesOf(r.Queued), started: timesOf(r.Started),
		})
	}
	s.shrink()
	return s
}

// toRecord returns the stored form of a step.
func (s *usageStep) toRecord(at int64) *record.UsageStep {
	s.shrink()
	f := &record.UsageStep{At: at, Samples: s.samples}
	for _, by := range dimensions {
		keys := sortedKeys(s.rows, by)
		if other := (usageKey{by: by, other: true}); s.rows[other] != nil {
			keys = append(keys, other)
		}
		for _, k := range keys {
			r := s.rows[k]
			f.Rows = append(f.Rows, record.UsageRow{
				By: by, Key: k.key, Other: k.other, Name: r.name, Seconds: r.seconds, Starts: r.starts,
				Failures: r.failures, Queued: r.queued.pairs(), Started: r.started.pairs(),
			})
		}
	}
	return f
}

// keep records the steps that changed. Outdated records are removed with those of the series.
func (t *usageStats) keep(ctx context.Context, term *record.Term, now time.Time) error {
	t.mu.Lock()
	if pause := now.Sub(t.tried); pause >= 0 && pause < StoreInterval {
		t.mu.Unlock()
		return nil
	}
	t.tried = now
	changes := t.changesLocked()
	t.mu.Unlock()

	for _, change := range changes {
		if err := term.Commit(ctx, change); err != nil {
			return err
		}
	}
	t.mu.Lock()
	t.kept = now
	t.mu.Unlock()
	return nil
}

// changesLocked returns the records of the steps that changed since they were recorded.
func (t *usageStats) changesLocked() (changes []store.Change) {
	for _, r := range t.rings {
		for at, s := range r.steps {
			if s.changed.Before(t.kept) {
				continue
			}
			f := &record.SeriesRecord{Step: int64(r.step / time.Second), Usage: s.toRecord(at)}
			changes = append(changes, store.Put(t.db.Tables.Series, recordID("u", r.step, at), f, store.Any))
		}
	}
	return changes
}
