package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
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

// placedCount gives how many instances have a node.
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

// TestAnyReplicaTakesRequests: what the one without the lease takes is placed by the other.
func TestAnyReplicaTakesRequests(t *testing.T) {
	inPair(t, func(_ *testing.T, p *pair) {
		p.join(p.ends[1], "one", 3)
		p.mustCreate(p.ends[0])
		p.mustCreate(p.ends[1])
		p.wantPlaced(2)
	})
}

// TestPlacedFromTheFirstMoment: where a node is free an instance is never seen waiting,
// and its creation is all that is written.
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
			if held := p.ends[0].placer.used(n.ID).VMs; held != 3 {
				t.Errorf("the index counts %d instances on the node", held)
			}
		}
	})
}

// TestTakeover: one that stops resigns, and the other places at once.
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

// TestNewHolderReadsFirst: one that is behind when it wins the lease places nothing
// until it has seen what its predecessor placed.
func TestNewHolderReadsFirst(t *testing.T) {
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
		if err := old.Terminate(p.t.Context(), first); err != nil {
			p.t.Fatal(err)
		}
	})
}

// TestLatePlacement: a placement that is stuck on its way while the lease goes to
// another replica has no effect when it arrives. Its instance is created all the same.
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
