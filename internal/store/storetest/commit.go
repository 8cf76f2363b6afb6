package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

var commitTests = []testCase{
	{"commit/conditions", commitConditions},
	{"commit/all or nothing", commitAtomic},
	{"commit/refuses what cannot be", commitRefuses},
	{"commit/only the loser of a shared transaction loses", commitSplit},
	{"commit/queue is bounded", commitQueue},
	{"commit/callers share transactions", commitShares},
	{"commit/cancel", commitCancel},
	{"commit/close", commitClose},
	{"commit/update counts", commitUpdate},
	{"commit/checks compare and write nothing", checkConditions},
	{"commit/checks of one record share", checkShares},
	{"commit/only the stale check loses", checkSplit},
}

func rec(n int) *Record { return &Record{N: n} }

// wantConflict checks that err is a conflict on exactly these records.
func wantConflict(t *testing.T, err error, records ...string) {
	t.Helper()
	wantKeys(t, err, records...)
}

func commitConditions(t *testing.T, b *bench) {
	r := b.open(t)
	must(t, r.Commit(b.ctx, store.Put(r.a, "x", rec(1), store.IfAbsent)))
	wantConflict(t, r.Commit(b.ctx, store.Put(r.a, "x", rec(2), store.IfAbsent)), "a/x")
	wantConflict(t, r.Commit(b.ctx, store.Put(r.a, "y", rec(2), store.IfRev(5))), "a/y")
	_, rev, _ := r.a.Get("x")
	must(t, r.Commit(b.ctx, store.Put(r.a, "x", rec(2), store.IfRev(rev))))
	wantConflict(t, r.Commit(b.ctx, store.Put(r.a, "x", rec(3), store.IfRev(rev))), "a/x")
	wantConflict(t, r.Commit(b.ctx, store.Delete(r.a, "x", store.IfRev(rev))), "a/x")
	must(t, r.Commit(b.ctx, store.Put(r.a, "x", rec(4), store.Any)))
	if got, _, ok := r.a.Get("x"); !ok || got.N != 4 {
		t.Errorf("got %v, want 4", got)
	}
	must(t, r.Commit(b.ctx, store.Delete(r.a, "x", store.Any)))
	must(t, r.Commit(b.ctx, store.Delete(r.a, "x", store.Any)))
	must(t, r.Commit(b.ctx, store.Delete(r.a, "x", store.IfAbsent)))
	if _, _, ok := r.a.Get("x"); ok || r.a.Len() != 0 {
		t.Error("a deleted record is still there")
	}
	must(t, r.Commit(b.ctx, store.Put(r.a, "x", rec(5), store.IfAbsent)))
}

func commitAtomic(t *testing.T, b *bench) {
	r := b.open(t)
	must(t, r.Commit(b.ctx, store.Put(r.a, "x", rec(1), store.IfAbsent), store.Put(r.b, "x", rec(1), store.IfAbsent)))
	err := r.Commit(b.ctx,
		store.Put(r.a, "new", rec(2), store.IfAbsent),
		store.Put(r.a, "x", rec(2), store.Any),
		store.Delete(r.b, "x", store.IfRev(1)))
	wantConflict(t, err, "b/x")
	for _, got := range []map[string]Record{contents(r.a), contents(r.b)} {
		if len(got) != 1 || got["x"].N != 1 {
			t.Errorf("a failed commit left %v", got)
		}
	}
	if b.value(t, b.key("new")) != "" {
		t.Error("a failed commit reached the backend")
	}
}

func commitRefuses(t *testing.T, b *bench) {
	r := b.open(t)
	var many []store.Change
	limit := r.Limits().MaxOps
	for i := range limit + 1 {
		many = append(many, store.Put(r.a, fmt.Sprint(i), rec(i), store.Any))
	}
	unknown := store.NewTable[Record]("a")
	for name, changes := range map[string][]store.Change{
		"nothing":        nil,
		"too many":       many,
		"an empty id":    {store.Put(r.a, "", rec(1), store.Any)},
		"a long id":      {store.Put(r.a, strings.Repeat("x", 1000), rec(1), store.Any)},
		"one record two": {store.Put(r.a, "x", rec(1), store.Any), store.Delete(r.a, "x", store.Any)},
		"an empty check": {store.Put(r.a, "x", rec(1), store.Any), store.Check(r.a, "y", store.Any)},
		"no value":       {store.Put[Record](r.a, "x", nil, store.Any)},
		"too big":        {store.Put(r.a, "x", &Record{Text: strings.Repeat("x", store.MaxBytes)}, store.Any)},
		"unknown table":  {store.Put(unknown, "x", rec(1), store.Any)},
	} {
		if err := r.Commit(b.ctx, changes...); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	must(t, r.Commit(b.ctx, many[:limit]...))
	if r.a.Len() != limit {
		t.Errorf("%d records, want %d", r.a.Len(), limit)
	}
}

// occupy starts both concurrent transactions, and delays them until Mend.
func (r *replica) occupy(t *testing.T, b *bench) (wait func()) {
	t.Helper()
	r.faults.HoldCommits()
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			if err := r.Commit(b.ctx, store.Put(r.b, fmt.Sprintf("filler%d", i), rec(i), store.Any)); err != nil {
				t.Errorf("filler: %v", err)
			}
		})
		eventually(t, "a held transaction", func() bool { return r.faults.Waiting() == i+1 })
	}
	return wg.Wait
}

