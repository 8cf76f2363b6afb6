package sched

import (
	"fmt"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// fullCloud returns an index whose only node takes nothing.
func fullCloud() *Index {
	x := New(Options{})
	x.SetNode(Node{ID: "n", Name: "n", Arch: "amd64", Unschedulable: "offline"})
	return x
}

func (x *Index) wait(owner string, priority int, minute int) string {
	id := fmt.Sprintf("%s-%d-%d", owner, priority, minute)
	created := noon.Add(time.Duration(minute) * time.Minute)
	x.SetInstance(Instance{Request: Request{ID: id, Owner: owner, Priority: priority, Created: created}})
	return id
}

// TestPosition: owners take turns, and more urgent requests go first.
func TestPosition(t *testing.T) {
	x := fullCloud()
	for minute := range 4 {
		x.wait("ann", farm.DefaultPriority, minute)
	}
	bob := x.wait("bob", farm.DefaultPriority, 10)
	second := x.wait("bob", farm.DefaultPriority, 11)
	for id, want := range map[string]int{"ann-1000-0": 1, "ann-1000-1": 3, "ann-1000-3": 6, bob: 2, second: 4} {
		if got, ok := x.Position(id, noon); !ok || got.Position != want || got.Waiting != 6 {
			t.Errorf("%s: %+v, want position %d of 6", id, got, want)
		}
	}
	x.wait("cat", 1, 12)
	if got, _ := x.Position(bob, noon); got.Position != 3 || got.Waiting != 7 {
		t.Errorf("after an urgent request: %+v", got)
	}
	x.SetInstance(Instance{Request: Request{ID: "other", Arch: "arm64", Created: noon}})
	if got, _ := x.Position("other", noon); got.Position != 1 || got.Waiting != 1 {
		t.Errorf("a request for other nodes: %+v", got)
	}
	if _, ok := x.Position("none", noon); ok {
		t.Error("a request that does not wait has a position")
	}
}

// TestPlacementRate: placements count for ten minutes, in their node group.
func TestPlacementRate(t *testing.T) {
	x := fullCloud()
	for n := range 30 {
		id := x.wait("ann", farm.DefaultPriority, n)
		at := noon.Add(time.Duration(n*10) * time.Second)
		x.SetInstance(Instance{Request: Request{ID: id}, NodeID: "n", UsesCapacity: true, PlacedAt: at})
	}
	waiting := x.wait("ann", farm.DefaultPriority, 99)
	rate := func(after time.Duration) float64 {
		at, _ := x.Position(waiting, noon.Add(after))
		return at.Rate * rateWindow.Seconds()
	}
	if got := rate(5 * time.Minute); got != 30 {
		t.Errorf("%v placements in the last ten minutes", got)
	}
	if got := rate(12 * time.Minute); got < 6 || got > 18 {
		t.Errorf("%v placements are left", got)
	}
	if got := rate(time.Hour); got != 0 || len(x.rates) != 0 {
		t.Errorf("%v placements after an hour, %d rates", got, len(x.rates))
	}
	x.SetInstance(Instance{Request: Request{ID: "found"}, NodeID: "n", UsesCapacity: true, PlacedAt: noon})
	if len(x.rates) != 0 {
		t.Error("an instance that did not wait here counts")
	}
}
