// Package store keeps the cloud's records: durable in a Backend, readable in memory, changed only
// by compare-and-swap.
//
// A Store lists all records at its start, then follows ONE ordered watch and applies its own
// commits immediately, so that reading takes no lock and sees every write of this process. Writes
// of all callers go through a group committer.
//
// It excludes what a database adds: there are no queries beyond tables and their indexes,
// everything is in memory, and it does not interpret the records. Heartbeats, logs and scripts do
// not belong here.
//
// Invariant: a record in memory only ever moves to a higher revision, and a commit that was
// answered with success is durable and visible to every read that begins after the answer.
package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/metric"
)

// closeTimeout bounds the wait of Close for a backend that does not answer.
const closeTimeout = 5 * time.Second

// DefaultPrefix begins every key unless Options has another one.
const DefaultPrefix = "/buildyard"

// Options of a Store.
type Options struct {
	Prefix  string       // first part of every key; empty: DefaultPrefix
	Replica string       // unique name of this process among those on the backend; empty: a random one
	Logger  *slog.Logger // nil: silent
	Tables  []AnyTable   // every existing *Table[T]; records of other kinds are ignored

	// Expendable is the one of Tables whose records may be deleted when the backend is full and
	// nothing else frees space, those with the last ids first; nil: none. It serves one Store per
	// backend.
	Expendable AnyTable
}

// Store is the only access to the records. It is safe for concurrent use. Close it before its
// backend.
type Store struct {
	backend      Backend
	limits       Limits // of backend
	log          *slog.Logger
	prefix       string // without a slash at its end
	recordPrefix string // prefix of every record key, with a slash at its end
	meta         *Table[storeMeta]

	expendable AnyTable // may be nil

	snapshotOpen atomic.Bool // a backup is being read

	model         *model
	dispatcher    *dispatcher
	committer     *committer
	barrier       barrierBatcher
	health        healthState
	commitSeconds *metric.Histogram // commits, from the call to the answer

	ctx    context.Context // ends when the store has closed; for what no caller's ctx covers
	cancel context.CancelFunc
	tasks  sync.WaitGroup // grows under mu while not closed

	mu     sync.Mutex
	leases []Lease
	closed bool
}

// Open reads every record and begins to follow the backend. It returns when the tables are
// complete. ctx limits the opening only. The caller still owns the backend: several stores may
// share one.
func Open(ctx context.Context, backend Backend, opts Options) (*Store, error) {
	s, err := newStore(backend, opts)
	if err != nil {
		return nil, err
	}
	if err := s.load(ctx); err != nil {
		for _, t := range s.model.tables {
			t.unbindStore(s)
		}
		return nil, err
	}
	return s, nil
}

