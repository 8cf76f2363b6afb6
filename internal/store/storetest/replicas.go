package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/buildyard/buildyard/internal/store"
)

var replicaTests = []testCase{
	{"replicas/random work", replicaWork},
	{"replicas/random disturbances", replicaProperty},
}

// backendContents reads the first table without a store.
func (b *bench) backendContents(t rapid.TB) map[string]Record {
	t.Helper()
	m := map[string]Record{}
	_, err := b.Backend.List(b.ctx, b.key(""), func(kvs []store.KV) error {
		for _, kv := range kvs {
			var r Record
			if err := json.Unmarshal(kv.Value, &r); err != nil {
				return err
			}
			m[strings.TrimPrefix(kv.Key, b.key(""))] = r
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// account is what one worker of the random work did.
type account struct {
	own   map[string]int // records only this worker writes -> their value
	added int            // successful increments of the shared counters
}

// replicaWork lets workers on two stores write separate records, count on shared records and move
// units between them, while replies get lost, watches stall and the history is compacted.
func replicaWork(t *testing.T, b *bench) {
	replicas := []*replica{b.open(t), b.open(t)}
	const workers, steps, pots = 4, 60, 3
	for i := range pots {
		must(t, replicas[0].Commit(b.ctx, store.Put(replicas[0].a, fmt.Sprintf("pot%d", i), rec(1000), store.IfAbsent)))
	}
	accounts := make([]account, 2*workers)
	var wg sync.WaitGroup
	for i := range accounts {
		wg.Go(func() {
			w := worker{b: b, r: replicas[i%2], rng: rand.New(rand.NewPCG(1, uint64(i))), name: fmt.Sprint("w",
				i), pots: pots}
			w.own = map[string]int{}
			for range steps {
				w.step(t)
			}
			accounts[i] = w.account
		})
	}
	stop, disturbed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(disturbed)
		disturb(t, b, replicas, stop)
	}()
	wg.Wait()
	close(stop)
	<-disturbed

	want, added := map[string]Record{}, 0
	for _, acc := range accounts {
		for id, n := range acc.own {
			want[id] = Record{N: n}
		}
		added += acc.added
	}
	for _, r := range replicas {
		r.settle(t, b)
		got, units := contents(r.a), 0
		if diff := cmp.Diff(b.backendContents(t), got); diff != "" {
			t.Errorf("backend and table differ: %s", diff)
		}
		for i := range pots {
			units += got[fmt.Sprintf("pot%d", i)].N
		}
		if units != pots*1000 {
			t.Errorf("%d units in the pots, want %d: a transaction was torn", units, pots*1000)
		}
		if got["counter"].N != added {
			t.Errorf("counter is %d, %d increments succeeded", got["counter"].N, added)
		}
		maps.DeleteFunc(got, func(id string, _ Record) bool { return !strings.HasPrefix(id, "w") })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the workers' own records: %s", diff)
		}
	}
}

// disturb injects faults until stop.
func disturb(t *testing.T, b *bench, replicas []*replica, stop <-chan struct{}) {
	rng := rand.New(rand.NewPCG(2, 2))
	for {
		select {
		case <-stop:
			return
		default:
		}
		r := replicas[rng.IntN(len(replicas))]
		switch rng.IntN(4) {
		case 0:
			r.faults.Next(LoseReply)
		case 1:
			r.faults.StallWatch()
		case 2:
			r.faults.CutWatch()
		case 3:
			rev, err := b.Backend.Barrier(b.ctx)
			if err != nil {
				t.Error(err)
			}
			if err := b.Compact(rev); err != nil {
				t.Error(err)
			}
		}
		before := r.faults.Commits() // the trouble lasts for some commits
		for r.faults.Commits() < before+5 {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := b.Backend.Barrier(b.ctx); err != nil {
				t.Error(err)
			}
		}
		r.faults.Mend()
	}
}

type worker struct {
	account
	b    *bench
	r    *replica
	rng  *rand.Rand
	name string
	pots int
}

func (w *worker) step(t *testing.T) {
	switch w.rng.IntN(4) {
	case 0, 1:
		w.writeOwn(t)
	case 2:
		add(t, w.b, w.r, "counter")
		w.added++
	case 3:
		w.move(t)
	}
}

// writeOwn changes a record that no other worker writes: it must always succeed and be visible
// immediately.
func (w *worker) writeOwn(t *testing.T) {
	id := fmt.Sprintf("%s-%d", w.name, w.rng.IntN(6))
	was, exists := w.own[id]
	got, rev, ok := w.r.a.Get(id)
	if ok != exists || (ok && got.N != was) {
		t.Errorf("%s: read %v (%v), wrote %d (%v)", id, got, ok, was, exists)
	}
	if exists && w.rng.IntN(3) == 0 {
		delete(w.own, id)
		if err := w.r.Commit(w.b.ctx, store.Delete(w.r.a, id, store.IfRev(rev))); err != nil {
			t.Errorf("delete %s: %v", id, err)
		}
		return
	}
	w.own[id] = was + 1
	if err := w.r.Commit(w.b.ctx, store.Put(w.r.a, id, rec(was+1), store.IfRev(rev))); err != nil {
		t.Errorf("put %s: %v", id, err)
	}
}

// move moves a unit from one pot to another in one transaction; it may lose the race.
func (w *worker) move(t *testing.T) {
	from := w.rng.IntN(w.pots)
	fromID, toID := fmt.Sprintf("pot%d", from), fmt.Sprintf("pot%d", (from+1)%w.pots)
	src, srcRev, err1 := w.r.a.GetLinearizable(w.b.ctx, fromID)
	dst, dstRev, err2 := w.r.a.GetLinearizable(w.b.ctx, toID)
	if err := errors.Join(err1, err2); err != nil {
		t.Error(err)
		return
	}
	err := w.r.Commit(w.b.ctx,
		store.Put(w.r.a, fromID, rec(src.N-1), store.IfRev(srcRev)),
		store.Put(w.r.a, toID, rec(dst.N+1), store.IfRev(dstRev)))
	if err != nil && !errors.Is(err, store.ErrConflict) {
		t.Errorf("move: %v", err)
	}
}

// replicaProperty checks two stores against a plain map, step by step, under any order of work and disturbance.
func replicaProperty(t *testing.T, b *bench) {
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		sub := *b
		sub.prefix = fmt.Sprintf("%s/r%d", b.prefix, round)
		w := &world{bench: &sub, replicas: []*replica{sub.openQuiet(rt), sub.openQuiet(rt)}, want: map[string]Record{}}
		defer w.close(rt)
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			w.step(rt)
		}
		for _, r := range w.replicas {
			r.faults.Mend()
			if err := r.Barrier(sub.ctx); err != nil {
				rt.Fatal(err)
			}
			if diff := cmp.Diff(w.want, contents(r.a)); diff != "" {
				rt.Fatalf("table: %s", diff)
			}
			if r.a.Len() != len(w.want) {
				rt.Fatalf("counts %d records, has %d", r.a.Len(), len(w.want))
			}
		}
		if diff := cmp.Diff(w.want, sub.backendContents(rt)); diff != "" {
			rt.Fatalf("backend: %s", diff)
		}
	})
}

