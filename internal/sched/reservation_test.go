package sched

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/buildyard/buildyard/internal/farm"
)

// host is an amd64 node that is counted by resources.
func host(id string, vcpu int, edit ...func(*Node)) Node {
	return machine(id, 0, append([]func(*Node){func(n *Node) {
		n.CapacityMode, n.VCPULimit, n.MemoryLimitMB = farm.CapacityByResources, vcpu, 1<<20
	}}, edit...)...)
}

func taking(vcpu int) func(*Request) { return func(r *Request) { r.VCPU = vcpu } }

// crowded is a node of 4 processors in groups, kept full by small requests of several owners,
// groups and priorities that come faster than they end, and a large request.
type crowded struct {
	x    *Index
	now  time.Time
	life int // rounds that a small one runs
	next int
	runs map[string]int // id -> round in which it ends
}

// round ends instances that have run their time, lets more small ones come, and places. It reports
// whether the large one was placed.
func (c *crowded) round(t *rapid.T, n int) bool {
	c.now = c.now.Add(10 * time.Second)
	for id, end := range c.runs {
		if end <= n {
			c.x.RemoveInstance(id)
			delete(c.runs, id)
		}
	}
	for range 4 {
		c.next++
		c.x.SetInstance(waiting(ask(fmt.Sprintf("small-%d", c.next), 0, taking(1), func(r *Request) {
			r.Created = c.now
			r.Owner = rapid.SampledFrom([]string{"o1", "o2", "o3"}).Draw(t, "owner")
			r.GroupID = rapid.SampledFrom([]string{"", "g1", "g2"}).Draw(t, "group")
			r.Priority = rapid.SampledFrom([]int{500, 1000, 1500}).Draw(t, "priority")
		})))
	}
	for _, a := range c.x.Place(c.now, 100) {
		if a.RequestID == "large" {
			return true
		}
		c.runs[a.RequestID] = n + rapid.IntRange(1, c.life).Draw(t, "life")
	}
	return false
}

// TestLargeRequestsDoNotStarve: with nodes in both modes and a stream of small requests of several
// owners and groups, one that needs a whole node gets it: within the time that it may wait for
// capacity, what its priority is worth, and the lifetime of what ran there.
func TestLargeRequestsDoNotStarve(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const after = 10 * time.Minute
		c := &crowded{
			x: New(Options{ReserveAfter: after, BinPack: rapid.Bool().Draw(t, "fit")}), now: noon,
			runs: map[string]int{},
			life: rapid.IntRange(2, 20).Draw(t, "life of the small"),
		}
		both := inGroup("g1", "g2", "g3")
		for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
			c.x.SetNode(host(fmt.Sprint("n", i), 4, both))
		}
		c.x.SetNode(machine("number", 1, inGroup("g1", "g2")))
		for n := range 10 {
			c.round(t, n)
		}
		c.x.SetInstance(waiting(ask("large", 0, taking(4), func(r *Request) {
			r.Created, r.Owner, r.GroupID = c.now, "o4", "g3"
		})))
		// Small ones of priority 500 go before it for a quarter of an hour.
		bound := int((after + after/recheckDivisor + 15*time.Minute +
			time.Duration(c.life)*10*time.Second) / (10 * time.Second))
		for n := 10; n < 10+bound; n++ {
			if c.round(t, n) {
				return
			}
		}
		t.Fatalf("not placed in %d rounds", bound)
	})
}

// reserving is a cloud of one full node, small requests that wait, and a large one that was
// passed over for its time.
func reserving(t *testing.T, nodes ...Node) *Index {
	t.Helper()
	x := New(Options{ReserveAfter: time.Minute})
	for _, n := range nodes {
		x.SetNode(n)
		for i := range n.VCPULimit {
			x.SetInstance(on(n.ID, ask(fmt.Sprint(n.ID, "-runs-", i), 0, taking(1))))
		}
	}
	x.SetInstance(waiting(ask("large", 1, taking(4))))
	x.SetInstance(waiting(ask("other", 1, taking(3))))
	x.Place(noon, 100)
	x.Place(noon, 100)
	x.RemoveInstance("n-runs-0")
	x.SetInstance(waiting(ask("n-runs-0", 2, taking(1))))
	if got := x.Place(noon.Add(30*time.Second), 100); len(got) != 1 {
		t.Fatalf("placed %v", got)
	}
	if wake := x.NextDeadline(); !wake.Equal(noon.Add(time.Minute)) {
		t.Fatalf("wakes at %v", wake)
	}
	x.Place(noon.Add(time.Minute), 100)
	return x
}

