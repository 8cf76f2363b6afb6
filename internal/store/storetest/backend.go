package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/internal/store"
)

var backendTests = []testCase{
	{"backend/compare and swap", backendCompare},
	{"backend/a transaction is whole", backendAtomic},
	{"backend/refuses what it cannot do", backendRefuses},
	{"backend/list at one revision", backendList},
	{"backend/watch in order", backendWatch},
	{"backend/watch after compaction", backendCompacted},
	{"backend/barrier", backendBarrier},
}

func put(key, value string) store.KV { return store.KV{Key: key, Value: []byte(value)} }

func (b *bench) commit(t *testing.T, txn store.Txn) int64 {
	t.Helper()
	rev, err := b.Backend.Commit(b.ctx, txn)
	must(t, err)
	return rev
}

func (b *bench) value(t *testing.T, key string) string {
	t.Helper()
	kv, err := b.Backend.Get(b.ctx, key)
	must(t, err)
	return string(kv.Value)
}

func backendCompare(t *testing.T, b *bench) {
	key := b.key("x")
	create := store.Txn{Compares: []store.Compare{{Key: key}}, Puts: []store.KV{put(key, "1")}}
	rev := b.commit(t, create)
	kv, err := b.Backend.Get(b.ctx, key)
	must(t, err)
	if kv.ModRev != rev || string(kv.Value) != "1" {
		t.Errorf("got %q at %d, want 1 at %d", kv.Value, kv.ModRev, rev)
	}
	_, err = b.Backend.Commit(b.ctx, create)
	wantKeys(t, err, key)
	next := b.commit(t, store.Txn{Compares: []store.Compare{{Key: key, ModRev: rev}}, Puts: []store.KV{put(key, "2")}})
	if next <= rev {
		t.Errorf("revision %d after %d", next, rev)
	}
	_, err = b.Backend.Commit(b.ctx,
		store.Txn{Compares: []store.Compare{{Key: key, ModRev: rev}}, Deletes: []string{key}})
	wantKeys(t, err, key)
	b.commit(t, store.Txn{Compares: []store.Compare{{Key: key, ModRev: next}}, Deletes: []string{key}})
	if kv, err = b.Backend.Get(b.ctx, key); err != nil || kv.ModRev != 0 {
		t.Errorf("deleted key: %v, %v", kv, err)
	}
	b.commit(t, create)
}

// wantKeys checks that err is a conflict on exactly these keys.
func wantKeys(t *testing.T, err error, keys ...string) {
	t.Helper()
	var conflict *store.ConflictError
	if !errors.As(err, &conflict) || !errors.Is(err, store.ErrConflict) || !slices.Equal(conflict.Keys, keys) {
		t.Errorf("got %v, want a conflict on %v", err, keys)
	}
}

func backendAtomic(t *testing.T, b *bench) {
	x, y, z := b.key("x"), b.key("y"), b.key("z")
	rev := b.commit(t, store.Txn{Puts: []store.KV{put(x, "1"), put(y, "1")}})
	_, err := b.Backend.Commit(b.ctx, store.Txn{
		Compares: []store.Compare{{Key: x, ModRev: rev}, {Key: y, ModRev: rev - 1}, {Key: z, ModRev: 7}},
		Puts:     []store.KV{put(x, "2")},
		Deletes:  []string{y},
	})
	wantKeys(t, err, y, z)
	if b.value(t, x) != "1" || b.value(t, y) != "1" {
		t.Error("a failed transaction left something behind")
	}
}

