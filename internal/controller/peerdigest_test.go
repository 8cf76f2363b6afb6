package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/macpool"
	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/farm"
)

// meet lets two replicas receive each other's digests.
func meet(agents ...*agent) {
	for range 12 {
		for _, a := range agents {
			a.contact()
		}
		time.Sleep(5 * time.Second)
	}
	synctest.Wait()
}

// TestNodesAreShownAlike: the load that a node reports to one replica is shown by every replica.
// That includes what it reports to the leader, and after it has moved.
func TestNodesAreShownAlike(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a, b := c.join("one", 1), c.join("two", 1)
		second := c.replica()
		defer second.stop()
		says := func(a *agent, cpu, ram float64) {
			for range 5 {
				a.poll(api.PollRequest{
					Info: a.info, Held: a.held, HasHeld: true, Usage: &api.Usage{CPU: cpu, RAM: ram},
				}, 0)
				time.Sleep(5 * time.Second)
			}
		}
		shows := func(a *agent, cpu, ram float64) {
			t.Helper()
			for _, replica := range []*cloud{c, second} {
				v := replica.node(a.at(replica))
				if v.Usage.CPU != cpu || v.Usage.RAM != ram || time.Since(v.Seen) > nodelink.ContactGap {
					t.Errorf("load = %v and %v, seen %s ago; want %v and %v", v.Usage.CPU, v.Usage.RAM,
						time.Since(v.Seen), cpu, ram)
				}
			}
		}
		there := b.at(second)
		meet(a, there)
		says(there, 0.57, 0.25)
		shows(b, 0.57, 0.25)
		says(a, 0.29, 1)
		shows(a, 0.29, 1)
		says(b, 0.1, 0.2) // it polls the other one from now on
		shows(b, 0.1, 0.2)
		time.Sleep(nodelink.MaxDigestInterval + 6*time.Second)
		shows(b.at(c), 0.1, 0.2)
		time.Sleep(time.Minute) // no replica hears it
		for _, replica := range []*cloud{c, second} {
			if v := replica.node(b.at(replica)); v.Usage.CPU != 0 {
				t.Errorf("a node that fell silent has a load of %v", v.Usage.CPU)
			}
		}
	})
}

// TestProgressIsShownAlike: every replica shows the progress of a pull, and that it is done.
func TestProgressIsShownAlike(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		second := c.replica()
		defer second.stop()
		there := a.at(second)
		meet(there)
		id := c.distribute()
		there.cacheJob(api.CacheJobPull)
		there.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobWorking, Progress: 0.37})
		meet(there)
		for _, replica := range []*cloud{c, second} {
			replica.wantCacheJob(id, map[string]farm.CacheJobResult{a.id: {Progress: 0.37}})
		}
		there.tellCacheJob(api.CacheJobStatus{ID: id, Stage: api.CacheJobDone})
		for _, replica := range []*cloud{c, second} {
			replica.wantCacheJob(id, map[string]farm.CacheJobResult{a.id: {Done: true, Progress: 1}})
		}
	})
}

// TestOrphansOfAnotherReplica: orphaned VMs use capacity and are shown, whichever replica their
// node polls.
func TestOrphansOfAnotherReplica(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 3)
		second := c.replica()
		defer second.stop()
		there := a.at(second)
		there.stray(2)
		meet(there)
		for _, replica := range []*cloud{c, second} {
			if v := replica.node(a.at(replica)); v.Unknown != 2 || v.Usage.VMs != 2 {
				t.Errorf("%d unknown VMs of %d are shown", v.Unknown, v.Usage.VMs)
			}
		}
		c.mustStart(StartRequest{Count: 3})
		c.wantSlots(a, 1)
		there.held = nil
		meet(there)
		c.wantSlots(a, 3)
		meet(a) // it polls the other one, with one VM
		a.held = nil
		a.stray(1)
		meet(a)
		for _, replica := range []*cloud{c, second} {
			if v := replica.node(a.at(replica)); v.Unknown != 1 {
				t.Errorf("%d unknown VMs are shown after a move", v.Unknown)
			}
		}
	})
}

// TestAddressesOfOrphansOfAnotherReplica: no replica assigns the address of an orphaned VM on a node
// that polls the other one.
func TestAddressesOfOrphansOfAnotherReplica(t *testing.T) {
	const two = "52:54:00:00:00:01-52:54:00:00:00:02"
	inManaged(t, two, func(t *testing.T, c *cloud) {
		a := c.join("one", 5)
		c.mustStart(StartRequest{})
		o := a.take(api.OrderStart)
		a.say(o, api.PhaseRunning)
		c.lose(o.InstanceID)
		if err := c.store.Commit(t.Context(),
			macpool.Free(c.tables, &farm.Instance{ID: o.InstanceID, MAC: o.Start.Machine.MAC})...); err != nil {
			t.Fatal(err)
		}
		second := &cloud{t: c.t, shelf: c.shelf, backend: c.backend}
		c.stop() // the other one gets the lease
		second.manage(two)
		defer second.stop()
		c.manage(two)
		there := a.at(second)
		for range 10 { // until each replica considers the other alive
			there.contact()
			time.Sleep(2 * time.Second)
		}
		synctest.Wait()
		early, err := c.Start(t.Context(),
			StartRequest{TemplateID: templateID, Count: 1, Options: farm.StartOptions{Priority: 1}})
		if err != nil {
			t.Fatal(err)
		}
		if mac := c.macOf(early[0]); mac != "" {
			t.Fatalf("%s is given while nobody knows what the VM has", mac)
		}
		time.Sleep(20 * time.Second)
		there.tell(o, o.Start.Machine.MAC)
		meet(there)
		ids := append(early, c.mustStart(StartRequest{})[0], second.mustStart(StartRequest{})[0])
		with := 0
		for _, id := range ids {
			if mac := c.macOf(id); mac == o.Start.Machine.MAC {
				t.Errorf("%s is given twice", mac)
			} else if mac != "" {
				with++
			}
		}
		if with != 1 {
			t.Errorf("%d instances have the one address that is free", with)
		}
		_, err = c.Start(t.Context(), StartRequest{
			TemplateID: templateID, Count: 1, Options: farm.StartOptions{Priority: 1, MACAddress: o.Start.Machine.MAC},
		})
		if err == nil || !strings.Contains(err.Error(), "in use by an orphaned VM") {
			t.Errorf("asked for: %v", err)
		}
	})
}

// TestLeaderPublishesDigestForReplicas: the leader publishes its digest while there is another
// replica, and withdraws it when there is none any longer.
func TestLeaderPublishesDigestForReplicas(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		second := c.replica()
		a.keepContact(time.Minute)
		if n := c.tables.Digests.Len(); n != 2 {
			t.Errorf("%d digests of two replicas", n)
		}
		second.stop()
		a.keepContact(10 * time.Minute)
		synctest.Wait()
		if n := c.tables.Digests.Len(); n != 0 {
			t.Errorf("%d digests are kept", n)
		}
	})
}
