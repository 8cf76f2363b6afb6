// Package mem is a store.Backend in memory: for tests, for simulation, and as the plainest statement of what a
// backend has to do.
//
// It is not durable and serves one process.
//
// Invariant: one mutex orders everything, so a revision is complete the moment it is visible.
package mem

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/buildyard/buildyard/internal/store"
)

const (
	maxHistoryRevisions = 10_000 // revisions kept for watches
	pageKeys            = 5_000  // keys per page of List
)

// Backend holds all keys. Several stores may share it. The zero value is not usable: see New.
type Backend struct {
	mu        sync.Mutex
	rev       int64
	keys      map[string]storedKey
	history   []store.WatchBatch // one per revision, without a gap, the last is rev
	compacted int64              // history up to here is compacted
	changed   chan struct{}      // closed and replaced at every revision
	closed    bool
}

type storedKey struct {
	value             []byte
	createRev, modRev int64
}

var _ store.Backend = (*Backend)(nil)

// New returns an empty backend at revision 1, like a new etcd.
func New() *Backend {
	return &Backend{rev: 1, compacted: 1, keys: map[string]storedKey{}, changed: make(chan struct{})}
}

// Commit implements store.Backend.
func (b *Backend) Commit(ctx context.Context, txn store.Txn) (int64, error) {
	if err := checkTxn(txn); err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkOpenLocked(ctx); err != nil {
		return 0, err
	}
	if lost := b.failedComparesLocked(txn); len(lost) > 0 {
		return 0, &store.ConflictError{Keys: lost}
	}
	return b.applyLocked(txn), nil
}

// checkTxn refuses what etcd refuses.
func checkTxn(txn store.Txn) error {
	compares := len(txn.Compares)
	if txn.Fence != nil {
		compares++
	}
	if n := len(txn.Puts) + len(txn.Deletes); n == 0 || n > store.DefaultLimits.MaxOps ||
		compares > store.DefaultLimits.MaxOps {
		return fmt.Errorf("%w: transaction with %d writes and %d conditions", store.ErrInvalid, n, compares)
	}
	seen := map[string]bool{}
	for _, kv := range txn.Puts {
		if kv.Key == "" || seen[kv.Key] {
			return fmt.Errorf("%w: key %q is empty or written twice", store.ErrInvalid, kv.Key)
		}
		seen[kv.Key] = true
	}
	for _, key := range txn.Deletes {
		if key == "" || seen[key] {
			return fmt.Errorf("%w: key %q is empty or written twice", store.ErrInvalid, key)
		}
		seen[key] = true
	}
	return nil
}

func (b *Backend) checkOpenLocked(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	if b.closed {
		return fmt.Errorf("%w: backend is closed", store.ErrUnavailable)
	}
	return nil
}

func (b *Backend) failedComparesLocked(txn store.Txn) (lost []string) {
	if f := txn.Fence; f != nil && b.keys[f.Key].createRev != f.CreateRev {
		lost = append(lost, f.Key)
	}
	for _, c := range txn.Compares {
		if b.keys[c.Key].modRev != c.ModRev {
			lost = append(lost, c.Key)
		}
	}
	return lost
}

func (b *Backend) applyLocked(txn store.Txn) int64 {
	rev := b.rev + 1
	batch := store.WatchBatch{Rev: rev}
	for _, kv := range txn.Puts {
		old, ok := b.keys[kv.Key]
		if !ok {
			old.createRev = rev
		}
		value := slices.Clone(kv.Value)
		b.keys[kv.Key] = storedKey{value: value, createRev: old.createRev, modRev: rev}
		batch.Events = append(batch.Events, store.RawEvent{KV: store.KV{Key: kv.Key, Value: value, ModRev: rev}})
	}
	for _, key := range txn.Deletes {
		if _, ok := b.keys[key]; ok {
			delete(b.keys, key)
			batch.Events = append(batch.Events, store.RawEvent{KV: store.KV{Key: key, ModRev: rev}, Deleted: true})
		}
	}
	if len(batch.Events) == 0 {
		return b.rev // nothing existed to delete: no new revision
	}
	b.rev = rev
	b.history = append(b.history, batch)
	if len(b.history) > maxHistoryRevisions {
		b.compactLocked(rev - maxHistoryRevisions/2)
	}
	close(b.changed)
	b.changed = make(chan struct{})
	return rev
}

// Limits implements store.Backend: those of a default etcd.
func (b *Backend) Limits() store.Limits { return store.DefaultLimits }

// Get implements store.Backend.
func (b *Backend) Get(ctx context.Context, key string) (store.KV, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkOpenLocked(ctx); err != nil {
		return store.KV{}, err
	}
	it := b.keys[key]
	return store.KV{Key: key, Value: it.value, ModRev: it.modRev}, nil
}

// List implements store.Backend.
func (b *Backend) List(ctx context.Context, prefix string, fn func([]store.KV) error) (int64, error) {
	kvs, rev, err := b.listPrefix(ctx, prefix)
	if err != nil {
		return 0, err
	}
	slices.SortFunc(kvs, func(x, y store.KV) int { return strings.Compare(x.Key, y.Key) })
	for page := range slices.Chunk(kvs, pageKeys) {
		if err := fn(page); err != nil {
			return 0, err
		}
	}
	return rev, nil
}

func (b *Backend) listPrefix(ctx context.Context, prefix string) (kvs []store.KV, rev int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkOpenLocked(ctx); err != nil {
		return nil, 0, err
	}
	for key, it := range b.keys {
		if strings.HasPrefix(key, prefix) {
			kvs = append(kvs, store.KV{Key: key, Value: it.value, ModRev: it.modRev})
		}
	}
	return kvs, b.rev, nil
}

// Watch implements store.Backend. It reports every revision, so progress need not be requested.
func (b *Backend) Watch(ctx context.Context, prefix string, from int64, fn func(store.WatchBatch) error) error {
	if err := fn(store.WatchBatch{Rev: from - 1}); err != nil {
		return err
	}
	for {
		batches, changed, err := b.batchesSince(ctx, from)
		if err != nil {
			return err
		}
		for _, batch := range batches {
			if err := fn(filterByPrefix(batch, prefix)); err != nil {
				return err
			}
			from = batch.Rev + 1
		}
		if len(batches) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

func (b *Backend) batchesSince(ctx context.Context, from int64) ([]store.WatchBatch, <-chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkOpenLocked(ctx); err != nil {
		return nil, nil, err
	}
	if from <= b.compacted {
		return nil, nil, store.ErrCompacted
	}
	at := min(int(from-b.compacted-1), len(b.history))
	return slices.Clone(b.history[at:]), b.changed, nil
}

func filterByPrefix(batch store.WatchBatch, prefix string) store.WatchBatch {
	own := store.WatchBatch{Rev: batch.Rev}
	for _, ev := range batch.Events {
		if strings.HasPrefix(ev.Key, prefix) {
			own.Events = append(own.Events, ev)
		}
	}
	return own
}

// Barrier implements store.Backend.
func (b *Backend) Barrier(ctx context.Context) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rev, b.checkOpenLocked(ctx)
}

// Compact removes the history up to and including rev, as an etcd does every few minutes.
func (b *Backend) Compact(rev int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.compactLocked(min(rev, b.rev))
}

func (b *Backend) compactLocked(rev int64) {
	if rev > b.compacted {
		b.history = slices.Clone(b.history[rev-b.compacted:])
		b.compacted = rev
	}
}

// Close makes every later call fail and ends the watches.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		close(b.changed)
		b.changed = make(chan struct{})
	}
	return nil
}