func (s *Store) load(ctx context.Context) error {
	if err := s.checkSchema(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := s.relist(ctx); err != nil {
		return fmt.Errorf("list all records: %w", err)
	}
	s.log.Debug("all records listed", "took", time.Since(began))
	s.allowTrimming(s.expendable)
	s.start() //nolint:contextcheck // the store outlives its opening
	if err := s.ensureMeta(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

func newStore(backend Backend, opts Options) (*Store, error) {
	s := &Store{
		backend: backend, limits: backend.Limits(), log: opts.Logger,
		expendable: opts.Expendable, prefix: strings.TrimRight(opts.Prefix, "/"),
		commitSeconds: metric.NewHistogram(metric.Short),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.prefix == "" {
		s.prefix = DefaultPrefix
	}
	s.recordPrefix = s.prefix + "/v1/"
	replica := opts.Replica
	if replica == "" {
		replica = rand.Text()
	}
	s.dispatcher = newDispatcher()
	s.model = newModel(s.dispatcher)
	s.committer = newCommitter(s, replica)
	s.meta = NewTable[storeMeta](metaKind)
	for _, t := range append([]AnyTable{s.meta}, opts.Tables...) {
		kind := t.Kind()
		if kind == "" || strings.Contains(string(kind), "/") || s.model.tables[kind] != nil {
			return nil, fmt.Errorf("%w: table kind %q is empty, already used, or has a slash", ErrInvalid, kind)
		}
		if !t.bindStore(s) {
			return nil, fmt.Errorf("%w: table %q belongs to another store", ErrInvalid, kind)
		}
		s.model.tables[kind] = t
	}
	return s, nil
}

func (s *Store) start() {
	ctx, stop := context.WithCancel(context.Background())
	s.ctx, s.cancel = ctx, stop
	go s.dispatcher.run()
	s.tasks.Go(func() { s.watch(ctx) })
	s.tasks.Go(func() { s.probeBackend(ctx) })
	s.committer.start(ctx)
}

// recordKey returns the backend key of a record.
func (s *Store) recordKey(kind Kind, id string) string {
	return s.recordPrefix + string(kind) + "/" + id
}

// Commit applies all changes or none. When it returns nil they are durable and every table shows
// them. The errors are ErrConflict, ErrBusy, ErrInvalid, ErrUnavailable, ErrClosed and the end of
// ctx before the changes were sent, all of them with nothing written, and ErrUnknownOutcome, also
// when ctx ends after they were sent.
func (s *Store) Commit(ctx context.Context, changes ...Change) error {
	return s.commit(ctx, nil, changes)
}

// CommitFenced is Commit for the holder of a lease: ErrFenced when the lease of fence is no longer
// active.
func (s *Store) CommitFenced(ctx context.Context, fence Fence, changes ...Change) error {
	return s.WithFence(fence).Commit(ctx, changes...)
}

// WithFence returns a Writer whose every commit is fenced by the lease.
func (s *Store) WithFence(fence Fence) Writer { return fencedWriter{s, fence} }

type fencedWriter struct {
	store *Store
	fence Fence
}

func (f fencedWriter) Commit(ctx context.Context, changes ...Change) error {
	return f.store.commit(ctx, &f.fence, changes)
}

func (s *Store) commit(ctx context.Context, fence *Fence, changes []Change) error {
	r, err := s.newCommitRequest(fence, changes)
	if err != nil {
		return err
	}
	if err := s.schemaError(); err != nil {
		return err
	}
	began := time.Now()
	if err := s.committer.enqueue(r); err != nil {
		return err
	}
	defer func() { s.commitSeconds.Observe(time.Since(began)) }()
	select {
	case err := <-r.result:
		return err
	case <-ctx.Done():
	}
	if s.committer.removeQueued(r) {
		return fmt.Errorf("commit: %w", context.Cause(ctx))
	}
	select {
	case err := <-r.result:
		return err
	default:
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, context.Cause(ctx))
	}
}

// QueuedCommits returns the number of commits that wait for a transaction now.
func (s *Store) QueuedCommits() int {
	s.committer.mu.Lock()
	defer s.committer.mu.Unlock()
	return len(s.committer.queue)
}

// Families returns the metrics of the store.
func (s *Store) Families() []metric.Family {
	return []metric.Family{
		metric.HistogramFamily("buildyard_store_commit_seconds", "Duration of a commit to the store",
			s.commitSeconds),
		metric.GaugeFamily("buildyard_store_queued_commits", "Commits that wait for an earlier one",
			func() float64 { return float64(s.QueuedCommits()) }),
	}
}

// Subscribe calls fn with every change applied to the tables from now on, including own commits:
// from one goroutine, per record in order, never while a lock is held. fn may read tables and
// commit, but a slow fn delays all subscribers. To build on the present records, subscribe first
// and read the tables after; an event may then be seen twice, which its Rev shows. Reading the
// table inside fn may return a later state than the event.
func (s *Store) Subscribe(fn func([]Event)) (cancel func()) { return s.dispatcher.subscribe(fn) }

// Campaign waits until this process holds the named lease. The store resigns it when it is closed.
func (s *Store) Campaign(ctx context.Context, name string) (Lease, error) {
	lease, err := s.backend.Campaign(ctx, s.prefix+"/lease/"+name)
	if err != nil {
		return nil, fmt.Errorf("campaign for the lease %s: %w", name, err)
	}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.leases = append(slices.DeleteFunc(s.leases, isLost), lease)
	}
	s.mu.Unlock()
	if closed {
		return nil, errors.Join(ErrClosed, s.resign(lease)) //nolint:contextcheck // also when the caller has stopped waiting
	}
	return lease, nil
}

func isLost(lease Lease) bool {
	select {
	case <-lease.Lost():
		return true
	default:
		return false
	}
}

func (s *Store) resign(lease Lease) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return lease.Resign(ctx)
}

// Close fails queued commits, waits for running ones, resigns every lease and stops following. The
// tables keep their last state. A second call returns nil. It must not be called from a subscriber.
func (s *Store) Close() error {
	s.mu.Lock()
	leases, closed := s.leases, s.closed
	s.leases, s.closed = nil, true
	s.mu.Unlock()
	if closed {
		return nil
	}
	defer time.AfterFunc(closeTimeout, s.cancel).Stop() // Close must not wait indefinitely
	s.committer.close()
	var errs []error
	for _, lease := range leases {
		errs = append(errs, s.resign(lease))
	}
	s.cancel()
	s.tasks.Wait()
	s.dispatcher.close()
	return errors.Join(errs...)
}
