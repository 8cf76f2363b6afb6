package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/store"
)

var faultTests = []testCase{
	{"fault/deletions stay deleted", faultResurrect},
	{"fault/compaction under a cut watch", faultCompaction},
	{"fault/lost reply", faultLostReply},
	{"fault/lost request", faultLostRequest},
	{"fault/lost again and again", faultLostAgain},
	{"fault/late request", faultLateRequest},
	{"fault/several in a row", faultSeveral},
}

// faultResurrect makes own commits be ahead of the watch, which then delivers the older states of
// each record.
func faultResurrect(t *testing.T, b *bench) {
	r, other := b.open(t), b.open(t)
	must(t, other.Commit(b.ctx, store.Put(other.a, "theirs", rec(1), store.Any)))
	must(t, r.Barrier(b.ctx))
	r.faults.StallWatch()
	must(t, r.Commit(b.ctx, store.Put(r.a, "mine", rec(1), store.Any)))
	must(t, r.Commit(b.ctx, store.Put(r.a, "mine", rec(2), store.Any)))
	must(t, r.Commit(b.ctx, store.Delete(r.a, "mine", store.Any)))
	must(t, other.Commit(b.ctx, store.Put(other.a, "theirs", rec(2), store.Any)))
	must(t, other.Commit(b.ctx, store.Put(other.a, "unseen", rec(2), store.Any)))
	must(t, r.Commit(b.ctx, store.Delete(r.a, "theirs", store.Any), store.Delete(r.a, "unseen", store.Any)))
	must(t, r.Commit(b.ctx, store.Put(r.a, "back", rec(1), store.Any)))
	must(t, r.Commit(b.ctx, store.Delete(r.a, "back", store.Any)))
	must(t, r.Commit(b.ctx, store.Put(r.a, "back", rec(2), store.IfAbsent)))

	gone := []string{"mine", "theirs", "unseen"}
	back := map[string]bool{}
	r.Subscribe(func(events []store.Event) {
		for _, ev := range events {
			if ev.New != nil && ev.ID != "back" {
				back[ev.ID] = true
			}
		}
	})
	r.settle(t, b)
	for _, id := range gone {
		if _, _, ok := r.a.Get(id); ok {
			t.Errorf("%s came back", id)
		}
	}
	if got := contents(r.a); len(got) != 1 || got["back"].N != 2 {
		t.Errorf("table holds %v", got)
	}
	must(t, r.Commit(b.ctx, store.Put(r.a, "mine", rec(9), store.IfAbsent)))
	other.settle(t, b)
	r.settle(t, b)
	if diff := cmp.Diff(contents(r.a), contents(other.a)); diff != "" {
		t.Error(diff)
	}
}

func faultCompaction(t *testing.T, b *bench) {
	r, other := b.open(t), b.open(t)
	for i := range 20 {
		must(t, other.Commit(b.ctx, store.Put(other.a, fmt.Sprint(i), rec(i), store.Any)))
	}
	must(t, r.Barrier(b.ctx))
	r.faults.CutWatch()
	eventually(t, "the loss of the watch to be noticed", func() bool { return r.Healthy() != nil })
	must(t, other.Commit(b.ctx, store.Delete(other.a, "3", store.Any), store.Put(other.a, "4", rec(44), store.Any)))
	must(t, other.Commit(b.ctx, store.Delete(other.a, "5", store.Any)))
	must(t, other.Commit(b.ctx, store.Put(other.a, "5", rec(55), store.IfAbsent),
		store.Put(other.b, "new", rec(1), store.Any)))
	must(t, other.Commit(b.ctx, store.Put(other.a, "6", rec(66), store.Any)))
	must(t, r.Commit(b.ctx, store.Put(r.a, "own", rec(1), store.Any), store.Delete(r.a, "7", store.Any)))
	rev, err := b.Backend.Barrier(b.ctx)
	must(t, err)
	must(t, b.Compact(rev))
	must(t, other.Commit(b.ctx, store.Put(other.a, "8", rec(88), store.Any)))
	if got := contents(r.a); got["3"].N != 3 || got["4"].N != 4 {
		t.Fatal("the watch is not cut")
	}
	r.settle(t, b)
	other.settle(t, b)
	got := contents(r.a)
	if diff := cmp.Diff(contents(other.a), got); diff != "" {
		t.Error(diff)
	}
	if _, there := got["3"]; there || len(got) != 19 || got["5"].N != 55 || got["8"].N != 88 {
		t.Errorf("table holds %v", got)
	}
	eventually(t, "a watch that stands again", func() bool { return r.Healthy() == nil })
}

