package record

import (
	"context"
	"log/slog"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// DB is what a part of the controller needs of its surroundings: the records, the time and the log.
type DB struct {
	Store  Store
	Tables *Tables
	Now    func() time.Time // in UTC
	Log    *slog.Logger
}

// BarrierTimeout bounds the wait for the tables.
const BarrierTimeout = 5 * time.Second

// UpToDate returns when the tables show everything that was written before the call.
func (d DB) UpToDate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, BarrierTimeout)
	defer cancel()
	return d.Store.Barrier(ctx)
}

// CommitHook returns the changes of a commit with those that belong to it: at most one more.
type CommitHook func(ctx context.Context, changes []store.Change) []store.Change

// Store is the store for the use cases: every commit passes the hook, which adds the events that
// result from it to the same transaction. Without a hook it only forwards to the store.
type Store struct {
	*store.Store
	hook CommitHook // nil: none
}

var _ store.Writer = Store{}

// NewStore returns the store with a hook; nil for none.
func NewStore(st *store.Store, hook CommitHook) Store { return Store{st, hook} }

// Commit implements store.Writer.
func (s Store) Commit(ctx context.Context, changes ...store.Change) error {
	if s.hook == nil {
		return s.Store.Commit(ctx, changes...)
	}
	return s.Store.Commit(ctx, s.hook(ctx, changes)...)
}

// WithFence is WithFence of the store, with the hook.
func (s Store) WithFence(fence store.Fence) store.Writer {
	if s.hook == nil {
		return s.Store.WithFence(fence)
	}
	return hookedWriter{s.Store.WithFence(fence), s.hook}
}

// Limits reserves one change of each commit for the hook.
func (s Store) Limits() store.Limits {
	limits := s.Store.Limits()
	if s.hook != nil {
		limits.MaxOps--
	}
	return limits
}

// hookedWriter is a writer whose commits pass a hook.
type hookedWriter struct {
	to   store.Writer
	hook CommitHook
}

func (w hookedWriter) Commit(ctx context.Context, changes ...store.Change) error {
	return w.to.Commit(ctx, w.hook(ctx, changes)...)
}

// TxnAttempts is how often a transaction that lost a race is tried.
const TxnAttempts = 20

// Lookup reads a record from memory, and from the store itself before it returns farm.CodeNotFound:
// another replica may have created it a moment ago.
func Lookup[T any](ctx context.Context, table *store.Table[T], id string) (*T, int64, error) {
	if r, rev, ok := table.Get(id); ok {
		return r, rev, nil
	}
	if !ValidID(id) {
		return nil, 0, farm.NotFound()
	}
	r, rev, err := table.GetLinearizable(ctx, id)
	if err == nil && r == nil {
		err = farm.NotFound()
	}
	if err != nil {
		return nil, 0, err
	}
	return r, rev, nil
}

// LookupInstance is Lookup for an instance that a client names: a standby is not found. This replica may not know yet
// that a start has claimed it: then the tables are brought up to date.
func LookupInstance(ctx context.Context, db DB, id string) (*farm.Instance, error) {
	inst, _, err := Lookup(ctx, db.Tables.Instances, id)
	if err != nil || !inst.IsStandby() {
		return inst, err
	}
	if err := db.UpToDate(ctx); err != nil {
		return nil, farm.Unavailable(err, "The store cannot be reached; try again")
	}
	if inst, _, ok := db.Tables.Instances.Get(id); ok && !inst.IsStandby() {
		return inst, nil
	}
	return nil, farm.NotFound()
}

// HasStandbys reports whether a view has a standby. It reads none of the other records.
func HasStandbys(view *store.View[farm.Instance]) bool {
	for range view.Where(ByStandby, AllCallers) {
		return true
	}
	return false
}
