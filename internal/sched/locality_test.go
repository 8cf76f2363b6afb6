package sched

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/internal/farm"
)

const gigabyte = 1 << 30

// sized makes requests for a version of some gigabytes.
func sized(n int64) func(*Request) { return func(r *Request) { r.VersionBytes = n * gigabyte } }

// cachingSize is caching of a version of some gigabytes.
func cachingSize(template, content string, size int64) func(*Node) {
	return func(n *Node) {
		n.CachedVersions = append(n.CachedVersions,
			farm.NodeTemplate{ID: template, ContentID: content, Size: size * gigabyte})
	}
}

// pulling is an instance for which a node pulls a version.
func pullingOn(node, id string, progress float64) Instance {
	i := on(node, ask(id, 0))
	i.Pulling, i.Progress = true, progress
	return i
}

func TestLocalityByBytes(t *testing.T) {
	full := func(n *Node) { n.OrphanedLoad = vms(3) }
	for _, c := range []struct {
		name  string
		nodes []Node
		pulls []Instance
		want  string
	}{
		{"more of an older version", []Node{machine("a", 4, cachingSize("t", "t0", 1)), machine("b", 4,
			cachingSize("t", "t-", 7), full)}, nil, "b"},
		{"the largest of several", []Node{machine("a", 4, cachingSize("t", "t0", 5)), machine("b",
			4, cachingSize("t", "t-", 1), cachingSize("t", "t--", 7), full)}, nil, "b"},
		{"a larger one is no whole one", []Node{machine("a", 4, cachingSize("t", "t0", 99)), machine("b",
			4, cachingSize("t", "t1", 8), full)}, nil, "b"},
		{"one of unknown size counts half", []Node{machine("a", 4, cachingSize("t", "t0", 3)), machine("b", 4,
			caching("t", "t0"), full)}, nil, "b"},
		{
			"a pull beats an older version",
			[]Node{machine("a", 4, cachingSize("t", "t0", 7)), machine("b", 4, full)},
			[]Instance{pullingOn("b", "p", 0)},
			"b",
		},
		{
			"the version beats a pull",
			[]Node{machine("a", 4), machine("b", 5, cachingSize("t", "t1", 8), full)},
			[]Instance{pullingOn("a", "p", 0.99)},
			"b",
		},
		{
			"the farther pull",
			[]Node{machine("a", 4), machine("b", 9, full)},
			[]Instance{pullingOn("a", "p", 0.39), pullingOn("b", "q", 0.41)},
			"b",
		},
		{"no number is no progress", []Node{machine("a", 4), machine("b", 9, full)}, []Instance{pullingOn("a", "p",
			math.NaN()), pullingOn("b", "q", 0.11)}, "b"},
		{
			"the farthest pull of a node",
			[]Node{machine("a", 4), machine("b", 9, full)},
			[]Instance{pullingOn("a", "p", 0.5), pullingOn("b", "q", 0.1), pullingOn("b", "q2", 7)},
			"b",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, pullsFirst := range []bool{false, true} {
				x := New(Options{})
				for _, i := range c.pulls {
					if pullsFirst {
						x.SetInstance(i)
					}
				}
				for _, n := range c.nodes {
					if n.ID == "b" && len(c.pulls) > 0 {
						n.Capacity += len(c.pulls)
					}
					x.SetNode(n)
				}
				x.SetInstance(waiting(ask("r", 0, sized(8))))
				for _, i := range c.pulls {
					x.SetInstance(i)
				}
				wantPairs(t, x, "r>"+c.want)
			}
		})
	}
}

func TestPullsFollowTheInstance(t *testing.T) {
	x := indexOf([]Node{machine("a", 9), machine("b", 90)}, nil)
	where := func(want string) {
		t.Helper()
		x.SetInstance(waiting(ask("r", 0, sized(8))))
		wantPairs(t, x, "r>"+want)
		x.RemoveInstance("r")
	}
	x.SetInstance(on("a", ask("p", 0)))
	where("b")
	x.SetInstance(pullingOn("a", "p", 0))
	where("a")
	x.SetInstance(pullingOn("b", "q", 0.5))
	where("b")
	x.SetInstance(pullingOn("a", "p", 0.7))
	where("a")
	x.RemoveInstance("p")
	where("b")
	x.SetInstance(on("b", ask("q", 0)))
	where("a") // the emptier one
	if len(x.locations) != 0 {
		t.Errorf("%v still counts as a source", x.locations)
	}
}

func TestFitFillsANode(t *testing.T) {
	x := New(Options{BinPack: true})
	x.SetNode(machine("a", 3))
	x.SetNode(machine("b", 3, func(n *Node) { n.OrphanedLoad = vms(1) }))
	for i := range 4 {
		x.SetInstance(waiting(ask(fmt.Sprint("r", i), i)))
	}
	wantPairs(t, x, "r0>b", "r1>b", "r2>a", "r3>a")

	x.RemoveNode("a")
	x.SetNode(machine("c", 9, func(n *Node) { n.OrphanedLoad = vms(3) }))
	x.SetNode(machine("d", 9, func(n *Node) { n.OrphanedLoad = vms(2) }))
	x.SetInstance(waiting(ask("r4", 4)))
	wantPairs(t, x, "r4>c")
	for i := range 3 { // others fill the other one since then
		x.SetInstance(on("d", ask(fmt.Sprint("other", i), 0)))
	}
	x.SetInstance(waiting(ask("r5", 5)))
	wantPairs(t, x, "r5>d")
}

