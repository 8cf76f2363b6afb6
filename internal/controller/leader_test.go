package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/controller/placement"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/storetest"
)

// inPair runs a test with two replicas, of which the first one holds the lease, and
// reads every revision at its end.
func inPair(t *testing.T, test func(t *testing.T, p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		defer p.stop()
		test(t, p)
		synctest.Wait()
		p.judge.read(t, p.backend)
		for _, line := range p.judge.broken {
			t.Error(line)
		}
	})
}

// mustCreate starts one instance through a replica.
func (p *pair) mustCreate(e *end) string {
	p.t.Helper()
	ids, err := p.create(e, 1)
	if err != nil {
		p.t.Fatal(err)
	}
	synctest.Wait()
	return ids[0]
}

// placedCount returns how many instances have a node.
func (p *pair) placedCount() (n int) {
	p.judge.read(p.t, p.backend)
	for _, i := range p.judge.instances {
		if i.NodeID != "" {
			n++
		}
	}
	return n
}

func (p *pair) wantPlaced(want int) {
	p.t.Helper()
	synctest.Wait()
	if got := p.placedCount(); got != want {
		p.t.Errorf("%d instances have a node, want %d", got, want)
	}
}

// TestAnyReplicaTakesRequests: the leader places the requests that the other replica accepts.
func TestAnyReplicaTakesRequests(t *testing.T) {
	inPair(t, func(_ *testing.T, p *pair) {
		p.join(p.ends[1], "one", 3)
		p.mustCreate(p.ends[0])
		p.mustCreate(p.ends[1])
		p.wantPlaced(2)
	})
}

// TestPlacedFromTheFirstMoment: where a node is free an instance is never seen as pending, and only
// its creation is written.
func TestPlacedFromTheFirstMoment(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		p.join(p.ends[0], "one", 3)
		synctest.Wait()
		before, _ := p.backend.Barrier(t.Context())
		if _, err := p.create(p.ends[0], 3); err != nil {
			t.Fatal(err)
		}
		p.wantPlaced(3)
		if after, _ := p.backend.Barrier(t.Context()); after != before+1 {
			t.Errorf("%d transactions for three instances in one request", after-before)
		}
		for _, n := range p.judge.nodes {
			if used, _ := p.ends[0].placer.Used(n.ID); used.VMs != 3 {
				t.Errorf("the index counts %d instances on the node", used.VMs)
			}
		}
	})
}

// TestTakeover: a leader that stops resigns, and the other replica places immediately.
func TestTakeover(t *testing.T) {
	inPair(t, func(_ *testing.T, p *pair) {
		p.join(p.ends[1], "one", 2)
		p.ends[0].stop()
		p.mustCreate(p.ends[1])
		p.wantPlaced(1)
		p.start(0)
		p.ends[1].stop()
		p.mustCreate(p.ends[0])
		p.wantPlaced(2)
		p.start(1)
	})
}

// TestNewLeaderReadsFirst: a replica that is behind when it wins the lease places nothing until it
// has seen the placements of its predecessor.
func TestNewLeaderReadsFirst(t *testing.T) {
	inPair(t, func(_ *testing.T, p *pair) {
		old, next := p.ends[0], p.ends[1]
		p.join(next, "one", 1)
		synctest.Wait()
		next.faults.StallWatch()
		first := p.mustCreate(old)
		p.wantPlaced(1)
		p.mustCreate(next)
		p.loseLease()
		p.wantPlaced(1)
		next.faults.Mend()
		time.Sleep(10 * time.Second)
		p.wantPlaced(1)
		if err := old.Instances.Terminate(p.t.Context(), first); err != nil {
			p.t.Fatal(err)
		}
	})
}

// TestLatePlacement: a placement that is delayed while the lease goes to another replica has no
// effect when it arrives. Its instance is created nevertheless.
func TestLatePlacement(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		old, next := p.ends[0], p.ends[1]
		p.join(old, "one", 1)
		synctest.Wait()
		old.faults.HoldCommits()
		var late string
		done := make(chan struct{})
		go func() {
			defer close(done)
			ids, err := p.create(old, 1)
			if err != nil {
				t.Error(err)
				return
			}
			late = ids[0]
		}()
		synctest.Wait()
		p.loseLease()
		synctest.Wait()
		winner := p.mustCreate(next)
		old.faults.Mend()
		<-done
		p.wantPlaced(1)
		if p.judge.instances[winner].NodeID == "" || p.judge.instances[late].State != farm.Scheduling {
			t.Errorf("placed: %q, late: %q", p.judge.instances[winner].NodeID, p.judge.instances[late].State)
		}
	})
}

