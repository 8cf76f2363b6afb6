package sched

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/buildyard/buildyard/internal/farm"
)

func ownedBy(owner string) func(*Request) { return func(r *Request) { r.Owner = owner } }

func TestFairShareOfOwners(t *testing.T) {
	large := func(r *Request) { r.Owner, r.VCPU = "a", 3 } // in a separate request group
	x := indexOf([]Node{machine("n", 100)}, []Request{
		ask("a1", 0, ownedBy("a")), ask("a2", 0, ownedBy("a")), ask("a3", 1, large), ask("a4", 2, ownedBy("a")),
		ask("b1", 40, ownedBy("b")), ask("b2", 41, ownedBy("b")),
		ask("c1", 50, func(r *Request) { r.Owner, r.Priority = "c", 1 }),
	})
	wantPairs(t, x, "c1>n", "a1>n", "b1>n", "a2>n", "b2>n", "a3>n", "a4>n")
}

func TestFairShareOfGroups(t *testing.T) {
	g := func(group string) func(*Request) { return func(r *Request) { r.Owner, r.GroupID = r.ID, group } }
	x := indexOf([]Node{machine("n", 100, inGroup("g", "h"))}, []Request{
		ask("g1", 0, g("g")), ask("g2", 1, g("g")), ask("g3", 2, g("g")),
		ask("h1", 10, g("h")), ask("h2", 11, g("h")), ask("any", 12, g("")),
	}, farm.Group{ID: "g"}, farm.Group{ID: "h"})
	wantPairs(t, x, "g1>n", "h1>n", "any>n", "g2>n", "h2>n", "g3>n")
}

// A request of an owner that was served a moment ago is still more urgent than one
// that waits a little with a worse priority.
func TestPriorityBeforeFairShare(t *testing.T) {
	x := indexOf([]Node{machine("n", 1)},
		[]Request{ask("a1", 0, ownedBy("a")), ask("b1", 1, func(r *Request) { r.Owner, r.Priority = "b", 1200 })})
	wantPairs(t, x, "a1>n")
	x.SetInstance(waiting(ask("a2", 2, ownedBy("a"))))
	x.SetNode(machine("n", 2))
	wantPairs(t, x, "a2>n")
}

// Being served something urgent does not make up for the turn before.
func TestUrgentRequestsPayForNothing(t *testing.T) {
	x := indexOf([]Node{machine("n", 1)}, []Request{
		ask("a1", -600, ownedBy("a")), ask("a2", -599, ownedBy("a")), ask("b1", -598, ownedBy("b")),
	})
	wantPairs(t, x, "a1>n")
	x.SetInstance(waiting(ask("a3", 1, func(r *Request) { r.Owner, r.Priority = "a", 1 })))
	x.SetNode(machine("n", 9))
	wantPairs(t, x, "a3>n", "b1>n", "a2>n")
}

// An owner that is served all the time does not starve another one that requests less urgent
// instances.
func TestServedOwnersAgeAgain(t *testing.T) {
	x := indexOf([]Node{machine("n", 1)},
		[]Request{ask("patient", 0, func(r *Request) { r.Owner, r.Priority = "b", 1200 })})
	for i := range 1000 {
		x.SetInstance(waiting(ask(fmt.Sprintf("a%04d", i), -3600+i, ownedBy("a")))) // a backlog of an hour
	}
	for i := range 1000 {
		at := noon.Add(time.Duration(i) * 10 * time.Second)
		a := x.Place(at, 1)
		if len(a) != 1 {
			t.Fatal("a free slot was not used")
		}
		if a[0].RequestID == "patient" {
			if waited := at.Sub(noon); waited < 5*time.Minute || waited > 7*time.Minute {
				t.Errorf("placed after %v, want about the 6 minutes that 200 points are worth", waited)
			}
			return
		}
		x.RemoveInstance(a[0].RequestID)
	}
	t.Error("never placed")
}

// Two backlogs of equal priority differ by at most one placement, whatever request groups and
// classes their requests are in and however many slots become free at a time.
func TestRotationProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := New(Options{AgePerSecond: rapid.Float64Range(0.001, 1000).Draw(t, "points per second")})
		x.SetNode(machine("n", 0, inGroup("g", "h")))
		byGroup := rapid.Bool().Draw(t, "groups")
		tenant := map[string]string{}
		for _, name := range []string{"g", "h"} {
			for i := range rapid.IntRange(15, 40).Draw(t, "backlog of "+name) {
				r := ask(fmt.Sprint(name, i), rapid.IntRange(-5000, 0).Draw(t, "created"), ownedBy(name))
				if byGroup {
					r.GroupID, r.Owner = name, rapid.SampledFrom([]string{"p", "q"}).Draw(t, "owner")
				}
				r.VCPU = rapid.IntRange(1, 3).Draw(t, "vcpu")
				r.ContentID = rapid.SampledFrom([]string{"t1", "t2"}).Draw(t, "version")
				tenant[r.ID] = name
				x.SetInstance(waiting(r))
			}
		}
		served, slots := map[string]int{}, 0
		for served["g"] < 15 && served["h"] < 15 {
			slots += rapid.IntRange(1, 3).Draw(t, "slots")
			x.SetNode(machine("n", slots, inGroup("g", "h")))
			for _, a := range x.Place(noon.Add(time.Duration(slots)*time.Second),
				rapid.IntRange(1, 3).Draw(t, "limit")) {
				served[tenant[a.RequestID]]++
				if d := served["g"] - served["h"]; d < -1 || d > 1 {
					t.Fatalf("%v were served", served)
				}
			}
		}
	})
}