func TestFailedStartsComeLast(t *testing.T) {
	x := indexOf([]Node{
		machine("near", 9, inGroup("g"), caching("t", "t1")), machine("far", 9, inGroup("g")),
		machine("fallback", 9, inGroup("f"), caching("t", "t1")),
	}, nil, farm.Group{ID: "g", Fallback: "f"})
	at := noon
	where := func(want string) {
		t.Helper()
		x.SetInstance(waiting(ask("r", 0, func(r *Request) { r.GroupID = "g" })))
		a := x.Place(at, 1)
		if len(a) != 1 || a[0].NodeID != want {
			t.Errorf("placed %v, want it on %s", a, want)
		}
		x.RemoveInstance("r")
	}
	where("near")
	x.RecordStartFailure("near", at)
	where("far") // failures count more than cached versions
	x.RecordStartFailure("far", at)
	x.RecordStartFailure("far", at)
	where("near") // and less than the group
	for range 20 {
		x.RecordStartFailure("near", at)
	}
	where("far")
	for range 20 {
		x.RecordStartFailure("far", at)
	}
	where("near") // all failed too often: their number says nothing any more
	at = noon.Add(time.Minute)
	x.RecordStartFailure("far", at)
	x.RecordStartFailure("unknown", at)
	at = noon.Add(failureWindow - time.Second)
	where("near")
	x.RecordStartFailure("near", at)
	at = noon.Add(failureWindow)
	where("near") // one of each is left
	at = noon.Add(failureWindow + time.Minute)
	where("far")
	at = noon.Add(2 * failureWindow)
	where("near")
	if len(x.failingNodes) != 0 || x.usages["unknown"] != nil {
		t.Errorf("%d nodes still count as failing, %v", len(x.failingNodes), x.usages)
	}
}

// waitingWorld has a full node with the version and an empty one without.
func waitingWorld(capacity int) *Index {
	x := New(Options{LocalityWait: 10 * time.Second, LocalityBytes: 4 * gigabyte})
	x.SetNode(machine("near", capacity, caching("t", "t1")))
	x.SetNode(machine("far", 9))
	return x
}

func placedAt(t *testing.T, x *Index, second int, want ...string) {
	t.Helper()
	got := []string{}
	for _, a := range x.Place(noon.Add(time.Duration(second)*time.Second), 100) {
		got = append(got, a.RequestID+">"+a.NodeID)
	}
	if d := cmp.Diff(append([]string{}, want...), got); d != "" {
		t.Errorf("after %d s (-want +got):\n%s", second, d)
	}
}

func TestLocalityWaitEnds(t *testing.T) {
	x := waitingWorld(0)
	x.SetNode(machine("near", 1, caching("t", "t1"), func(n *Node) { n.OrphanedLoad = vms(1) }))
	x.SetInstance(waiting(ask("large", 0, sized(8))))
	x.SetInstance(waiting(ask("other", 1, func(r *Request) { r.TemplateID, r.ContentID = "u", "u1" })))
	x.SetInstance(waiting(ask("small",
		2, func(r *Request) { r.TemplateID, r.ContentID, r.VersionBytes = "s", "s1", gigabyte })))
	placedAt(t, x, 100, "other>far", "small>far") // they do not wait behind it
	if want := noon.Add(110 * time.Second); !x.NextDeadline().Equal(want) {
		t.Errorf("wakes at %v, want %v", x.NextDeadline(), want)
	}
	why := x.PendingReason("large", noon.Add(103*time.Second))
	if why.Name != ReasonLocality || why.Text != "waits up to 7 s for a node that has the version" {
		t.Errorf("reason %q: %s", why.Name, why.Text)
	}
	x.SetInstance(waiting(ask("large", 0, sized(8)))) // set again: it does not wait again
	x.SetInstance(waiting(ask("second", 105, sized(8))))
	placedAt(t, x, 109)
	placedAt(t, x, 110, "large>far", "second>far")
	if !x.NextDeadline().IsZero() {
		t.Errorf("wakes at %v, want never", x.NextDeadline())
	}
	x.SetInstance(waiting(ask("third", 111, sized(8))))
	placedAt(t, x, 120) // the wait begins again after no request was pending
	placedAt(t, x, 130, "third>far")
}

