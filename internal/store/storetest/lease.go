package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/store"
)

var leaseTests = []testCase{
	{"lease/one holder", leaseOne},
	{"lease/fencing", leaseFencing},
	{"lease/resigned on close", leaseClose},
}

func leaseOne(t *testing.T, b *bench) {
	r, other := b.open(t), b.open(t)
	lease, err := r.Campaign(b.ctx, "work")
	must(t, err)
	otherLease, err := other.Campaign(b.ctx, "other work")
	must(t, err)
	short, cancel := context.WithTimeout(b.ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := other.Campaign(short, "work"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a held lock: %v", err)
	}
	won := make(chan store.Lease, 1)
	go func() {
		l, err := other.Campaign(b.ctx, "work")
		if err != nil {
			t.Error(err)
		}
		won <- l
	}()
	select {
	case <-won:
		t.Fatal("two holders of one lock")
	case <-lease.Lost():
		t.Fatal("lost a lock that no other holder took")
	case <-time.After(50 * time.Millisecond):
	}
	began := time.Now()
	must(t, lease.Resign(b.ctx))
	next := <-won
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("a resigned lock was free after %s", took)
	}
	<-lease.Lost()
	must(t, lease.Resign(b.ctx))
	if next.Fence() == lease.Fence() || next.Fence() == otherLease.Fence() {
		t.Errorf("two holders with the fence %v", next.Fence())
	}
	select {
	case <-next.Lost():
		t.Error("the second resignation took the lock from the next holder")
	default:
	}
	must(t, other.CommitFenced(b.ctx, next.Fence(), store.Put(other.a, "x", rec(1), store.Any)))
}

func leaseFencing(t *testing.T, b *bench) {
	r, other := b.open(t), b.open(t)
	old, err := r.Campaign(b.ctx, "work")
	must(t, err)
	must(t, r.CommitFenced(b.ctx, old.Fence(), store.Put(r.a, "x", rec(1), store.Any)))
	must(t, b.Expire(old.Fence()))
	if err := r.CommitFenced(b.ctx, old.Fence(), store.Put(r.a, "x", rec(2), store.Any)); !errors.Is(err,
		store.ErrFenced) {
		t.Errorf("a commit after the lease has expired: %v", err)
	}
	lease, err := other.Campaign(b.ctx, "work")
	must(t, err)
	must(t, other.CommitFenced(b.ctx, lease.Fence(), store.Put(other.a, "x", rec(3), store.Any)))
	calls := 0
	_, err = store.Update(b.ctx, r.WithFence(old.Fence()), r.a, "x",
		func(*Record) (*Record, error) { calls++; return rec(4), nil })
	if !errors.Is(err, store.ErrFenced) && !errors.Is(err, store.ErrConflict) {
		t.Errorf("an old holder's update: %v", err)
	}
	if errors.Is(err, store.ErrConflict) || calls > 2 {
		t.Errorf("the update was tried %d times: %v", calls, err)
	}
	must(t, r.Commit(b.ctx, store.Put(r.a, "free", rec(1), store.Any)))
	r.settle(t, b)
	if got := contents(r.a); got["x"].N != 3 || got["free"].N != 1 {
		t.Errorf("table holds %v", got)
	}
}

func leaseClose(t *testing.T, b *bench) {
	r, other := b.open(t), b.open(t)
	lease, err := r.Campaign(b.ctx, "work")
	must(t, err)
	began := time.Now()
	must(t, r.Close())
	<-lease.Lost()
	next, err := other.Campaign(b.ctx, "work")
	must(t, err)
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the lock of a closed store was free after %s", took)
	}
	if _, err := r.Campaign(b.ctx, "later work"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a closed store campaigns: %v", err)
	}
	must(t, next.Resign(b.ctx))
}
