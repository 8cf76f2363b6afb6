package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/store"
)

var readTests = []testCase{
	{"read/own writes at once", readOwnWrites},
	{"read/events in order", readEvents},
	{"read/reopen", readReopen},
	{"read/barrier sees the other replica", readBarrier},
	{"read/linearizable", readLinearizable},
	{"read/damaged and foreign records", readDamaged},
	{"read/schema and epoch", readSchema},
}

// readOwnWrites delays the watch: only what a commit itself puts into the tables is visible.
func readOwnWrites(t *testing.T, b *bench) {
	r := b.open(t)
	r.faults.StallWatch()
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 25 {
				id := fmt.Sprintf("%d-%d", w, i)
				if err := r.Commit(b.ctx, store.Put(r.a, id, rec(i), store.IfAbsent)); err != nil {
					t.Error(err)
					return
				}
				got, rev, ok := r.a.Get(id)
				if !ok || got.N != i {
					t.Errorf("%s: read %v after the commit", id, got)
					return
				}
				if i%2 == 0 {
					continue
				}
				if err := r.Commit(b.ctx, store.Delete(r.a, id, store.IfRev(rev))); err != nil {
					t.Error(err)
					return
				}
				if _, _, ok = r.a.Get(id); ok {
					t.Errorf("%s: read after its deletion", id)
				}
			}
		})
	}
	wg.Wait()
	if got, want := r.a.Len(), 8*13; got != want {
		t.Errorf("%d records, want %d", got, want)
	}
	r.settle(t, b)
	if got, want := r.a.Len(), 8*13; got != want {
		t.Errorf("%d records once the watch came, want %d", got, want)
	}
}

// settle ends the faults, waits until the tables are up to date and checks the events of
// subscribers.
func (r *replica) settle(t *testing.T, b *bench) {
	t.Helper()
	r.faults.Mend()
	must(t, r.Barrier(b.ctx))
	want := map[string]Record{}
	for id, v := range r.a.All() {
		want["a/"+id] = *v
	}
	for id, v := range r.b.All() {
		want["b/"+id] = *v
	}
	eventually(t, "the events of every change", func() bool {
		state, _ := r.seen.result()
		return cmp.Equal(state, want)
	})
	if _, faults := r.seen.result(); len(faults) > 0 {
		t.Errorf("events: %v", faults)
	}
}