// TestLazyNodesDoNotWait: where a VM starts before its template is there, no request waits for a node that has it.
func TestLazyNodesDoNotWait(t *testing.T) {
	x := waitingWorld(0)
	lazy := func(n *Node) { n.PullsLazily = true }
	x.SetNode(machine("near", 1, caching("t", "t1"), func(n *Node) { n.OrphanedLoad = vms(1) }))
	x.SetNode(machine("far", 9, lazy))
	x.SetInstance(waiting(ask("large", 0, sized(60))))
	x.SetInstance(waiting(ask("huge", 1, sized(100)))) // 5 % of it are more than the limit
	placedAt(t, x, 1, "large>far")
	x.SetNode(machine("near", 2, caching("t", "t1"), lazy))
	placedAt(t, x, 2, "huge>near")
	for bytes, want := range map[int64]int64{
		100 << 20: 100 << 20, 1 << 30: 256 << 20, 60 << 30: 3 << 30,
	} {
		n := &node{Node: Node{PullsLazily: true}, usage: &nodeUsage{}}
		if _, got := n.localityOf(version{bytes: bytes}); got != want {
			t.Errorf("of %d bytes, %d are missing for a start, want %d", bytes, got, want)
		}
	}
}

func TestLocalityWaitIsMet(t *testing.T) {
	x := waitingWorld(0)
	full := machine("near", 1, caching("t", "t1"), func(n *Node) { n.OrphanedLoad = vms(1) })
	x.SetNode(full)
	for i := range 3 {
		x.SetInstance(waiting(ask(fmt.Sprint("r", i), i, sized(8))))
	}
	placedAt(t, x, 50)
	full.OrphanedLoad = Load{}
	x.SetNode(full) // it gets capacity
	placedAt(t, x, 51, "r0>near")
	x.SetInstance(on("near", ask("r0", 0, sized(8))))
	x.RemoveInstance("r0")
	placedAt(t, x, 52, "r1>near")
	x.RemoveInstance("r2")
	if !x.NextDeadline().IsZero() || len(x.requestGroups) != 1 {
		t.Errorf("wakes at %v, want never", x.NextDeadline())
	}
	x.SetInstance(waiting(ask("r3", 53, sized(8))))
	placedAt(t, x, 60)
	x.SetInstance(pullingOn("far", "elsewhere", 0))
	placedAt(t, x, 61, "r3>far") // the pull is for another instance
}

func TestLocalityDoesNotWaitInVain(t *testing.T) {
	held := machine("near", 1, caching("t", "t1"), held("offline"))
	for _, c := range []struct {
		name string
		do   func(*Index)
	}{
		{"nobody has it", func(x *Index) { x.RemoveNode("near") }},
		{"it is gone from the disk", func(x *Index) {
			x.SetNode(machine("near", 1, func(n *Node) { n.OrphanedLoad = vms(1) }))
		}},
		{"the node takes no starts", func(x *Index) { x.SetNode(held) }},
		{"it is off", func(x *Index) { x.options.LocalityWait = 0 }},
		{"the part that is missing is small", func(x *Index) {
			x.SetNode(machine("far", 9, cachingSize("t", "t0", 5)))
		}},
		{"the size is unknown", func(x *Index) { x.SetInstance(waiting(ask("r", 0))) }},
		{"the free node pulls it", func(x *Index) { x.SetInstance(pullingOn("far", "p", 0)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := waitingWorld(1)
			x.SetNode(machine("near", 1, caching("t", "t1"), func(n *Node) { n.OrphanedLoad = vms(1) }))
			x.SetInstance(waiting(ask("r", 0, sized(8))))
			c.do(x)
			placedAt(t, x, 1, "r>far")
		})
	}
}

// The turns of owners hold also among requests that waited for their version.
func TestFairShareOfDeferredRequests(t *testing.T) {
	x := waitingWorld(0)
	x.SetNode(machine("near", 1, caching("t", "t1"), func(n *Node) { n.OrphanedLoad = vms(1) }))
	for i := range 3 {
		x.SetInstance(waiting(ask(fmt.Sprint("a", i), i, sized(8), ownedBy("a"))))
	}
	placedAt(t, x, 5)
	x.SetInstance(waiting(ask("b0", 6, sized(8), ownedBy("b"))))
	placedAt(t, x, 20, "a0>far", "b0>far", "a1>far", "a2>far")
}

func TestScoreWords(t *testing.T) {
	for _, c := range []struct {
		score Score
		want  string
	}{
		{Score{}, "has nothing of the template, 0 % full"},
		{Score{MissingBytes: 2_500_000_000}, "has nothing of the template (2.3 GiB missing), 0 % full"},
		{Score{Locality: VersionCached, Load: 500_000}, "has the version, 50 % full"},
		{
			Score{Locality: VersionPulled, MissingBytes: 4e9, GroupDistance: 1},
			"in the fallback group, pulls the version already (3.7 GiB missing), 0 % full",
		},
		{
			Score{Locality: OlderCached, Failures: 3, GroupDistance: 2},
			"2 fallback groups away, 3 starts failed lately, has another version of the template, 0 % full",
		},
		{Score{Failures: 1}, "1 start failed lately, has nothing of the template, 0 % full"},
	} {
		if got := c.score.Text(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.score, got, c.want)
		}
	}
}
