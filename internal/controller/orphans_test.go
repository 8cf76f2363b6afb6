package controller

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/adoption"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// backToWaiting puts instances that run on a node back to their state before the placement, as a
// restore of a backup does. It returns what the node knows of them.
func (c *cloud) backToWaiting(a *agent, req StartRequest) map[string]api.InventoryDetail {
	c.t.Helper()
	before := map[string]*farm.Instance{}
	known := map[string]api.InventoryDetail{}
	ids := c.mustStart(req)
	orders := a.next()
	for _, o := range orders {
		a.say(o, api.PhaseRunning)
		known[o.InstanceID] = detail(o)
	}
	c.stop()
	for _, id := range ids {
		inst, _, _ := c.tables.Instances.Get(id)
		was := inst.Clone()
		was.State, was.NodeID, was.NodeName, was.Claim, was.StatusNumber, was.VM = farm.Scheduling, "", "", "", 0, nil
		was.Started, was.Placed, was.Message = time.Time{}, time.Time{}, ""
		before[id] = was
	}
	c.rewrite(before)
	c.start(Options{})
	synctest.Wait()
	return known
}

// rewrite writes records while no controller runs.
func (c *cloud) rewrite(records map[string]*farm.Instance) {
	c.t.Helper()
	tables := record.NewTables(nil)
	st, err := store.Open(c.t.Context(), c.backend, store.Options{Tables: tables.All()})
	if err != nil {
		c.t.Fatal(err)
	}
	for id, inst := range records {
		if err := st.Commit(c.t.Context(), store.Put(tables.Instances, id, inst, store.Any)); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		c.t.Fatal(err)
	}
}

// TestRestoreSparesWhatRuns: instances that were pending when a backup was made run when it is
// restored. Their VMs are orphaned, and neither a report nor an order ends them. The instances wait
// for the decision, report that, and keep their names when their VMs are adopted.
func TestRestoreSparesWhatRuns(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 9)
		known := c.backToWaiting(a, StartRequest{Count: 4, Name: "job"})
		ids := keys(known)
		a.tellAll(known)
		for end := time.Now().Add(20 * time.Minute); time.Now().Before(end); time.Sleep(3 * time.Second) {
			for _, id := range ids {
				a.say(api.Order{InstanceID: id, Claim: known[id].Status.Claim}, api.PhaseRunning)
			}
			if orders := a.contact(); len(orders) > 0 {
				t.Fatalf("orders = %+v", orders)
			}
		}
		c.wantMessage(ids[0], "buildyard node adopt")
		if status := c.Status(t.Context()); len(status.Alarms) != 1 {
			t.Errorf("alarms = %q", status.Alarms)
		}
		c.adopt(adoption.Request{Node: "one", Action: adoption.Keep, VMs: ids[:2], DryRun: true}, adoption.OutcomeKept,
			"")
		c.wantState(ids[0], farm.Scheduling)
		c.adopt(adoption.Request{Node: "one", Action: adoption.Keep, VMs: ids[:2]}, adoption.OutcomeKept, "")
		for _, id := range ids[:2] {
			c.wantState(id, farm.Started)
			inst, _ := c.Instances.Get(t.Context(), id)
			if inst.NodeID != a.id || inst.Claim != known[id].Status.Claim || inst.Name != "job" ||
				inst.Metadata != nil {
				t.Errorf("kept as %+v", inst.Instance)
			}
		}
		c.adopt(adoption.Request{Node: "one", Action: adoption.Remove, VMs: ids[2:3]}, adoption.OutcomeRemoved, "")
		if orders := a.contact(); len(orders) != 1 || orders[0].Kind != api.OrderTerminate ||
			orders[0].InstanceID != ids[2] {
			t.Fatalf("orders = %+v", orders)
		}
		a.held = slices.DeleteFunc(a.held, func(h api.InventoryItem) bool { return h.InstanceID == ids[2] })
		a.contact()
		time.Sleep(6 * time.Second) // the order may have been in that response
		if o := a.take(api.OrderStart); o.InstanceID != ids[2] {
			t.Errorf("%s is started", o.InstanceID)
		}
		if err := c.Instances.Terminate(t.Context(), ids[3]); err != nil {
			t.Fatal(err)
		}
	})
}

