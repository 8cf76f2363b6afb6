package controller

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/adoption"
	"github.com/buildyard/buildyard/internal/controller/macpool"
	"github.com/buildyard/buildyard/internal/farm"
)

// inManaged runs a test with a controller that manages the addresses of a range.
func inManaged(t *testing.T, addresses string, test func(t *testing.T, c *cloud)) {
	t.Helper()
	inCloud(t, func(t *testing.T, c *cloud) {
		c.stop()
		c.manage(addresses)
		test(t, c)
	})
}

// manage starts a controller that manages addresses, on the existing store.
func (c *cloud) manage(addresses string) {
	c.t.Helper()
	r, err := farm.ParseMACRange(addresses)
	if err != nil {
		c.t.Fatal(err)
	}
	c.start(Options{ManageMACs: true, MACRange: r, firstMAC: c.firstMAC})
	synctest.Wait()
}

const (
	three  = "52:54:00:00:00:01-52:54:00:00:00:03"
	plenty = "52:54:00:00:00:01-52:54:00:00:FF:FF"
)

// macOf returns the address of an instance.
func (c *cloud) macOf(id string) string {
	c.t.Helper()
	synctest.Wait()
	inst, err := c.Instances.Get(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	return inst.MAC
}

// wantMACs checks that each instance has its own address, and that the list shows it.
func (c *cloud) wantMACs(inUse int) {
	c.t.Helper()
	synctest.Wait()
	users := map[string]string{}
	for id, inst := range c.tables.Instances.All() {
		if inst.MAC == "" {
			continue
		}
		if other := users[inst.MAC]; other != "" {
			c.t.Errorf("%s and %s have %s", id, other, inst.MAC)
		}
		users[inst.MAC] = id
	}
	for address, r := range c.tables.MACs.All() {
		if users[address] != r.InstanceID || r.Address != address {
			c.t.Errorf("%s is said to be %s's, it is %q's", address, r.InstanceID, users[address])
		}
	}
	if len(users) != inUse || c.tables.MACs.Len() != inUse {
		c.t.Errorf("%d instances have addresses, %d are in use, want %d", len(users), c.tables.MACs.Len(), inUse)
	}
}

// ends removes the record of an instance: its node has confirmed the end.
func (c *cloud) ends(a *agent, o api.Order) {
	c.t.Helper()
	if err := c.Instances.Terminate(c.t.Context(), o.InstanceID); err != nil {
		c.t.Fatal(err)
	}
	a.say(o, api.PhaseTerminated)
	time.Sleep(2 * time.Minute)
	c.wantState(o.InstanceID, farm.InstanceRemoved)
}

func TestEveryInstanceGetsAnAddress(t *testing.T) {
	inManaged(t, three, func(t *testing.T, c *cloud) {
		a := c.join("one", 2)
		ids := c.mustStart(StartRequest{Count: 3}) // two are placed immediately, one waits for capacity
		c.wantMACs(3)
		orders := a.next()
		for _, o := range orders {
			if o.Start.Machine == nil || o.Start.Machine.MAC != c.macOf(o.InstanceID) {
				t.Errorf("the node is told %+v", o.Start.Machine)
			}
			a.say(o, api.PhaseRunning)
		}
		late := c.mustStart(StartRequest{})[0]
		inst, _ := c.Instances.Get(t.Context(), late)
		if want := "waits for a MAC address: none of the 3 of " + three + " is free"; inst.Message != want ||
			inst.MAC != "" {
			t.Errorf("message %q, want %q", inst.Message, want)
		}
		freed := c.macOf(orders[0].InstanceID)
		c.ends(a, orders[0])
		c.wantMACs(3)
		if got := c.macOf(late); got != freed {
			t.Errorf("the late one has %s, want %s", got, freed)
		}
		if inst, _ := c.Instances.Get(t.Context(), ids[2]); len(ids) != 3 ||
			inst.NodeID == "" && c.state(late) != farm.Scheduling {
			t.Errorf("%+v", inst.Instance)
		}
		c.stop()
		c.manage(three)
		c.wantMACs(3)
	})
}

func TestRequestedAddresses(t *testing.T) {
	inManaged(t, three, func(t *testing.T, c *cloud) {
		a := c.join("one", 9)
		ask := func(address string) error {
			_, err := c.Start(t.Context(),
				StartRequest{
					TemplateID: templateID, Count: 1, Options: farm.StartOptions{MACAddress: address, Priority: 1},
				})
			synctest.Wait()
			return err
		}
		if err := ask("52:54:00:00:00:02"); err != nil {
			t.Fatal(err)
		}
		o := a.take(api.OrderStart)
		if o.Start.Machine.MAC != "52:54:00:00:00:02" {
			t.Errorf("machine %+v", o.Start.Machine)
		}
		if err := ask("52:54:00:00:00:02"); err == nil ||
			err.Error() != "mac_address 52:54:00:00:00:02 cannot be assigned: it is in use by instance "+o.InstanceID {
			t.Errorf("a taken one: %v", err)
		}
		if err := ask("52:54:00:00:00:04"); err == nil ||
			!strings.Contains(err.Error(), "not in the managed addresses ("+three+")") {
			t.Errorf("one outside: %v", err)
		}
		c.mustStart(StartRequest{Count: 2}) // the others
		c.wantMACs(3)
		a.say(o, api.PhaseRunning)
		c.ends(a, o)
		if err := ask("52:54:00:00:00:02"); err != nil {
			t.Errorf("one that is free again: %v", err)
		}
	})
}

func TestPopulateAndPurge(t *testing.T) {
	inManaged(t, three, func(t *testing.T, c *cloud) {
		a := c.join("one", 9)
		c.mustStart(StartRequest{})
		o := a.take(api.OrderStart)
		if err := c.MACs.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		id := c.mustStart(StartRequest{})[0]
		if inst, _ := c.Instances.Get(t.Context(), id); !strings.Contains(inst.Message,
			"the list of managed addresses is empty") {
			t.Errorf("message %q", inst.Message)
		}
		count := func(inUse *bool, want int) {
			t.Helper()
			if n, err := c.MACs.Count(inUse); n != want || err != nil {
				t.Errorf("%d, %v, want %d", n, err, want)
			}
		}
		yes, no := true, false
		count(nil, 1)
		count(&yes, 1)
		count(&no, 0)
		c.stop() // a restart does not refill a list that was emptied
		c.manage("52:54:00:00:00:10-52:54:00:00:00:11")
		a.contact()
		count(nil, 1)
		if err := c.MACs.Populate(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.wantMACs(2)
		count(nil, 3)
		count(&no, 1)
		list, err := c.MACs.List(macpool.Query{Limit: 9})
		if err != nil || len(list) != 3 || list[0].InstanceID != o.InstanceID ||
			list[1].Address != "52:54:00:00:00:10" {
			t.Errorf("list %+v, %v", list, err)
		}
	})
}

// TestSuspendedVersionGetsNoAddress: a suspended guest keeps the address that it was saved with.
func TestSuspendedVersionGetsNoAddress(t *testing.T) {
	inManaged(t, three, func(t *testing.T, c *cloud) {
		c.shelf.suspend(aPin)
		id := c.mustStart(StartRequest{})[0]
		if inst, _ := c.Instances.Get(t.Context(), id); inst.MAC != "" || inst.Message != "there are no nodes" {
			t.Errorf("%q: %q", inst.MAC, inst.Message)
		}
		c.wantMACs(0)
	})
}

// TestReplicasGiveAddressesOnce: two replicas create concurrently, of few addresses; the one that
// loses a race waits for an address and gets one.
func TestReplicasGiveAddressesOnce(t *testing.T) {
	inManaged(t, "52:54:00:00:00:01-52:54:00:00:00:28", func(t *testing.T, c *cloud) { // 40
		c.stop()
		c.firstMAC = func() farm.MAC { return 0 } // of both, so that they meet
		c.manage("52:54:00:00:00:01-52:54:00:00:00:28")
		second := &cloud{t: c.t, shelf: c.shelf, backend: c.backend, firstMAC: c.firstMAC}
		second.manage("52:54:00:00:00:01-52:54:00:00:00:28")
		defer second.stop()
		var wg sync.WaitGroup
		for i := range 40 {
			from := []*Controller{c.Controller, second.Controller}[i%2]
			wg.Go(func() {
				if _, err := from.Start(t.Context(),
					StartRequest{
						TemplateID: templateID, Count: 1, Options: farm.StartOptions{Priority: 1},
					}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		time.Sleep(10 * time.Second)
		c.wantMACs(40)
	})
}

// TestAddressesOfOrphans: after the records were lost an orphaned VM keeps its address, even
// before it is known that it has one; after an adoption, the address is the instance's again.
func TestAddressesOfOrphans(t *testing.T) {
	inManaged(t, "52:54:00:00:00:01-52:54:00:00:00:02", func(t *testing.T, c *cloud) {
		a := c.join("one", 5)
		c.mustStart(StartRequest{})
		o := a.take(api.OrderStart)
		address := o.Start.Machine.MAC
		a.say(o, api.PhaseRunning, func(s *api.InstanceStatus) { s.VM.MAC = strings.ToLower(address) })
		c.lose(o.InstanceID)
		if err := c.store.Commit(t.Context(),
			macpool.Free(c.tables, &farm.Instance{ID: o.InstanceID, MAC: address})...); err != nil {
			t.Fatal(err)
		}
		c.stop()
		c.manage("52:54:00:00:00:01-52:54:00:00:00:02")
		ids := c.mustStart(StartRequest{Count: 2})
		c.wantMACs(0)
		if inst, _ := c.Instances.Get(t.Context(), ids[0]); !strings.Contains(inst.Message,
			"waits for the inventory of node one") {
			t.Errorf("message %q", inst.Message)
		}
		a.contact()
		if inst, _ := c.Instances.Get(t.Context(), ids[0]); !strings.Contains(inst.Message,
			"waits for the MAC addresses of orphaned VMs") {
			t.Errorf("message %q", inst.Message)
		}
		time.Sleep(askAfter)
		a.tell(o, address)
		time.Sleep(macpool.RetryInterval)
		c.wantMACs(1)
		if got := c.macOf(ids[0]); got == "" || got == address {
			t.Errorf("it has %q, the VM has %s", got, address)
		}
		done, err := c.Adoption.Adopt(t.Context(), adoption.Request{Node: a.id, Action: adoption.Keep})
		if err != nil || len(done) != 1 || done[0].Outcome != adoption.OutcomeKept {
			t.Fatalf("%+v, %v", done, err)
		}
		if got := c.macOf(o.InstanceID); got != address {
			t.Errorf("adopted with %q, it has %s", got, address)
		}
		c.wantMACs(2)
	})
}

// TestAddressesAfterSilence: an instance that waits for the inventory of a node gets its address shortly after
// that is no longer waited for, and its message names the reason at any time.
func TestAddressesAfterSilence(t *testing.T) {
	inManaged(t, plenty, func(t *testing.T, c *cloud) {
		c.join("one", 5)
		c.stop()
		c.manage(plenty)
		restarted := time.Now()
		time.Sleep(time.Second) // checks need not be at whole multiples of an interval after the start
		id := c.mustStart(StartRequest{})[0]
		asked := c.mustStart(StartRequest{Options: farm.StartOptions{MACAddress: "52:54:00:00:77:77"}})[0]
		for _, id := range []string{id, asked} {
			if inst, _ := c.Instances.Get(t.Context(), id); !strings.Contains(inst.Message,
				"waits for the inventory of node one") {
				t.Errorf("message %q", inst.Message)
			}
		}
		time.Sleep(c.opts.NodeTimeout - time.Since(restarted))
		for c.macOf(id) == "" || c.macOf(asked) == "" {
			for _, id := range []string{id, asked} {
				inst, _ := c.Instances.Get(t.Context(), id)
				if strings.Contains(inst.Message, "none of") || strings.Contains(inst.Message, "which") {
					t.Fatalf("message %q, and addresses are free", inst.Message)
				}
			}
			if waited := time.Since(restarted) - c.opts.NodeTimeout; waited > macpool.CheckInterval {
				t.Fatalf("no address after %s", waited)
			}
			time.Sleep(10 * time.Millisecond)
		}
		c.wantMACs(2)
	})
}

// tell reports the details of an orphaned VM.
func (a *agent) tell(o api.Order, address string) {
	a.t.Helper()
	answer, err := a.tryPoll(api.PollRequest{Info: a.info, Held: a.held, HasHeld: true}, 0)
	if err != nil || len(answer.Describe) != 1 {
		a.t.Fatalf("asked about %v, %v", answer.Describe, err)
	}
	detail := api.InventoryDetail{
		ID: o.InstanceID, ContentID: o.Start.ContentID, Start: o.Start,
		Status: api.InstanceStatus{
			InstanceID: o.InstanceID, Claim: o.Claim, No: 9, Phase: api.PhaseRunning,
			VM: &api.NodeVM{UUID: o.InstanceID, Status: "running", MAC: strings.ToLower(address)},
		},
	}
	a.poll(api.PollRequest{Info: a.info, Held: a.held, HasHeld: true, Details: []api.InventoryDetail{detail}}, 0)
	synctest.Wait()
}

// TestAddressesOfMany: managed addresses cost one record per created instance, and nothing when
// they are off.
func TestAddressesOfMany(t *testing.T) {
	inManaged(t, plenty, func(t *testing.T, c *cloud) {
		c.mustStart(StartRequest{Count: 1000})
		c.wantMACs(1000)
	})
}
