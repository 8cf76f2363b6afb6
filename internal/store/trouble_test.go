package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
	"github.com/buildyard/buildyard/internal/store/storetest"
)

// switchable is a backend that can be exchanged, as a restore from a backup does, or block.
type switchable struct {
	now      atomic.Pointer[storetest.Faults]
	hang     atomic.Bool
	barriers atomic.Int64
}

var _ store.Backend = (*switchable)(nil)

func newSwitchable(b *mem.Backend) *switchable {
	s := &switchable{}
	s.now.Store(storetest.NewFaults(b))
	return s
}

func (s *switchable) wait(ctx context.Context) error {
	if !s.hang.Load() {
		return nil
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (s *switchable) Commit(ctx context.Context, txn store.Txn) (int64, error) {
	if err := s.wait(ctx); err != nil {
		return 0, fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
	}
	return s.now.Load().Commit(ctx, txn)
}

func (s *switchable) Get(ctx context.Context, key string) (store.KV, error) {
	if err := s.wait(ctx); err != nil {
		return store.KV{}, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return s.now.Load().Get(ctx, key)
}

func (s *switchable) List(ctx context.Context, prefix string, fn func([]store.KV) error) (int64, error) {
	return s.now.Load().List(ctx, prefix, fn)
}

func (s *switchable) Watch(ctx context.Context, prefix string, from int64, fn func(store.WatchBatch) error) error {
	return s.now.Load().Watch(ctx, prefix, from, fn)
}

func (s *switchable) Barrier(ctx context.Context) (int64, error) {
	s.barriers.Add(1)
	if err := s.wait(ctx); err != nil {
		return 0, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return s.now.Load().Barrier(ctx)
}

func (s *switchable) Campaign(ctx context.Context, key string) (store.Lease, error) {
	return s.now.Load().Campaign(ctx, key)
}

func (s *switchable) Limits() store.Limits { return store.DefaultLimits }

func (s *switchable) Close() error { return nil }

type number struct{ N int }

// inBubble runs a test in a bubble of fake time with a store on a switchable backend.
func inBubble(t *testing.T, run func(t *testing.T, b *switchable, s *store.Store, table *store.Table[number])) {
	synctest.Test(t, func(t *testing.T) {
		b := newSwitchable(mem.New())
		table := store.NewTable[number]("n")
		s, err := store.Open(t.Context(), b, store.Options{Tables: []store.AnyTable{table}})
		if err != nil {
			t.Fatal(err)
		}
		run(t, b, s, table)
		b.now.Load().Mend()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestHangingBackend(t *testing.T) {
	inBubble(t, func(t *testing.T, b *switchable, s *store.Store, table *store.Table[number]) {
		began := time.Now()
		b.hang.Store(true)
		err := s.Commit(t.Context(), store.Put(table, "x", &number{1}, store.Any))
		if took := time.Since(began); !errors.Is(err, store.ErrUnknownOutcome) || took > 25*time.Second {
			t.Errorf("%v after %s", err, took)
		}
		if s.Healthy() == nil {
			t.Error("healthy on a backend that hangs")
		}
		began = time.Now()
		if _, _, err := table.GetLinearizable(t.Context(), "x"); !errors.Is(err, store.ErrUnavailable) ||
			time.Since(began) > 6*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		b.hang.Store(false)
		time.Sleep(10 * time.Second)
		if err := s.Healthy(); err != nil {
			t.Errorf("still not healthy: %v", err)
		}
		commit(t, s, store.Put(table, "x", &number{2}, store.IfAbsent))
	})
}

// TestPendingProbe: a replica that may be out of date for some seconds says so, before its probe of the backend fails.
func TestPendingProbe(t *testing.T) {
	inBubble(t, func(t *testing.T, b *switchable, s *store.Store, _ *store.Table[number]) {
		time.Sleep(1500 * time.Millisecond) // a probe has succeeded
		b.hang.Store(true)
		time.Sleep(2 * time.Second)
		if err := s.WatchHealthy(); err != nil {
			t.Errorf("after 2 s: %v", err)
		}
		time.Sleep(2 * time.Second)
		if s.WatchHealthy() == nil {
			t.Error("healthy after 4 s without an answer")
		}
		b.hang.Store(false)
		time.Sleep(5 * time.Second)
		if err := s.WatchHealthy(); err != nil {
			t.Errorf("still not healthy: %v", err)
		}
	})
}

func TestCloseOnHangingBackend(t *testing.T) {
	inBubble(t, func(t *testing.T, b *switchable, s *store.Store, table *store.Table[number]) {
		b.hang.Store(true)
		result := make(chan error, 1)
		go func() { result <- s.Commit(context.Background(), store.Put(table, "x", &number{1}, store.Any)) }()
		synctest.Wait()
		began := time.Now()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("Close took %s", took)
		}
		if err := <-result; !errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("the commit under way: %v", err)
		}
	})
}

func TestSilentWatchIsNoticed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *switchable, s *store.Store, table *store.Table[number]) {
		time.Sleep(5 * time.Second)
		if err := s.Healthy(); err != nil {
			t.Fatal(err)
		}
		b.now.Load().StallWatch()
		commit(t, s, store.Put(table, "x", &number{1}, store.Any))
		time.Sleep(3 * time.Second)
		if s.Healthy() == nil {
			t.Error("healthy with a watch that says nothing")
		}
		b.now.Load().Mend()
		time.Sleep(2 * time.Second)
		if err := s.Healthy(); err != nil {
			t.Errorf("still not healthy: %v", err)
		}
	})
}

// past returns a backend like an old backup: one record of other content, one missing, one more.
func past(t *testing.T, b *mem.Backend, commits int) {
	t.Helper()
	table := store.NewTable[number]("n")
	s, err := store.Open(t.Context(), b, store.Options{Tables: []store.AnyTable{table}})
	if err != nil {
		t.Fatal(err)
	}
	commit(t, s, store.Put(table, "kept", &number{1}, store.Any), store.Put(table, "only then", &number{1}, store.Any))
	for i := range commits {
		commit(t, s, store.Put(table, "busy", &number{i}, store.Any))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRestoredBackend(t *testing.T) {
	for name, tc := range map[string]struct {
		commits, older int
		sameEpoch      bool
	}{
		"revisions go back":                  {older: 2, commits: 30},
		"revisions go back, epoch as it was": {older: 2, commits: 30, sameEpoch: true},
		"revisions go forward":               {older: 60, commits: 30},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *switchable, s *store.Store, table *store.Table[number]) {
				for i := range tc.commits {
					commit(t, s, store.Put(table, "kept", &number{100 + i}, store.Any))
				}
				commit(t, s, store.Put(table, "only now", &number{1}, store.Any))
				epoch := s.Epoch()
				restored := mem.New()
				past(t, restored, tc.older)
				if tc.sameEpoch {
					record := store.KV{Key: store.DefaultPrefix +
						"/v1/meta/epoch", Value: fmt.Appendf(nil, `{"epoch":%q}`, epoch)}
					if _, err := restored.Commit(t.Context(), store.Txn{Puts: []store.KV{record}}); err != nil {
						t.Fatal(err)
					}
				}
				rev, err := restored.Barrier(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				restored.Compact(rev) // a restore marks everything before as compacted
				old := b.now.Swap(storetest.NewFaults(restored))
				old.CutWatch()
				time.Sleep(10 * time.Second)
				got := map[string]int{}
				for id, v := range table.All() {
					got[id] = v.N
				}
				if len(got) != 3 || got["kept"] != 1 || got["only then"] != 1 || got["busy"] != tc.older-1 {
					t.Errorf("tables after the restore: %v", got)
				}
				if (s.Epoch() == epoch) != tc.sameEpoch {
					t.Error("the epoch is not that of the backend")
				}
				if err := s.Healthy(); err != nil {
					t.Error(err)
				}
				commit(t, s, store.Put(table, "new", &number{1}, store.IfAbsent))
				if err := s.Barrier(t.Context()); err != nil {
					t.Error(err)
				}
				old.Mend()
			})
		})
	}
}

func TestBarrierIsShared(t *testing.T) {
	inBubble(t, func(t *testing.T, b *switchable, s *store.Store, _ *store.Table[number]) {
		before := b.barriers.Load()
		var wg sync.WaitGroup
		for range 500 {
			wg.Go(func() {
				if err := s.Barrier(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := b.barriers.Load() - before; n > 3 {
			t.Errorf("%d questions for 500 callers", n)
		}
		b.hang.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Barrier(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("barrier on a backend that hangs: %v", err)
		}
		if err := s.Barrier(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("barrier on a backend that hangs: %v", err)
		}
		b.hang.Store(false)
	})
}
