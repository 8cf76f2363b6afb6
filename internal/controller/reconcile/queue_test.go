package reconcile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
)

// TestQueueAgainstAModel compares random puts and takes with a plain map.
func TestQueueAgainstAModel(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		a, model := newQueue(), map[delayedItem]time.Time{}
		now := time.Unix(0, 0)
		for range 2000 {
			it := delayedItem{record.KindInstance, fmt.Sprint(r.IntN(50))}
			if r.IntN(4) > 0 {
				at := now.Add(time.Duration(r.IntN(100)) * time.Second)
				a.put(it, at)
				if old, known := model[it]; !known || at.Before(old) {
					model[it] = at
				}
				continue
			}
			now = now.Add(time.Duration(r.IntN(10)) * time.Second)
			limit := 1 + r.IntN(5)
			due, next := a.popDue(now, limit)
			for _, it := range due {
				if at, known := model[it]; !known || at.After(now) {
					t.Fatalf("seed %d: %v is taken at %s, its time is %s", seed, it, now, at)
				}
				delete(model, it)
			}
			first := time.Time{}
			for at := range maps.Values(model) {
				if first.IsZero() || at.Before(first) {
					first = at
				}
			}
			if !next.Equal(first) || (len(due) < limit && !first.IsZero() && !first.After(now)) {
				t.Fatalf("seed %d: %d taken, next is %s, want %s", seed, len(due), next, first)
			}
		}
	}
}

func TestQueueWakesForTheFirstOnly(t *testing.T) {
	a, now := newQueue(), time.Unix(100, 0)
	woken := func() bool {
		select {
		case <-a.wake:
			return true
		default:
			return false
		}
	}
	a.put(delayedItem{record.KindNode, "a"}, time.Time{})
	if woken() {
		t.Error("woken for nothing")
	}
	a.put(delayedItem{record.KindNode, "a"}, now)
	if !woken() {
		t.Error("not woken for the first")
	}
	a.put(delayedItem{record.KindNode, "b"}, now.Add(time.Second))
	a.put(delayedItem{record.KindNode, "a"}, now.Add(time.Second))
	if woken() {
		t.Error("woken for a later one")
	}
}

// TestQueueForgets: entries of removed records, and outdated entries, do not stay until their
// time, which may be a year away.
func TestQueueForgets(t *testing.T) {
	a, now := newQueue(), time.Unix(100, 0)
	year := now.Add(365 * 24 * time.Hour)
	a.put(delayedItem{record.KindNode, "first"}, now.Add(time.Hour)) // popDue drops what is before it
	for n := range 10 * spareEntries {
		gone := delayedItem{record.KindInstance, fmt.Sprint(n)}
		a.put(gone, year)
		a.remove(gone)
	}
	it := delayedItem{record.KindInstance, "stays"}
	for n := range 10 * spareEntries {
		a.put(it, year)
		a.put(it, now)
		if due, _ := a.popDue(now, 1); len(due) != 1 {
			t.Fatalf("turn %d: %v", n, due)
		}
	}
	a.put(it, year)
	if len(a.at) != 2 || len(a.heap) > spareEntries+4 {
		t.Errorf("%d records, %d entries", len(a.at), len(a.heap))
	}
	if due, next := a.popDue(year, 3); len(due) != 2 || due[1] != it || !next.IsZero() {
		t.Errorf("taken %v, next %s", due, next)
	}
}