func reservedFor(x *Index, id string) string {
	if n := x.requests[id].requestGroup().reservedNode; n != nil {
		return n.ID
	}
	return ""
}

// TestReservation: one node of a few is reserved for the request that waits longest, and released
// when that was placed, ends, or can no longer use it.
func TestReservation(t *testing.T) {
	at := noon.Add(time.Minute)
	for name, tc := range map[string]struct {
		end  func(x *Index)
		next string // the request that has the node after that
	}{
		"it goes":          {func(x *Index) { x.RemoveInstance("large") }, "other"},
		"the node goes":    {func(x *Index) { x.RemoveNode("n") }, ""},
		"the node is held": {func(x *Index) { x.SetNode(host("n", 4, held("offline"))) }, ""},
		"the node is held for a while": {func(x *Index) {
			x.RemoveInstance("other")
			x.SetNode(host("n", 4, held("offline")))
			x.Place(at, 100)
			x.SetNode(host("n", 4))
		}, "large"},
		"the node is smaller": {func(x *Index) { x.SetNode(host("n", 3)) }, "other"},
		"others stay there": {func(x *Index) {
			x.SetNode(host("n", 4, func(n *Node) { n.OrphanedLoad = Load{VCPU: 1} }))
		}, "other"},
		"it is placed": {func(x *Index) {
			for i := range 4 {
				x.RemoveInstance(fmt.Sprint("n-runs-", i))
			}
			if got := pairs(x, 100); len(got) != 1 || got[0] != "large>n" {
				panic(fmt.Sprint(got))
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			x := reserving(t, host("n", 4))
			if got := reservedFor(x, "large"); got != "n" || x.reservedNodes != 1 || reservedFor(x, "other") != "" ||
				x.requests["large"].requestGroup().starvation != nil {
				t.Fatalf("reserved %q, %d nodes", got, x.reservedNodes)
			}
			x.RemoveInstance("n-runs-3")
			x.SetInstance(waiting(ask("late", 3, taking(1))))
			if got := x.Place(at, 100); len(got) != 0 {
				t.Fatalf("placed on a node that is kept: %v", got)
			}
			if why := x.PendingReason("late", at); why.Name != FilterReserved ||
				why.Text != "no node has a free slot (1 node: 1 reserved for a larger request)" {
				t.Errorf("why = %+v", why)
			}
			if wake := x.NextDeadline(); !wake.IsZero() {
				t.Errorf("wakes at %v although nothing more may be reserved", wake)
			}
			tc.end(x)
			x.RemoveInstance("late")
			x.Place(at, 100)
			x.Place(at.Add(2*time.Minute), 100)
			for _, id := range []string{"large", "other"} {
				r := x.requests[id]
				if r == nil || r.queue == nil {
					continue
				}
				if got := reservedFor(x, id); (got != "") != (id == tc.next) {
					t.Errorf("%q is kept for %s", got, id)
				}
			}
		})
	}
}

// TestNoReservation: nothing is reserved for a request that is too large or was not passed over, or
// where capacity is counted by VMs.
func TestNoReservation(t *testing.T) {
	for name, change := range map[string]func(x *Index){
		"too large":      func(x *Index) { x.SetNode(host("n", 2)) },
		"nobody passes":  func(x *Index) { x.lastTurn = placementTurn{} },
		"counted by VMs": func(x *Index) { x.SetNode(machine("n", 1, func(n *Node) { n.OrphanedLoad = vms(1) })) },
		"switched off": func(x *Index) {
			x.options.ReserveAfter = 0
			x.endStarvation(x.requests["large"].requestGroup())
		},
		"another is kept": func(x *Index) { x.reservedNodes = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			x := New(Options{ReserveAfter: time.Minute})
			x.SetNode(host("n", 4))
			x.SetInstance(on("n", ask("runs", 0, taking(1))))
			x.SetInstance(waiting(ask("large", 1, taking(4))))
			x.Place(noon, 100)
			x.Place(noon, 100)
			x.lastTurn = placementTurn{owner: "another", ownerKey: fairKey{rank: 1 << 62}}
			change(x)
			x.Place(noon.Add(time.Minute), 100)
			if got := reservedFor(x, "large"); got != "" {
				t.Errorf("%s is kept", got)
			}
			if name != "too large" {
				return
			}
			x.SetNode(host("n", 4, func(n *Node) { n.MemoryLimitMB = 4096 })) // it has exactly the requested capacity
			x.Place(noon.Add(2*time.Minute), 100)
			if got := reservedFor(x, "large"); got != "n" {
				t.Errorf("%q is kept once it is large enough", got)
			}
		})
	}
}