// TestEndedTermWritesNothing: a decision after the end of a leader term is not written, although
// its lease is not released yet.
func TestEndedTermWritesNothing(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		e := p.ends[0]
		r := e.placer.Term()
		r.End()
		err := r.Commit(t.Context(), store.Put(e.tables.Settings, "late", &record.Setting{Value: "late"}, store.Any))
		if !errors.Is(err, store.ErrFenced) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// TestIndexBehindItsNodes: a placement that was decided on an older record of its node is refused,
// and then decided on the present one.
func TestIndexBehindItsNodes(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		id := c.mustStart(StartRequest{GroupID: c.mustGroup("elsewhere", nil).ID})[0]
		behind := c.placer.Decide(id, a.id)
		node, _, _ := c.tables.Nodes.Get(a.id)
		node = node.Clone()
		node.Name = "other"
		c.putNode(node)
		if c.placer.Write(t.Context(), c.term(), []placement.Decision{behind}) {
			t.Error("a decision on an older record of the node is written")
		}
		inst, _, _ := c.tables.Instances.Get(id)
		node = node.Clone()
		node.Groups = []string{inst.GroupID}
		c.putNode(node)
		time.Sleep(time.Second)
		if inst, err := c.Instances.Get(t.Context(), id); err != nil || inst.NodeID != a.id {
			t.Errorf("placed on %q, %v", inst.NodeID, err)
		}
	})
}

// busy is a store that accepts no writes.
type busy struct{}

func (busy) Commit(context.Context, ...store.Change) error { return store.ErrBusy }

// TestPlacementsGivenBackPause: the placer pauses before it retries placements that the store
// refused.
func TestPlacementsGivenBackPause(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		id := c.mustStart(StartRequest{GroupID: c.mustGroup("elsewhere", nil).ID})[0]
		a := c.join("one", 1)
		r := record.NewTerm(busy{}, time.Time{}, nil, func() {})
		some := []placement.Decision{c.placer.Decide(id, a.id)}
		for _, some := range [][]placement.Decision{some, nil} {
			if got, want := c.placer.Write(t.Context(), r, some), some == nil; got != want {
				t.Errorf("%d placements: all written: %v", len(some), got)
			}
		}
	})
}

// TestDecisionIsOld: a placement decided before a node was drained is not written after it, though
// the index has learned of the drain since.
func TestDecisionIsOld(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		id := c.mustStart(StartRequest{GroupID: c.mustGroup("elsewhere", nil).ID})[0]
		a := c.join("one", 1)
		synctest.Wait()
		old := c.placer.Decide(id, a.id)
		_, err := store.Update(t.Context(), c.store, c.tables.Nodes, a.id, func(n *farm.Node) (*farm.Node, error) {
			n = n.Clone()
			n.Drain = true
			return n, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r := record.NewTerm(c.store, time.Time{}, nil, func() {})
		if c.placer.Write(t.Context(), r, []placement.Decision{old}) {
			t.Error("placed on a drained node")
		}
		if inst, err := c.Instances.Get(t.Context(), id); err != nil || inst.NodeID != "" {
			t.Errorf("placed on %q, %v", inst.NodeID, err)
		}
	})
}

// wantEnded checks that none of the existing instances continues.
func (p *pair) wantEnded() {
	p.t.Helper()
	synctest.Wait()
	p.judge.read(p.t, p.backend)
	for id, i := range p.judge.instances {
		if i.State != farm.Terminating && i.State != farm.Terminated {
			p.t.Errorf("%s of a call that failed is %s", id, i.State)
		}
	}
}

// TestRollBack: when one part of a call for many instances fails, those of the other parts end,
// also those that are already on a node.
func TestRollBack(t *testing.T) {
	for name, end := range map[string]int{"by the holder": 0, "by the other": 1} {
		t.Run(name, func(t *testing.T) {
			inPair(t, func(t *testing.T, p *pair) {
				p.join(p.ends[0], "one", 100)
				e := p.ends[end]
				before := e.faults.Commits()
				e.faults.Next(0, storetest.Refuse)
				if ids, err := p.create(e, 500); err == nil {
					t.Fatalf("%d instances although a part of them failed", len(ids))
				}
				time.Sleep(time.Second)
				p.judge.read(t, p.backend)
				if e.faults.Commits() < before+5 || len(p.judge.instances) == 0 {
					t.Fatalf("%d instances: it was not in parts", len(p.judge.instances))
				}
				p.wantEnded()
			})
		})
	}
}

// TestRollBackOfWhatArrivesLate: a part of unknown outcome that does not exist when its call fails,
// and arrives after that, is ended as well.
func TestRollBackOfWhatArrivesLate(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		e := p.ends[1]
		lost := slices.Repeat([]storetest.Fault{storetest.LoseRequest}, 40)
		e.faults.Next(append([]storetest.Fault{storetest.ArriveLate}, lost...)...)
		if _, err := p.create(e, 3); !errors.Is(err, store.ErrUnknownOutcome) {
			t.Fatalf("got %v", err)
		}
		p.judge.read(t, p.backend)
		if n := len(p.judge.instances); n > 0 {
			t.Fatalf("%d instances have arrived already", n)
		}
		if err := e.faults.Late(t.Context()); err != nil {
			t.Fatalf("it cannot arrive any more: %v", err)
		}
		time.Sleep(2 * time.Minute)
		p.judge.read(t, p.backend)
		p.wantEnded()
		p.join(p.ends[0], "one", 9)
		p.wantPlaced(0)
	})
}