func readEvents(t *testing.T, b *bench) {
	r, other := b.open(t), b.open(t)
	const n = 60
	var wg sync.WaitGroup
	for w, one := range []*replica{r, other} {
		wg.Go(func() {
			for i := range n {
				id := fmt.Sprint(i % 5)
				changes := []store.Change{store.Put(one.a, id, rec(w*n+i), store.Any), store.Put(one.b, id, rec(w*n+i),
					store.Any)}
				if i%7 == 0 {
					changes = []store.Change{store.Delete(one.a, id, store.Any), store.Delete(one.b, id, store.Any)}
				}
				if err := one.Commit(b.ctx, changes...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, one := range []*replica{r, other} {
		one.settle(t, b)
		if diff := cmp.Diff(contents(one.a), contents(one.b)); diff != "" {
			t.Errorf("two tables that are always written together differ: %s", diff)
		}
	}
	canceled := 0
	cancel := r.Subscribe(func([]store.Event) { canceled++ })
	cancel()
	must(t, r.Commit(b.ctx, store.Put(r.a, "last", rec(1), store.Any)))
	r.settle(t, b)
	if canceled > 0 {
		t.Error("a cancelled subscriber was called")
	}
}

func readReopen(t *testing.T, b *bench) {
	r := b.open(t)
	for i := range 30 {
		must(t, r.Commit(b.ctx, store.Put(r.a, fmt.Sprint(i), &Record{i, "text"}, store.IfAbsent)))
	}
	must(t, r.Commit(b.ctx, store.Delete(r.a, "7", store.Any)))
	want := contents(r.a)
	must(t, r.Close())
	again := b.open(t)
	if diff := cmp.Diff(want, contents(again.a)); diff != "" {
		t.Errorf("after reopening: %s", diff)
	}
	_, rev, _ := again.a.Get("3")
	must(t, again.Commit(b.ctx, store.Put(again.a, "3", rec(1), store.IfRev(rev))))
	if again.Epoch() == "" || again.Epoch() != r.Epoch() {
		t.Errorf("epoch %q became %q", r.Epoch(), again.Epoch())
	}
}

func readBarrier(t *testing.T, b *bench) {
	r, other := b.open(t), b.open(t)
	for i := range 100 {
		must(t, other.Commit(b.ctx, store.Put(other.a, fmt.Sprint(i), rec(i), store.Any)))
		b.commit(t, store.Txn{Puts: []store.KV{put(b.prefix+"/elsewhere", fmt.Sprint(i))}})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := r.Barrier(b.ctx); err != nil {
					t.Error(err)
				}
				if got, _, ok := r.a.Get(fmt.Sprint(i)); !ok || got.N != i {
					t.Errorf("barrier passed, but record %d is %v", i, got)
				}
			})
		}
		wg.Wait()
	}
}

func readLinearizable(t *testing.T, b *bench) {
	r, other := b.open(t), b.open(t)
	must(t, r.Commit(b.ctx, store.Put(r.a, "gone", rec(1), store.Any)))
	must(t, other.Barrier(b.ctx))
	r.faults.StallWatch()
	must(t, other.Commit(b.ctx, store.Put(other.a, "x", rec(1), store.Any), store.Delete(other.a, "gone", store.Any)))
	if _, _, ok := r.a.Get("x"); ok {
		t.Fatal("the watch is not stalled")
	}
	missing := errors.New("not found")
	_, err := store.Update(b.ctx, r, r.a, "x", func(old *Record) (*Record, error) {
		if old == nil {
			return nil, missing
		}
		return old, nil
	})
	must(t, err) // "not found" is never decided by an outdated table
	got, rev, err := r.a.GetLinearizable(b.ctx, "x")
	if err != nil || got == nil || got.N != 1 {
		t.Fatalf("got %v, %v", got, err)
	}
	if got, _, err := r.a.GetLinearizable(b.ctx, "gone"); err != nil || got != nil {
		t.Errorf("a deleted record: %v, %v", got, err)
	}
	if seen, at, _ := r.a.Get("x"); seen == nil || at != rev {
		t.Error("what was read is not in the table")
	}
	must(t, r.Commit(b.ctx, store.Put(r.a, "x", rec(2), store.IfRev(rev))))
	add(t, b, other, "x") // the other replica still has the old one, or not
	got, _, err = r.a.GetLinearizable(b.ctx, "x")
	if err != nil || got.N != 3 {
		t.Errorf("got %v, %v; want 3", got, err)
	}
	add(t, b, r, "gone")
	r.settle(t, b)
	other.settle(t, b)
	if diff := cmp.Diff(contents(r.a), contents(other.a)); diff != "" {
		t.Error(diff)
	}
}

func readDamaged(t *testing.T, b *bench) {
	b.commit(t, store.Txn{Puts: []store.KV{
		put(b.key("bad"), "{"), put(b.key("good"), `{"n":1}`), put(b.key("turns"), `{"n":1}`),
		put(b.prefix+"/v1/stranger/x", "?"), put(b.prefix+"/v1/a", "?"), put(b.prefix+"/v1/a/", "?"),
	}})
	r := b.open(t)
	if got := contents(r.a); len(got) != 2 || got["good"].N != 1 {
		t.Errorf("table holds %v", got)
	}
	b.commit(t, store.Txn{Puts: []store.KV{put(b.key("turns"), "["), put(b.key("bad"), `{"n":2}`)}})
	must(t, r.Barrier(b.ctx))
	if got := contents(r.a); len(got) != 2 || got["bad"].N != 2 || got["good"].N != 1 {
		t.Errorf("table holds %v", got)
	}
	wantConflict(t, r.Commit(b.ctx, store.Put(r.a, "turns", rec(1), store.IfAbsent)), "a/turns")
	if _, _, err := r.a.GetLinearizable(b.ctx, "turns"); err == nil {
		t.Error("a damaged record was read")
	}
}

func readSchema(t *testing.T, b *bench) {
	r, other := b.open(t), b.open(t)
	if r.Epoch() == "" || r.Epoch() != other.Epoch() {
		t.Errorf("epochs %q and %q", r.Epoch(), other.Epoch())
	}
	must(t, r.Healthy())
	newer := put(b.prefix+"/v1/meta/schema", fmt.Sprintf(`{"version":%d}`, store.SchemaVersion+1))
	b.commit(t, store.Txn{Puts: []store.KV{newer}})
	must(t, r.Barrier(b.ctx))
	if err := r.Commit(b.ctx, store.Put(r.a, "x", rec(1), store.Any)); !errors.Is(err, store.ErrNewerSchema) {
		t.Errorf("a commit to a newer schema: %v", err)
	}
	if err := r.Healthy(); !errors.Is(err, store.ErrNewerSchema) {
		t.Errorf("healthy on a newer schema: %v", err)
	}
	a := store.NewTable[Record]("a")
	if _, err := store.Open(b.ctx, b.Backend,
		store.Options{Prefix: b.prefix, Tables: []store.AnyTable{a}}); !errors.Is(err, store.ErrNewerSchema) {
		t.Errorf("a newer schema was opened: %v", err)
	}
	s, err := store.Open(b.ctx, b.Backend, store.Options{Prefix: b.prefix + "/fresh", Tables: []store.AnyTable{a}})
	must(t, err) // a failed Open must not keep the tables
	must(t, s.Close())
}