// queue commits in the background and returns once the commit is queued.
func (r *replica) queue(t *testing.T, b *bench, w store.Writer, changes ...store.Change) <-chan error {
	t.Helper()
	before, result := r.QueuedCommits(), make(chan error, 1)
	go func() { result <- w.Commit(b.ctx, changes...) }()
	eventually(t, "a queued commit", func() bool { return r.QueuedCommits() > before })
	return result
}

func commitSplit(t *testing.T, b *bench) {
	r, other := b.open(t), b.open(t)
	must(t, r.Commit(b.ctx, store.Put(r.a, "hot", rec(1), store.IfAbsent)))
	_, rev, _ := r.a.Get("hot")
	lease, err := r.Campaign(b.ctx, "work")
	must(t, err)
	r.faults.StallWatch() // it must not see the other's changes
	must(t, other.Commit(b.ctx, store.Put(other.a, "hot", rec(2), store.Any)))
	must(t, b.Expire(lease.Fence()))

	wait := r.occupy(t, b)
	var good []<-chan error
	for i := range 20 {
		good = append(good, r.queue(t, b, r, store.Put(r.a, fmt.Sprint(i), rec(i), store.IfAbsent)))
	}
	stale := r.queue(t, b, r, store.Put(r.a, "hot", rec(3), store.IfRev(rev)),
		store.Put(r.a, "with it", rec(3), store.Any))
	fenced := r.queue(t, b, r.WithFence(lease.Fence()), store.Put(r.a, "fenced", rec(1), store.Any))
	before := r.faults.Commits()
	r.faults.Mend()
	wait()
	for i, result := range good {
		if err := <-result; err != nil {
			t.Errorf("commit %d in bad company: %v", i, err)
		}
	}
	wantConflict(t, <-stale, "a/hot")
	if err := <-fenced; !errors.Is(err, store.ErrFenced) {
		t.Errorf("commit under a lost lease: %v", err)
	}
	if n := r.faults.Commits() - before; n > 3 {
		t.Errorf("%d transactions for one shared commit with two losers", n)
	}
	must(t, r.Barrier(b.ctx))
	if got := contents(r.a); len(got) != 21 || got["hot"].N != 2 {
		t.Errorf("table holds %v", got)
	}
}

func commitQueue(t *testing.T, b *bench) {
	r := b.open(t)
	wait := r.occupy(t, b)
	const bound = 4096
	var wg sync.WaitGroup
	for i := range bound {
		wg.Go(func() {
			if err := r.Commit(b.ctx, store.Put(r.a, fmt.Sprint(i), rec(i), store.IfAbsent)); err != nil {
				t.Errorf("queued commit: %v", err)
			}
		})
	}
	eventually(t, "a full queue", func() bool { return r.QueuedCommits() == bound })
	if err := r.Commit(b.ctx, store.Put(r.a, "one more", rec(0), store.Any)); !errors.Is(err, store.ErrBusy) ||
		farm.CodeOf(err) != farm.CodeUnavailable {
		t.Errorf("got %v, want ErrBusy, which is answered as a service that is away for a moment", err)
	}
	r.faults.Mend()
	wait()
	wg.Wait()
	if _, _, ok := r.a.Get("one more"); ok || r.a.Len() != bound {
		t.Errorf("%d records, want %d", r.a.Len(), bound)
	}
}

func commitShares(t *testing.T, b *bench) {
	r := b.open(t)
	wait := r.occupy(t, b)
	var results []<-chan error
	for i := range 200 {
		results = append(results, r.queue(t, b, r, store.Put(r.a, fmt.Sprint(i), rec(i), store.IfAbsent)))
	}
	// Changes of one record wait for each other; the last one queued wins.
	for i := range 3 {
		results = append(results, r.queue(t, b, r, store.Put(r.a, "0", rec(1000+i), store.Any)))
	}
	// So do those behind a commit that has to wait for a running one.
	results = append(results,
		r.queue(t, b, r, store.Put(r.b, "filler0", rec(1), store.Any), store.Put(r.a, "behind", rec(1), store.Any)),
		r.queue(t, b, r, store.Put(r.a, "behind", rec(2), store.Any)))
	before := r.faults.Commits()
	r.faults.Mend()
	wait()
	for _, result := range results {
		must(t, <-result)
	}
	if n := r.faults.Commits() - before; n > 7 {
		t.Errorf("%d transactions for 205 queued commits", n)
	}
	if got, _, _ := r.a.Get("behind"); got.N != 2 {
		t.Errorf("got %d, want the change that was queued last", got.N)
	}
	if got, _, _ := r.a.Get("0"); got.N != 1002 {
		t.Errorf("got %d, want the change that was queued last", got.N)
	}
}

