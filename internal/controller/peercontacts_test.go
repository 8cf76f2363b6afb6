package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/usage"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// at returns the agent as a client of another replica.
func (a *agent) at(c *cloud) *agent {
	b := *a
	b.c = c
	return &b
}

func (c *cloud) wantNode(id string, want farm.NodeState) {
	c.t.Helper()
	synctest.Wait()
	n, _, ok := c.tables.Nodes.Get(id)
	if !ok || n.State != want {
		c.t.Fatalf("node is %+v, want %s", n, want)
	}
}

// TestNodeOfAnotherReplica: a node that polls the replica without the lease counts as in contact.
func TestNodeOfAnotherReplica(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.started(a)
		second := c.replica()
		defer second.stop()
		b := a.at(second)
		b.keepContact(10 * time.Minute)
		c.wantNode(a.id, farm.NodeActive)
		c.wantState(o.InstanceID, farm.Started)
		last := time.Now()
		time.Sleep(2*time.Minute - time.Second)
		c.wantNode(a.id, farm.NodeActive)
		time.Sleep(nodelink.MaxDigestInterval + 2*time.Second) // the contact is as old as the last digest
		c.wantNode(a.id, farm.NodeOffline)
		if n, _, _ := c.tables.Nodes.Get(a.id); n.StateSince.Sub(last) < 2*time.Minute {
			t.Errorf("offline after %s", n.StateSince.Sub(last))
		}
		b.contact()
		c.wantNode(a.id, farm.NodeActive)
	})
}

// TestReplicaThatIsMissing: the contacts of a replica that publishes nothing any longer are
// unknown, but only after one more timeout without contact.
func TestReplicaThatIsMissing(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		second := c.replica()
		defer second.stop()
		a.at(second).keepContact(5 * time.Minute)
		second.stop()
		time.Sleep(2*time.Minute + (missedDigests-1)*nodelink.MaxDigestInterval)
		c.wantNode(a.id, farm.NodeActive)
		time.Sleep(2 * nodelink.MaxDigestInterval)
		c.wantNode(a.id, farm.NodeOffline)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := c.tables.Digests.Len(); n != 0 {
			t.Errorf("%d digests of dead replicas are kept", n)
		}
	})
}

// TestReplicaTakesOver: the lease goes to the replica that the node did not poll, and to the one
// that it did; neither declares a node state before one timeout has passed.
func TestReplicaTakesOver(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		second := c.replica()
		defer func() { second.stop() }()
		a.keepContact(time.Minute)
		c.stop()
		time.Sleep(2*time.Minute - time.Second)
		second.wantNode(a.id, farm.NodeActive)
		time.Sleep(3 * time.Second)
		second.wantNode(a.id, farm.NodeOffline)
		c.start(Options{})
		a.contact()
		a.keepContact(10 * time.Minute)
		second.wantNode(a.id, farm.NodeActive)
	})
}

// TestOneReplicaWritesNoDigest: a single replica writes nothing but the series.
func TestOneReplicaWritesNoDigest(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		writes := func() int64 {
			a.contact()
			before, err := c.backend.Barrier(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			a.keepContact(time.Hour)
			after, err := c.backend.Barrier(t.Context())
			if err != nil || c.tables.Digests.Len() > 0 {
				t.Errorf("%d digests: %v", c.tables.Digests.Len(), err)
			}
			return after - before
		}
		a.keepContact(10 * time.Minute) // the alarm about the registry, which does not answer here, is recorded
		if n := writes(); n != 0 {
			t.Errorf("an hour in which nothing runs took %d writes", n)
		}
		c.started(a)
		const records = 3 // the series of the cloud, those of the groups, and the usage
		if n := writes(); n > records*int64(time.Hour/usage.StoreInterval)+1 {
			t.Errorf("an hour in which one instance runs took %d writes", n)
		}
	})
}

// TestInvalidDigest: a digest that no replica of this version wrote does no harm.
func TestInvalidDigest(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		for _, nodes := range [][]byte{nil, {1, 2, 3}, make([]byte, 3*18+5)} {
			rubbish := &record.Digest{
				Nodes: nodes, Loads: []byte{200, 255, 1},
				Pulls:   map[string][]byte{"x": {255, 255, 1, 0, 0, 200, 0}, "y": nil},
				Orphans: []record.OrphanReport{{At: -1}, {At: 1 << 40}, {At: 0, VMs: -7}},
			}
			if err := c.store.Commit(t.Context(), store.Put(c.tables.Digests, "x", rubbish, store.Any)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if at := c.Link.Peers.LastContact("00000000-0000-0000-0000-000000000000"); at.IsZero() {
			t.Error("a digest was not read")
		}
	})
}

// TestReplicaThatIsRemoved: all replicas drop its contacts.
func TestReplicaThatIsRemoved(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		id := uuid.New()
		digest := func(no int64) store.Event {
			return store.Event{
				Kind: record.KindDigest, ID: "other", New: &record.Digest{No: no, Nodes: append(id[:], 0, 0)},
			}
		}
		c.Link.Peers.Observe([]store.Event{digest(1), digest(2)})
		if !c.Link.Peers.HasContact(id.String()) {
			t.Error("a node of another replica has no contact")
		}
		c.Link.Peers.Observe([]store.Event{{Kind: record.KindDigest, ID: "other", Old: digest(2).New}})
		if c.Link.Peers.HasContact(id.String()) {
			t.Error("the contacts of a removed replica are kept")
		}
	})
}

// TestOrderTakenFromAnotherReplica: the leader does not assume that an order was never acknowledged
// when it has not sent that order itself.
func TestOrderTakenFromAnotherReplica(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		second := c.replica()
		defer second.stop()
		b := a.at(second)
		b.keepContact(time.Minute)
		id := c.mustStart(StartRequest{})[0]
		b.say(b.take(api.OrderStart), api.PhaseAccepted)
		hang := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); {
				b.poll(api.PollRequest{Info: b.info, Held: b.held, HasHeld: true}, 5*time.Second)
			}
		}
		hang(acknowledgeLimit + time.Minute)
		c.wantState(id, farm.Scheduling)
		hang(startSlack)
		c.wantState(id, farm.Errored)
		c.wantMessage(id, "did not start it")
	})
}

// TestContactBetweenDigests: a node that polls another replica every few seconds is in contact all the
// time, also right before the next digest.
func TestContactBetweenDigests(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		time.Sleep(10 * time.Minute)
		id, _ := uuid.Parse(a.id)
		c.Link.Peers.Observe([]store.Event{{
			Kind: record.KindDigest, ID: "other", New: &record.Digest{No: 1, Nodes: append(id[:], 0, 50)}, // 5 s ago
		}})
		for end := time.Now().Add(nodelink.MaxDigestInterval); !time.Now().After(end); time.Sleep(time.Second) {
			if silence := c.now().Sub(c.Link.LastContact(a.id)); silence > nodelink.ContactGap {
				t.Fatalf("no contact for %s, %s before the next digest", silence, time.Until(end))
			}
		}
		time.Sleep(missedDigests*nodelink.MaxDigestInterval + nodelink.ContactGap)
		if silence := c.now().Sub(c.Link.LastContact(a.id)); silence <= nodelink.ContactGap {
			t.Error("a node that no replica hears counts as being in contact")
		}
	})
}
