package controller

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"
)

// TestAgendaAgainstAModel holds random puts and takes against a plain map.
func TestAgendaAgainstAModel(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		a, model := newAgenda(), map[item]time.Time{}
		now := time.Unix(0, 0)
		for range 2000 {
			it := item{kindInstance, fmt.Sprint(r.IntN(50))}
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
			ripe, next := a.take(now, limit)
			for _, it := range ripe {
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
			if !next.Equal(first) || (len(ripe) < limit && !first.IsZero() && !first.After(now)) {
				t.Fatalf("seed %d: %d taken, next is %s, want %s", seed, len(ripe), next, first)
			}
		}
	}
}

func TestAgendaWakesForTheFirstOnly(t *testing.T) {
	a, now := newAgenda(), time.Unix(100, 0)
	woken := func() bool {
		select {
		case <-a.wake:
			return true
		default:
			return false
		}
	}
	a.put(item{kindNode, "a"}, time.Time{})
	if woken() {
		t.Error("woken for nothing")
	}
	a.put(item{kindNode, "a"}, now)
	if !woken() {
		t.Error("not woken for the first")
	}
	a.put(item{kindNode, "b"}, now.Add(time.Second))
	a.put(item{kindNode, "a"}, now.Add(time.Second))
	if woken() {
		t.Error("woken for a later one")
	}
}
