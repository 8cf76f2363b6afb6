package storetest

import (
	"fmt"
	"testing"

	"github.com/buildyard/buildyard/internal/store"
)

func checkConditions(t *testing.T, b *bench) {
	r := b.open(t)
	must(t, r.Commit(b.ctx, store.Put(r.a, "node", rec(1), store.IfAbsent)))
	_, rev, _ := r.a.Get("node")
	must(t, r.Commit(b.ctx, store.Check(r.a, "node", store.IfRev(rev)), store.Check(r.b, "none", store.IfAbsent),
		store.Put(r.b, "x", rec(1), store.IfAbsent)))
	must(t, r.Commit(b.ctx, store.Check(r.a, "node", store.IfRev(rev))))
	if _, now, ok := r.a.Get("node"); !ok || now != rev {
		t.Errorf("a check moved the record from revision %d to %d", rev, now)
	}
	wantConflict(t, r.Commit(b.ctx, store.Check(r.a, "node", store.IfAbsent), store.Put(r.b, "y", rec(1), store.Any)),
		"a/node")
	wantConflict(t, r.Commit(b.ctx, store.Check(r.b, "none", store.IfRev(rev)), store.Put(r.b, "y", rec(1), store.Any)),
		"b/none")
	must(t, r.Commit(b.ctx, store.Put(r.a, "node", rec(2), store.IfRev(rev))))
	wantConflict(t, r.Commit(b.ctx, store.Check(r.a, "node", store.IfRev(rev)), store.Put(r.b, "y", rec(1), store.Any)),
		"a/node")
	if got := contents(r.b); len(got) != 1 || got["x"].N != 1 {
		t.Errorf("table holds %v", got)
	}
}

// checkShares lets more commits check one record than a transaction has compares: they share one,
// and those of two transactions run concurrently.
func checkShares(t *testing.T, b *bench) {
	r := b.open(t)
	must(t, r.Commit(b.ctx, store.Put(r.b, "node", rec(1), store.IfAbsent)))
	_, rev, _ := r.b.Get("node")
	check := store.Check(r.b, "node", store.IfRev(rev))
	r.faults.HoldCommits()
	var results []<-chan error
	for i := range 2 {
		result := make(chan error, 1)
		go func() {
			result <- r.Commit(b.ctx, check, store.Put(r.a, fmt.Sprint("first", i), rec(i), store.IfAbsent))
		}()
		results = append(results, result)
		eventually(t, "a transaction beside another that checks the same",
			func() bool { return r.faults.Waiting() == i+1 })
	}
	for i := range 2 * (store.DefaultLimits.MaxOps - 2) {
		results = append(results, r.queue(t, b, r, check, store.Put(r.a, fmt.Sprint(i), rec(i), store.Any)))
	}
	before := r.faults.Commits()
	r.faults.Mend()
	for i, result := range results {
		if err := <-result; err != nil {
			t.Errorf("commit %d: %v", i, err)
		}
	}
	if n := r.faults.Commits() - before; n > 3 {
		t.Errorf("%d transactions for %d commits of one write and one shared check each", n, len(results))
	}
}

// checkSplit lets a transaction fail for one check: commits that expected another state of the
// record are unaffected.
func checkSplit(t *testing.T, b *bench) {
	r, other := b.open(t), b.open(t)
	must(t, r.Commit(b.ctx, store.Put(r.b, "hot", rec(1), store.IfAbsent),
		store.Put(r.b, "calm", rec(1), store.IfAbsent)))
	_, rev, _ := r.b.Get("hot")
	r.faults.StallWatch() // it must not see the other's changes
	must(t, other.Commit(b.ctx, store.Put(other.b, "hot", rec(2), store.Any)))
	kv, err := b.Backend.Get(b.ctx, b.prefix+"/v1/b/hot")
	must(t, err)
	wait := r.occupy(t, b)
	stale := r.queue(t, b, r, store.Check(r.b, "hot", store.IfRev(rev)), store.Put(r.a, "stale", rec(1), store.Any))
	good := r.queue(t, b, r, store.Check(r.b, "calm", store.IfRev(rev)), store.Put(r.a, "good", rec(1), store.Any))
	fresh := r.queue(t, b, r, store.Check(r.b, "hot", store.IfRev(kv.ModRev)),
		store.Put(r.a, "fresh", rec(1), store.Any))
	write := r.queue(t, b, r, store.Put(r.b, "hot", rec(3), store.IfRev(kv.ModRev)))
	r.faults.Mend()
	wait()
	wantConflict(t, <-stale, "b/hot")
	for name, result := range map[string]<-chan error{"calm": good, "fresh": fresh, "write": write} {
		if err := <-result; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := contents(r.a); len(got) != 2 {
		t.Errorf("table holds %v", got)
	}
}