func commitCancel(t *testing.T, b *bench) {
	r := b.open(t)
	wait := r.occupy(t, b)
	ctx, cancel := context.WithCancelCause(b.ctx)
	queued := make(chan error, 1)
	go func() { queued <- r.Commit(ctx, store.Put(r.a, "queued", rec(1), store.Any)) }()
	eventually(t, "a queued commit", func() bool { return r.QueuedCommits() == 1 })
	gone := errors.New("the caller went away")
	cancel(gone)
	if err := <-queued; !errors.Is(err, gone) || errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("a commit cancelled in the queue: %v", err)
	}
	r.faults.Mend()
	wait()

	r.faults.HoldCommits()
	ctx, cancel = context.WithCancelCause(b.ctx)
	sent := make(chan error, 1)
	go func() { sent <- r.Commit(ctx, store.Put(r.a, "sent", rec(1), store.Any)) }()
	eventually(t, "a held transaction", func() bool { return r.faults.Waiting() == 1 })
	cancel(gone)
	if err := <-sent; !errors.Is(err, gone) || !errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("a commit cancelled under way: %v", err)
	}
	r.faults.Mend()
	eventually(t, "the commit under way", func() bool { _, _, ok := r.a.Get("sent"); return ok })
	if _, _, ok := r.a.Get("queued"); ok {
		t.Error("a cancelled commit was written")
	}
}

func commitClose(t *testing.T, b *bench) {
	r := b.open(t)
	wait := r.occupy(t, b)
	queued := r.queue(t, b, r, store.Put(r.a, "queued", rec(1), store.Any))
	closed := make(chan error, 1)
	go func() { closed <- r.Close() }()
	if err := <-queued; !errors.Is(err, store.ErrClosed) {
		t.Errorf("a commit in the queue of a closing store: %v", err)
	}
	r.faults.Mend()
	wait() // the running commits succeed
	must(t, <-closed)
	must(t, r.Close())
	if err := r.Commit(b.ctx, store.Put(r.a, "after", rec(1), store.Any)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a commit to a closed store: %v", err)
	}
	if err := r.Healthy(); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a closed store is healthy: %v", err)
	}
	if err := r.Barrier(b.ctx); !errors.Is(err, store.ErrClosed) {
		t.Errorf("barrier of a closed store: %v", err)
	}
	again := b.open(t)
	if got := contents(again.b); len(got) != 2 || again.a.Len() != 0 {
		t.Errorf("after reopening: %v, %v", got, contents(again.a))
	}
	left := 0
	_, err := b.Backend.List(b.ctx, b.prefix+"/slot/", func(kvs []store.KV) error { left += len(kvs); return nil })
	must(t, err)
	if left > 2 { // those of the store just opened
		t.Errorf("%d slot keys left behind", left)
	}
}

func commitUpdate(t *testing.T, b *bench) {
	replicas := []*replica{b.open(t), b.open(t)}
	const workers, each = 4, 25
	var wg sync.WaitGroup
	for _, r := range replicas {
		for range workers {
			wg.Go(func() {
				for range each {
					add(t, b, r, "counter")
				}
			})
		}
	}
	wg.Wait()
	for _, r := range replicas {
		must(t, r.Barrier(b.ctx))
		if got, _, _ := r.a.Get("counter"); got == nil || got.N != 2*workers*each {
			t.Errorf("counter is %v, want %d", got, 2*workers*each)
		}
	}
	updateShapes(t, b, replicas[0])
}

// add increments a counter, however often other writers interfere.
func add(t *testing.T, b *bench, r *replica, id string) {
	for {
		_, err := store.Update(b.ctx, r, r.a, id, func(old *Record) (*Record, error) {
			if old == nil {
				return rec(1), nil
			}
			return rec(old.N + 1), nil
		})
		if err == nil {
			return
		}
		if !errors.Is(err, store.ErrConflict) {
			t.Errorf("update: %v", err)
			return
		}
	}
}

func updateShapes(t *testing.T, b *bench, r *replica) {
	before := r.faults.Commits()
	same, err := store.Update(b.ctx, r, r.a, "counter", func(old *Record) (*Record, error) { return old, nil })
	if err != nil || same == nil || r.faults.Commits() != before {
		t.Errorf("an update that changes nothing: %v, %v, %d commits", same, err, r.faults.Commits()-before)
	}
	refused := errors.New("refused")
	if _, err = store.Update(b.ctx, r, r.a, "counter",
		func(*Record) (*Record, error) { return nil, refused }); !errors.Is(err, refused) {
		t.Errorf("got %v, want the function's own error", err)
	}
	if got, err := store.Update(b.ctx, r, r.a, "counter",
		func(*Record) (*Record, error) { return nil, nil }); err != nil || got != nil {
		t.Errorf("delete by update: %v, %v", got, err)
	}
	if got, err := store.Update(b.ctx, r, r.a, "counter",
		func(old *Record) (*Record, error) { return old, nil }); err != nil || got != nil {
		t.Errorf("update of nothing to nothing: %v, %v", got, err)
	}
	if r.a.Len() != 0 {
		t.Errorf("%d records left", r.a.Len())
	}
}