// An owner's urgent requests, which other nodes could take too, do not keep its own
// less urgent one waiting indefinitely.
func TestOwnersDoNotStarveThemselves(t *testing.T) {
	x := indexOf([]Node{machine("n", 1)},
		[]Request{ask("patient", 0, func(r *Request) { r.Priority, r.VCPU = 1100, 9 })})
	for i := range 1000 {
		at := noon.Add(time.Duration(i) * 10 * time.Second)
		x.SetInstance(waiting(ask(fmt.Sprint("urgent", i), 10*i, func(r *Request) { r.Priority = 1 })))
		a := x.Place(at, 1)
		if a[0].RequestID == "patient" {
			if waited := at.Sub(noon); waited < 32*time.Minute || waited > 34*time.Minute {
				t.Errorf("placed after %v, want about the 33 minutes that 1100 points are worth", waited)
			}
			return
		}
		x.RemoveInstance(a[0].RequestID)
	}
	t.Error("never placed")
}

// Every request is placed within a time that is known in advance, however many others come: one
// slot becomes free per second; an owner or a group is served at the latest when its next request
// has aged by the whole range of priorities, and then after each of the others once. In its turns
// an owner is served what ranks before the request, and what was requested before the position that
// it had paid for.
func TestNoRequestStarves(t *testing.T) {
	const owners, groups = 3, 2
	const window = leastUrgentPriority / 1000 // seconds until any request beats any newer one
	rapid.Check(t, func(t *rapid.T) {
		x := New(Options{AgePerSecond: 1000})
		x.SetNode(machine("n", 1, inGroup("g0", "g1")))
		own := map[string]bool{} // those of the same owner and group
		send := func(id string, second int) Request {
			r := ask(id, second, func(r *Request) {
				r.Priority = rapid.SampledFrom([]int{1, 1, 2, 500, 5000, 9000, leastUrgentPriority}).Draw(t, "priority")
				r.Owner = fmt.Sprint("o", rapid.IntRange(1, owners).Draw(t, "owner"))
				r.GroupID = fmt.Sprint("g", rapid.IntRange(0, groups-1).Draw(t, "group"))
				r.VCPU = rapid.IntRange(1, 2).Draw(t, "vcpu")
			})
			x.SetInstance(waiting(r))
			return r
		}
		patient := send("patient", 0)
		for i := range rapid.IntRange(0, 10).Draw(t, "backlog") {
			r := send(fmt.Sprint("old", i), -rapid.IntRange(0, 100).Draw(t, "age"))
			own[r.ID] = r.Owner == patient.Owner && r.GroupID == patient.GroupID
		}
		const turnOfGroup = window + groups
		const turnOfOwner = window + owners*turnOfGroup
		turns, since := 0, 0
		for second := 0; ; second++ {
			if second-since > turnOfOwner || second > 20*turnOfOwner {
				t.Fatalf("still waits after %d s and %d turns of its owner", second, turns)
			}
			for i := range rapid.IntRange(1, 2).Draw(t, "new ones") {
				r := send(fmt.Sprintf("new%d-%d", second, i), second)
				own[r.ID] = r.Owner == patient.Owner && r.GroupID == patient.GroupID
			}
			a := x.Place(noon.Add(time.Duration(second)*time.Second), 1)
			if len(a) != 1 {
				t.Fatal("a free slot was not used")
			}
			switch id := a[0].RequestID; {
			case id == "patient":
				return
			case own[id]:
				turns, since = turns+1, second
			}
			x.RemoveInstance(a[0].RequestID)
		}
	})
}

// Records of owners, groups, request groups and classes are removed with their pending requests,
// except for a bounded number.
func TestNothingIsKeptForever(t *testing.T) {
	x := New(Options{})
	x.SetNode(machine("n", 1000, inGroup("g")))
	for i := range 500 {
		id := fmt.Sprint("r", i)
		x.SetInstance(waiting(ask(id, i, func(r *Request) {
			r.Owner, r.VCPU, r.ContentID = id, i, id
			if i%2 == 0 {
				r.GroupID = "g"
			}
		})))
		if a := x.Place(noon, 10); len(a) != 1 {
			t.Fatalf("%d placements, want one", len(a))
		}
		x.RemoveInstance(id)
	}
	classes := 0
	for _, p := range x.requestGroups {
		classes += len(p.classes)
		if len(p.readyQueues)+len(p.classesByTemplate)-len(p.classes) > 0 || p.pendingCount > 0 {
			t.Errorf("an idle pool holds %+v", p)
		}
	}
	listed := map[*requestGroup]bool{}
	for _, list := range x.wakeIndex.byKey {
		for _, p := range list {
			listed[p] = true
		}
	}
	got := []int{
		len(x.requestGroups), len(listed), len(x.idleGroups.items), classes, len(x.idleClasses.items),
		len(x.groupQueues), len(x.readyGroups),
		len(x.requests), len(x.locations),
	}
	want := []int{maxIdleGroups, maxIdleGroups, maxIdleGroups, maxIdleGroups, maxIdleGroups, 0, 0, 0, 0}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	x.RemoveNode("n")
	if len(x.usages) != 0 {
		t.Errorf("%d rooms are left", len(x.usages))
	}
}

func TestIdleClassesAreBounded(t *testing.T) {
	x := indexOf([]Node{machine("n", 1000)}, nil)
	for i := range 500 {
		x.SetInstance(waiting(ask("r", i, func(r *Request) { r.ContentID = fmt.Sprint(i) })))
		x.RemoveInstance("r")
	}
	if n := len(x.requestGroupFor(func() constraints { r := ask("r", 0); return r.constraints() }()).
		classes); n != maxIdleClasses {
		t.Errorf("%d classes are kept, want %d", n, maxIdleClasses)
	}
}