// TestOrdersSpareAVM: an instance is placed on the very node that has a VM of it under another
// claim. No order that would destroy the VM is sent, until a client ends the instance, or the VM.
func TestOrdersSpareAVM(t *testing.T) {
	for name, decide := range map[string]func(c *cloud, id string){
		"terminated": func(c *cloud, id string) {
			if err := c.Instances.Terminate(c.t.Context(), id); err != nil {
				c.t.Fatal(err)
			}
		},
		"released": func(c *cloud, id string) {
			c.adopt(adoption.Request{Node: "one", Action: adoption.Remove, VMs: []string{id}}, adoption.OutcomeRemoved,
				"")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				a := c.join("one", 3)
				id := c.mustStart(StartRequest{})[0]
				a.held = append(a.held, api.InventoryItem{InstanceID: id, Claim: "older"})
				a.contact()
				for end := time.Now().Add(20 * time.Minute); time.Now().Before(end); time.Sleep(3 * time.Second) {
					if orders := a.contact(); len(orders) > 0 {
						t.Fatalf("orders = %+v", orders)
					}
				}
				c.wantState(id, farm.Errored)
				decide(c, id)
				time.Sleep(6 * time.Second)
				if orders := a.contact(); len(orders) != 1 || orders[0].Kind != api.OrderTerminate {
					t.Errorf("orders = %+v", orders)
				}
			})
		})
	}
}

// TestOrphansOfARemovedNode: after the removal of a node its VMs no longer make instances wait.
func TestOrphansOfARemovedNode(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a, b := c.join("one", 3), c.join("two", 3)
		known := c.backToWaiting(a,
			StartRequest{Options: farm.StartOptions{PinnedNode: a.id, Priority: farm.DefaultPriority}})
		id := keys(known)[0]
		a.contact()
		inst, _, _ := c.tables.Instances.Get(id)
		loose := inst.Clone()
		loose.Options.PinnedNode = ""
		if err := c.store.Commit(t.Context(), store.Put(c.tables.Instances, id, loose, store.Any)); err != nil {
			t.Fatal(err)
		}
		if orders := b.contact(); len(orders) > 0 {
			t.Fatalf("orders = %+v", orders)
		}
		if err := c.Nodes.Delete(t.Context(), a.id); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if o := b.take(api.OrderStart); o.InstanceID != id {
			t.Errorf("%s is started", o.InstanceID)
		}
	})
}

// TestNoStartsBeforeTheInventory: after a restart of the controller a node gets no starts before it
// has reported its inventory, and then only as many as fit in addition to that.
func TestNoStartsBeforeTheInventory(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 3)
		a.stray(2)
		a.contact()
		c.restart()
		ids := c.mustStart(StartRequest{Count: 3})
		c.wantSlots(a, 0)
		c.wantMessage(ids[0], "has not reported its inventory yet")
		a.early = a.contact() // which may bring the start already
		c.wantSlots(a, 1)
		if n := len(a.next()); n != 1 {
			t.Errorf("%d starts beside 2 unknown VMs on 3 slots", n)
		}
	})
}

// TestNodesOfAnotherReplicaTakeStarts: a node that another replica hears gets starts, and so does
// one from which no replica has heard for a full timeout.
func TestNodesOfAnotherReplicaTakeStarts(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 3)
		c.restart()
		c.mustStart(StartRequest{})
		id, _ := uuid.Parse(a.id)
		other := func(no int64) {
			digest := &record.Digest{No: no, Nodes: append(id[:], 0, 1)}
			if err := c.store.Commit(t.Context(), store.Put(c.tables.Digests, "other", digest, store.Any)); err != nil {
				t.Fatal(err)
			}
		}
		other(1) // which may be from before this process began
		c.wantSlots(a, 0)
		other(2)
		c.wantSlots(a, 1)
		c.stop()
		c.start(Options{NodeTimeout: time.Minute})
		n, _, _ := c.tables.Nodes.Get(a.id)
		n = n.Clone()
		n.State, n.Drain = farm.NodeActive, false
		c.wantSlots(a, 1)
		c.mustStart(StartRequest{})
		c.wantSlots(a, 1)
		time.Sleep(time.Minute - time.Second)
		c.wantSlots(a, 1)
		// It is declared Offline now; the test overwrites that, until its write precedes the next
		// check.
		for i := 0; i < 100 && c.used(a).VMs < 2; i++ {
			time.Sleep(time.Second)
			c.putNode(n)
			synctest.Wait()
		}
		c.wantSlots(a, 2)
	})
}