func faultLostReply(t *testing.T, b *bench) {
	r := b.open(t)
	r.faults.StallWatch()
	r.faults.Next(LoseReply)
	must(t, r.Commit(b.ctx, store.Put(r.a, "x", rec(1), store.IfAbsent)))
	if got, _, ok := r.a.Get("x"); !ok || got.N != 1 {
		t.Errorf("table holds %v", got)
	}
	for range 10 {
		r.faults.Next(LoseReply)
		add(t, b, r, "x")
	}
	r.faults.Next(LoseReply)
	must(t, r.Commit(b.ctx, store.Delete(r.a, "y", store.Any), store.Put(r.b, "y", rec(1), store.IfAbsent)))
	if got, _, _ := r.a.Get("x"); got.N != 11 {
		t.Errorf("counted to %d, want 11", got.N)
	}
	r.settle(t, b)
}

func faultLostRequest(t *testing.T, b *bench) {
	r := b.open(t)
	before := r.faults.Commits()
	r.faults.Next(LoseRequest)
	must(t, r.Commit(b.ctx, store.Put(r.a, "x", rec(1), store.IfAbsent)))
	if n := r.faults.Commits() - before; n < 3 {
		t.Errorf("%d transactions for a lost one, the one that shuts it out, and its repetition", n)
	}
	if got, _, _ := r.a.Get("x"); got == nil || got.N != 1 {
		t.Errorf("table holds %v", got)
	}
	r.settle(t, b)
}

// faultLostAgain: Commit stops retrying a transaction that is lost every time, and its error states
// only what is certain.
func faultLostAgain(t *testing.T, b *bench) {
	r := b.open(t)
	must(t, r.Commit(b.ctx, store.Put(r.b, "warm", rec(1), store.Any))) // the slot is known
	r.faults.Next(LoseRequest, 0, LoseRequest, 0, LoseRequest, 0)
	err := r.Commit(b.ctx, store.Put(r.a, "x", rec(1), store.IfAbsent))
	if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("got %v, want a definite ErrUnavailable", err)
	}
	if err != nil &&
		(!strings.Contains(err.Error(), "nothing was changed") || strings.Contains(err.Error(), "look whether")) {
		t.Errorf("the error says %q", err)
	}
	if r.a.Len() != 0 || b.value(t, b.key("x")) != "" {
		t.Error("a lost commit shows")
	}
	must(t, r.Commit(b.ctx, store.Put(r.a, "x", rec(2), store.IfAbsent)))
	r.settle(t, b)
}

// faultLateRequest: a commit that was sent again must not be applied twice when the first one arrives at last.
func faultLateRequest(t *testing.T, b *bench) {
	r := b.open(t)
	must(t, r.Commit(b.ctx, store.Put(r.a, "warm", rec(1), store.Any)))
	for i := range 4 {
		r.faults.Next(ArriveLate)
		id := fmt.Sprint(i)
		must(t, r.Commit(b.ctx, store.Put(r.a, id, rec(1), store.Any)))
		must(t, r.Commit(b.ctx, store.Put(r.a, id, rec(2), store.Any)))
		if i%2 == 0 {
			must(t, r.Commit(b.ctx, store.Put(r.b, id, rec(1), store.Any)))
		}
		if err := r.faults.Late(b.ctx); !errors.Is(err, store.ErrConflict) {
			t.Errorf("the late commit: %v, want a conflict", err)
		}
	}
	r.settle(t, b)
	for id, got := range contents(r.a) {
		if id != "warm" && got.N != 2 {
			t.Errorf("a commit was applied again: %s is %d", id, got.N)
		}
	}
}

// faultSeveral also loses the requests that determine an unknown outcome.
func faultSeveral(t *testing.T, b *bench) {
	r := b.open(t)
	for _, tc := range []struct {
		plan    []Fault
		written bool
	}{
		{[]Fault{LoseReply, LoseReply, LoseReply}, true},
		{[]Fault{LoseReply, LoseRequest, LoseRequest}, true},
		{[]Fault{LoseRequest, LoseReply}, true},
		{[]Fault{LoseRequest, LoseRequest, LoseReply, 0, Refuse}, false},
		{[]Fault{ArriveLate, ArriveLate, LoseRequest}, true},
	} {
		id := fmt.Sprint(tc.plan)
		r.faults.Next(tc.plan...)
		err := r.Commit(b.ctx, store.Put(r.a, id, rec(1), store.IfAbsent))
		if (err == nil) != tc.written || errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("%v: %v", tc.plan, err)
		}
	}
	for range 2 {
		if err := r.faults.Late(b.ctx); !errors.Is(err, store.ErrConflict) {
			t.Errorf("a late commit: %v, want a conflict", err)
		}
	}
	r.settle(t, b)
	if r.a.Len() != 4 {
		t.Errorf("table holds %v", contents(r.a))
	}
}