// world is two stores and their expected content.
type world struct {
	*bench
	replicas []*replica
	want     map[string]Record
	n        int
}

// openQuiet is open for a round of a property test, which ends before the test does.
func (b *bench) openQuiet(t rapid.TB) *replica {
	r := &replica{a: store.NewTable[Record]("a"), faults: NewFaults(b.Backend), seen: newRecorder()}
	s, err := store.Open(b.ctx, r.faults, store.Options{Prefix: b.prefix, Tables: []store.AnyTable{r.a}})
	if err != nil {
		t.Fatal(err)
	}
	r.Store = s
	s.Subscribe(r.seen.add)
	return r
}

func (w *world) close(t *rapid.T) {
	for _, r := range w.replicas {
		r.faults.Mend()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		// Close delivers every event, and all tables are up to date by now.
		state, faults := r.seen.result()
		if len(faults) > 0 {
			t.Errorf("events: %v", faults)
		}
		if len(state) != r.a.Len() {
			t.Errorf("events add up to %d records, the table has %d", len(state), r.a.Len())
		}
	}
}

func (w *world) step(t *rapid.T) {
	r := w.replicas[rapid.IntRange(0, 1).Draw(t, "replica")]
	id := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "id")
	switch rapid.SampledFrom([]string{
		"put", "put", "delete", "cas", "update", "stall", "cut", "mend", "compact", "lose",
	}).Draw(t, "step") {
	case "put":
		w.n++
		w.settled(t, r, id, r.Commit(w.ctx, store.Put(r.a, id, rec(w.n), store.Any)), rec(w.n))
	case "delete":
		w.settled(t, r, id, r.Commit(w.ctx, store.Delete(r.a, id, store.Any)), nil)
	case "cas":
		w.cas(t, r, id)
	case "update":
		w.n++
		_, err := store.Update(w.ctx, r, r.a, id, func(*Record) (*Record, error) { return rec(w.n), nil })
		w.settled(t, r, id, err, rec(w.n))
	case "stall":
		r.faults.Mend()
		r.faults.StallWatch()
	case "cut":
		r.faults.Mend()
		r.faults.CutWatch()
	case "mend":
		r.faults.Mend()
	case "compact":
		rev, err := w.Backend.Barrier(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Compact(rev); err != nil {
			t.Fatal(err)
		}
	case "lose":
		r.faults.Next(LoseReply)
	}
}

// cas writes by the state in the table, which may be outdated: then it must lose.
func (w *world) cas(t *rapid.T, r *replica, id string) {
	w.n++
	shown, rev, _ := r.a.Get(id)
	now, exists := w.want[id]
	current := (shown == nil && !exists) || (shown != nil && exists && *shown == now)
	err := r.Commit(w.ctx, store.Put(r.a, id, rec(w.n), store.IfRev(rev)))
	if !current {
		if !errors.Is(err, store.ErrConflict) {
			t.Fatalf("a write on %v over %v: %v", shown, now, err)
		}
		return
	}
	w.settled(t, r, id, err, rec(w.n))
}

// settled records a success and checks that it is visible immediately.
func (w *world) settled(t *rapid.T, r *replica, id string, err error, want *Record) {
	if err != nil {
		t.Fatalf("write %s: %v", id, err)
	}
	got, _, ok := r.a.Get(id)
	if ok != (want != nil) || (ok && *got != *want) {
		t.Fatalf("%s: wrote %v, read %v", id, want, got)
	}
	delete(w.want, id)
	if want != nil {
		w.want[id] = *want
	}
}
