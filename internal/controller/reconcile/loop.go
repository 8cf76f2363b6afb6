package reconcile

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const (
	roundSize = 2000 // records that are checked before the jobs run
	atOnce    = 32   // of them
	attempts  = 20   // of a rule whose write lost a race
)

const (
	// RetryInterval is when a record is checked again for which nothing can be done now.
	RetryInterval = 15 * time.Second
	// SweepInterval is how often everything that seldom changes is checked.
	SweepInterval = time.Minute
)

// Options registers what a Loop does.
type Options struct {
	Tick   time.Duration // between two runs of the jobs, and the shortest pause between two checks of a record
	Rules  []Rule        // in the order in which they are checked: the first one that is due is applied
	Paused func() bool   // whether the rules that pause are delayed

	// CheckNode does the work for a node, and returns when it must be checked again; zero: not before
	// something changes.
	CheckNode func(ctx context.Context, id string) (again time.Time, err error)
	// Archive returns the changes that move an instance into the history.
	Archive func(inst *farm.Instance, rev int64) []store.Change
	// Applied is called after a rule has changed an instance; now is nil when it is removed.
	Applied func(ctx context.Context, was, now *farm.Instance) error
	// Jobs returns the periodic tasks; with sweep also those that are seldom due.
	Jobs func(sweep bool) []Job
}

// Loop does the periodic work of the leader. It exists for one leader term, and writes through it.
type Loop struct {
	db    record.DB
	term  *record.Term
	o     Options
	queue *queue
	swept time.Time // when the jobs were last done in full
}

// New returns a loop for a leader term; its queue is empty.
func New(db record.DB, term *record.Term, o Options) *Loop {
	return &Loop{db: db, term: term, o: o, queue: newQueue()}
}

// Put schedules a check of a record no later than a time; a zero time changes nothing.
func (l *Loop) Put(it Item, at time.Time) { l.queue.put(it, at) }

// PutInstance schedules a check of an instance when its first rule is due.
func (l *Loop) PutInstance(inst *farm.Instance) {
	l.queue.put(Item{record.KindInstance, inst.ID}, l.next(inst))
}

// Drop removes the entry of a deleted record.
func (l *Loop) Drop(it Item) { l.queue.drop(it) }

// Len returns how many records have an entry.
func (l *Loop) Len() int { return l.queue.len() }

// Run works until the context ends.
func (l *Loop) Run(ctx context.Context) {
	jobs := time.NewTicker(l.o.Tick)
	defer jobs.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-jobs.C:
			l.runJobs(ctx)
			continue
		case <-l.queue.wake:
		case <-timer.C:
		}
		if next := l.round(ctx); !next.IsZero() {
			timer.Reset(max(next.Sub(l.db.Now()), 0))
		}
	}
}

// runJobs runs the periodic jobs that are due.
func (l *Loop) runJobs(ctx context.Context) {
	now := l.db.Now()
	sweep := now.Sub(l.swept) >= SweepInterval
	if sweep {
		l.swept = now
	}
	for _, job := range l.o.Jobs(sweep) {
		if !job.Due {
			continue
		}
		if err := job.Do(ctx, l.term, now); err != nil && ctx.Err() == nil {
			l.db.Log.WarnContext(ctx, "pruning expired records failed", "what", job.Name, "error", err)
		}
	}
}

// next returns when an instance must be checked, as it is now; zero: never.
func (l *Loop) next(inst *farm.Instance) (first time.Time) {
	for _, r := range l.o.Rules {
		if at := r.When(inst); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// round checks every record whose time has come, and returns the time of the next one.
func (l *Loop) round(ctx context.Context) (next time.Time) {
	ripe, next := l.queue.take(l.db.Now(), roundSize)
	var wg sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for _, it := range ripe {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			l.check(ctx, it)
		})
	}
	wg.Wait()
	return next
}

// check does the work for one record and schedules the next check.
func (l *Loop) check(ctx context.Context, it Item) {
	again, err := time.Time{}, error(nil)
	switch it.Kind {
	case record.KindNode:
		again, err = l.o.CheckNode(ctx, it.ID)
	default:
		again, err = l.CheckInstance(ctx, it.ID)
	}
	soon := l.db.Now().Add(l.o.Tick)
	if err != nil {
		if ctx.Err() == nil {
			l.db.Log.WarnContext(ctx, "reconcile failed", "kind", string(it.Kind), "id", it.ID, "error", err)
		}
		again = soon
	}
	if !again.IsZero() && again.Before(soon) && !again.After(l.db.Now()) {
		again = soon // work that could not be done now is not tried without a pause
	}
	l.queue.put(it, again)
}

// CheckInstance applies the first rule of an instance that is due, and returns when it must be
// checked again.
func (l *Loop) CheckInstance(ctx context.Context, id string) (again time.Time, err error) {
	inst, rev, ok := l.db.Tables.Instances.Get(id)
	for range attempts {
		if !ok {
			return again, nil
		}
		r, due := l.due(inst)
		if !due {
			return l.next(inst), nil
		}
		if r.Pauses && l.o.Paused() {
			return l.db.Now().Add(RetryInterval), nil
		}
		err = l.apply(ctx, r, inst, rev)
		if !errors.Is(err, store.ErrConflict) {
			return again, err // the write schedules the next check
		}
		if inst, rev, err = l.db.Tables.Instances.GetLinearizable(ctx, id); err != nil {
			return again, err
		}
		ok = inst != nil
	}
	return again, store.ErrConflict
}

// due returns the first rule of an instance whose time has come.
func (l *Loop) due(inst *farm.Instance) (Rule, bool) {
	now := l.db.Now()
	for _, r := range l.o.Rules {
		if at := r.When(inst); !at.IsZero() && !at.After(now) {
			return r, true
		}
	}
	return Rule{}, false
}

// apply applies a rule.
func (l *Loop) apply(ctx context.Context, r Rule, inst *farm.Instance, rev int64) error {
	n := r.Do(inst, l.db.Now())
	var err error
	switch n {
	case inst: // nothing was written that would schedule it again
		l.queue.put(Item{record.KindInstance, inst.ID}, l.db.Now().Add(RetryInterval))
		return nil
	case nil:
		err = l.term.Commit(ctx, l.o.Archive(inst, rev)...)
	default:
		err = l.term.Commit(ctx, store.Put(l.db.Tables.Instances, inst.ID, n, store.IfRev(rev)))
	}
	if err != nil {
		return err
	}
	if n != nil && r.Name != "" {
		l.db.Log.WarnContext(ctx, "instance deadline applied", "why", r.Name, "instance", inst.ID, "node", inst.NodeID,
			"was", string(inst.State), "message", n.Message)
	}
	return l.o.Applied(ctx, inst, n)
}