func backendRefuses(t *testing.T, b *bench) {
	x := b.key("x")
	many := store.Txn{}
	for i := range 2000 {
		many.Puts = append(many.Puts, put(b.key(fmt.Sprint(i)), "1"))
	}
	for name, txn := range map[string]store.Txn{
		"one key twice":   {Puts: []store.KV{put(x, "1"), put(x, "2")}},
		"put and delete":  {Puts: []store.KV{put(x, "1")}, Deletes: []string{x}},
		"an empty key":    {Puts: []store.KV{put("", "1")}},
		"too many writes": many,
	} {
		if _, err := b.Backend.Commit(b.ctx, txn); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if _, err := b.Backend.Commit(ctx, store.Txn{Puts: []store.KV{put(x, "1")}}); !errors.Is(err,
		store.ErrUnavailable) {
		t.Errorf("ended context: %v", err)
	}
	if got := b.value(t, x); got != "" {
		t.Errorf("a refused transaction wrote %q", got)
	}
}

func backendList(t *testing.T, b *bench) {
	const n = 10_500 // more than two pages
	var rev int64
	for at := 0; at < n; at += 100 {
		var txn store.Txn
		for i := range 100 {
			txn.Puts = append(txn.Puts, put(b.key(fmt.Sprintf("%06d", at+i)), "old"))
		}
		rev = b.commit(t, txn)
	}
	neighbor := b.prefix + "/v1/ab/1"
	b.commit(t, store.Txn{Puts: []store.KV{put(neighbor, "not under the prefix")}})
	var keys []string
	got, err := b.Backend.List(b.ctx, b.key(""), func(kvs []store.KV) error {
		for _, kv := range kvs {
			keys = append(keys, kv.Key)
			if string(kv.Value) != "old" {
				t.Fatalf("%s is %q: written after the listing began", kv.Key, kv.Value)
			}
		}
		// What is written between the pages must not show.
		b.commit(t, store.Txn{
			Puts:    []store.KV{put(b.key("009999"), "new"), put(b.key("010499x"), "new")},
			Deletes: []string{b.key("010400")},
		})
		return nil
	})
	must(t, err)
	if len(keys) != n || !slices.IsSorted(keys) {
		t.Errorf("%d keys, sorted %v; want %d in order", len(keys), slices.IsSorted(keys), n)
	}
	if got <= rev {
		t.Errorf("listed at %d, last write before it was after %d", got, rev)
	}
	if _, err := b.Backend.List(b.ctx, b.prefix+"/nothing/", func(kvs []store.KV) error {
		if len(kvs) > 0 {
			t.Errorf("%d keys where none are", len(kvs))
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// errEnough ends a watch that has received enough.
var errEnough = errors.New("enough")

// watched collects the batches with events from revision from on, until there are n.
func (b *bench) watched(from int64, n int) (batches []store.WatchBatch, err error) {
	first := true
	err = b.Backend.Watch(b.ctx, b.key(""), from, func(batch store.WatchBatch) error {
		if first && (batch.Rev != from-1 || len(batch.Events) > 0) {
			return fmt.Errorf("first batch is %v, want an empty one of revision %d", batch, from-1)
		}
		first = false
		if len(batch.Events) > 0 {
			batches = append(batches, batch)
		}
		if len(batches) == n {
			return errEnough
		}
		return nil
	})
	return batches, err
}

func backendWatch(t *testing.T, b *bench) {
	x, y := b.key("x"), b.key("y")
	var want []int64
	want = append(want, b.commit(t, store.Txn{Puts: []store.KV{put(x, "1"), put(y, "1")}}))
	for i := range 50 {
		want = append(want, b.commit(t, store.Txn{Puts: []store.KV{put(x, fmt.Sprint(i))}}))
		b.commit(t, store.Txn{Puts: []store.KV{put(b.prefix+"/elsewhere", "1")}})
	}
	want = append(want, b.commit(t, store.Txn{Deletes: []string{y}, Puts: []store.KV{put(x, "end")}}))
	batches, err := b.watched(want[0], len(want))
	if !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	for i, batch := range batches {
		if batch.Rev != want[i] {
			t.Fatalf("batch %d has revision %d, want %d", i, batch.Rev, want[i])
		}
		for _, ev := range batch.Events {
			if ev.ModRev != batch.Rev {
				t.Errorf("%s has revision %d in the batch of %d", ev.Key, ev.ModRev, batch.Rev)
			}
		}
	}
	if n := len(batches[0].Events); n != 2 {
		t.Errorf("the first revision changed 2 keys, the watch says %d", n)
	}
	last := batches[len(batches)-1].Events
	if len(last) != 2 || slices.IndexFunc(last, func(ev store.RawEvent) bool { return ev.Deleted && ev.Key == y }) < 0 {
		t.Errorf("last revision: %v", last)
	}
	if batches, err = b.watched(want[3], 1); !errors.Is(err, errEnough) || batches[0].Rev != want[3] {
		t.Errorf("a watch from the middle begins with %v, %v", batches, err)
	}
}

func backendCompacted(t *testing.T, b *bench) {
	x := b.key("x")
	first := b.commit(t, store.Txn{Puts: []store.KV{put(x, "1")}})
	b.commit(t, store.Txn{Puts: []store.KV{put(x, "2")}})
	last := b.commit(t, store.Txn{Puts: []store.KV{put(x, "3")}})
	must(t, b.Compact(last))
	if _, err := b.watched(first, 3); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("got %v, want ErrCompacted", err)
	}
	next := b.commit(t, store.Txn{Puts: []store.KV{put(x, "4")}})
	if batches, err := b.watched(last+1, 1); !errors.Is(err, errEnough) || batches[0].Rev != next {
		t.Errorf("a watch after the compaction: %v, %v", batches, err)
	}
}

func backendBarrier(t *testing.T, b *bench) {
	rev := b.commit(t, store.Txn{Puts: []store.KV{put(b.key("x"), "1")}})
	got, err := b.Backend.Barrier(b.ctx)
	must(t, err)
	if got < rev {
		t.Errorf("barrier at %d, before the commit at %d", got, rev)
	}
	// A watch without changes must still report its progress.
	target := b.commit(t, store.Txn{Puts: []store.KV{put(b.prefix+"/elsewhere", "1")}})
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	// Nothing is written after it, so this watch begins in the future. Others must get their
	// progress all the same.
	begun, later := make(chan struct{}), make(chan error, 1)
	go func() {
		begins := sync.OnceFunc(func() { close(begun) })
		later <- b.Backend.Watch(ctx, b.key("later"), target+1, func(store.WatchBatch) error { begins(); return nil })
	}()
	<-begun
	reached, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- b.Backend.Watch(ctx, b.key(""), rev+1, func(batch store.WatchBatch) error {
			if batch.Rev >= target {
				close(reached)
				return errEnough
			}
			return nil
		})
	}()
	eventually(t, "progress of an idle watch", func() bool {
		if _, err := b.Backend.Barrier(b.ctx); err != nil {
			t.Fatal(err)
		}
		select {
		case <-reached:
			return true
		default:
			return false
		}
	})
	if err := <-ended; !errors.Is(err, errEnough) {
		t.Error(err)
	}
	go func() {
		ended <- b.Backend.Watch(ctx, b.key(""), rev+1, func(store.WatchBatch) error { return nil })
	}()
	cancel()
	for _, ended := range []chan error{ended, later} {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a canceled watch ends with %v", err)
		}
	}
}
