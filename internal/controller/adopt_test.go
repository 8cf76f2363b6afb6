package controller

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/adoption"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// lose deletes the record of an instance without the controller, as a restore does.
func (c *cloud) lose(id string) {
	c.t.Helper()
	if err := c.store.Commit(c.t.Context(), store.Delete(c.tables.Instances, id, store.Any)); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

// detail returns what an agent reports of a VM that it was ordered to start.
func detail(o api.Order) api.InventoryDetail {
	return api.InventoryDetail{
		ID: o.InstanceID, ContentID: o.Start.ContentID, Start: o.Start,
		Status: api.InstanceStatus{
			InstanceID: o.InstanceID, Claim: o.Claim, No: 7, Phase: api.PhaseRunning,
			VM: &api.NodeVM{
				UUID: o.InstanceID, Name: o.Start.VMName, Status: "running", CPUs: 2, MemoryMB: 512, IP: "10.0.2.15",
				HostIP: "10.0.0.1",
				Ports:  []api.NodePortRule{{Name: "ssh", GuestPort: 22, HostPort: 10022, Protocol: "tcp"}},
			},
		},
	}
}

// tellAll answers the controller's requests for details until there are none.
func (a *agent) tellAll(known map[string]api.InventoryDetail) {
	a.t.Helper()
	a.contact()
	time.Sleep(askAfter)
	for range 5 {
		answer, err := a.tryPoll(api.PollRequest{HasHeld: true, Held: a.held}, 0)
		if err != nil {
			a.t.Fatal(err)
		}
		var details []api.InventoryDetail
		for _, id := range answer.Describe {
			if d, ok := known[id]; ok {
				details = append(details, d)
			}
		}
		if len(details) == 0 {
			return
		}
		if _, err := a.tryPoll(api.PollRequest{HasHeld: true, Held: a.held, Details: details}, 0); err != nil {
			a.t.Fatal(err)
		}
	}
}

// lost starts instances on a node and deletes their records. It returns what the node knows of
// them, by id.
func (c *cloud) lost(a *agent, req StartRequest) map[string]api.InventoryDetail {
	c.t.Helper()
	ids := c.mustStart(req)
	known := map[string]api.InventoryDetail{}
	for _, o := range a.next() {
		a.say(o, api.PhaseRunning)
		known[o.InstanceID] = detail(o)
	}
	for _, id := range ids {
		c.lose(id)
	}
	return known
}

func keys(known map[string]api.InventoryDetail) []string {
	var ids []string
	for id := range known {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// adopt decides about VMs and checks that all have one outcome.
func (c *cloud) adopt(ask adoption.Request, outcome, why string) []adoption.Result {
	c.t.Helper()
	list, err := c.Adoption.Adopt(c.t.Context(), ask)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, done := range list {
		if done.Outcome != outcome || !strings.Contains(done.Why, why) {
			c.t.Errorf("%s: %s %q, want %s %q", done.ID, done.Outcome, done.Why, outcome, why)
		}
	}
	synctest.Wait()
	return list
}

func TestAdoptKeeps(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 3)
		known := c.lost(a, StartRequest{Count: 2, Options: farm.StartOptions{
			Script: []byte("secret"), ScriptMonitoring: true, Ports: []farm.Port{{Name: "ssh", GuestPort: 22}},
		}})
		a.tellAll(known)
		ids := keys(known)
		list, err := c.Adoption.List(t.Context(), "one")
		if err != nil || len(list) != 2 || list[0].ID != ids[0] || list[0].Detail == nil || list[0].Since.IsZero() {
			t.Fatalf("unknown: %+v, %v", list, err)
		}
		keep := adoption.Request{Node: "one", Action: adoption.Keep}
		dry := keep
		dry.DryRun = true
		if done := c.adopt(dry, adoption.OutcomeKept, ""); len(done) != 2 || c.state(ids[0]) != farm.InstanceRemoved {
			t.Fatal("a dry run is none")
		}
		if done := c.adopt(keep, adoption.OutcomeKept, ""); len(done) != 2 {
			t.Fatalf("kept %+v", done)
		}
		inst, err := c.Instances.Get(t.Context(), ids[0])
		if err != nil || inst.State != farm.Started || inst.NodeID != a.id || inst.NodeName != "one" {
			t.Fatalf("instance = %+v, %v", inst, err)
		}
		ref := inst.Template
		if ref.ID != templateID || ref.Name != "base" || ref.Tag != "v2" || ref.ContentID != "content-1" ||
			ref.CPUs != 2 || ref.MemoryMB != 512 {
			t.Errorf("template = %+v", ref)
		}
		if inst.VM.IP != "10.0.2.15" || len(inst.VM.Ports) != 1 || inst.VM.Ports[0].HostPort != 10022 ||
			!inst.Options.ScriptMonitoring {
			t.Errorf("instance = %+v of %+v", inst.VM, inst.Options)
		}
		// A repeated call has the same result, now that the VM is no longer an orphan.
		c.adopt(adoption.Request{Node: a.id, Action: adoption.Keep, VMs: ids}, adoption.OutcomeKept, "")
		if list, _ := c.Adoption.List(t.Context(), ""); len(list) != 0 {
			t.Errorf("still unknown: %+v", list)
		}
		c.adoptedLives(a, known, ids)
	})
}

// adoptedLives checks that adopted instances are like any others: they get reports, count one time,
// are never started again, and can be terminated.
func (c *cloud) adoptedLives(a *agent, known map[string]api.InventoryDetail, ids []string) {
	t := c.t
	answer, err := a.tryPoll(api.PollRequest{}, 0)
	if err != nil || !answer.NeedFull || len(answer.Orders) > 0 {
		t.Errorf("the node is not asked for everything: %+v, %v", answer, err)
	}
	d := known[ids[0]]
	o := api.Order{InstanceID: ids[0], Claim: d.Status.Claim}
	a.no = d.Status.No - 1 // the same status that was reported without its output
	a.say(o, api.PhaseRunning, func(s *api.InstanceStatus) { s.Script = &api.ScriptStatus{Stdout: "out"} })
	if inst, _ := c.Instances.Get(t.Context(), ids[0]); inst.Script == nil || string(inst.Script.Stdout) != "out" {
		t.Errorf("script = %+v", inst.Script)
	}
	b := c.join("other", 5)
	c.restart()
	b.c, a.c = c, c
	a.contact()
	c.mustStart(StartRequest{Count: 2, Options: farm.StartOptions{PinnedNode: a.id}})
	if orders := a.next(); len(orders) != 1 {
		t.Errorf("%d starts beside two adopted instances on 3 slots", len(orders))
	}
	if orders := b.next(); len(orders) != 0 {
		t.Errorf("orders for another node: %+v", orders)
	}
	if err := c.Instances.Terminate(t.Context(), ids[0]); err != nil {
		t.Fatal(err)
	}
	end := a.take(api.OrderTerminate)
	if end.InstanceID != ids[0] || end.Claim != d.Status.Claim {
		t.Errorf("order = %+v", end)
	}
	a.say(end, api.PhaseTerminated)
	c.wantState(ids[0], farm.Terminated)
	a.held = slices.DeleteFunc(a.held, func(h api.InventoryItem) bool { return h.InstanceID == ids[1] })
	a.contact()
	c.wantState(ids[1], farm.Errored) // vanished
}

func TestAdoptRemoves(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 3)
		a.stray(3)
		if told := watch(10*time.Minute, a); len(told) > 0 {
			t.Fatal("the guard did not hold")
		}
		remove := adoption.Request{
			Node: "one", Action: adoption.Remove, DryRun: true, VMs: []string{a.held[0].VMID, a.held[1].VMID},
		}
		c.adopt(remove, adoption.OutcomeRemoved, "")
		if orders := a.contact(); len(orders) > 0 {
			t.Fatalf("a dry run orders %+v", orders)
		}
		remove.DryRun = false
		c.adopt(remove, adoption.OutcomeRemoved, "")
		c.adopt(adoption.Request{Node: "one", Action: adoption.Keep, VMs: remove.VMs}, adoption.OutcomeRefused,
			"the VM is already being removed")
		c.adopt(remove, adoption.OutcomeRemoved, "")
		c.restart()
		if orders := a.contact(); len(orders) != 2 || orders[0].Kind != api.OrderTerminate {
			t.Fatalf("orders = %+v", orders)
		}
		if orders := a.contact(); len(orders) != 0 {
			t.Errorf("ordered twice at once: %+v", orders)
		}
		c.adopt(adoption.Request{Node: "one", Action: adoption.Keep, VMs: remove.VMs}, adoption.OutcomeRefused,
			"the VM is already being removed")
		a.held = a.held[2:]
		a.contact()
		synctest.Wait()
		if n := c.tables.Released.Len(); n != 0 {
			t.Errorf("%d words are kept of VMs that are gone", n)
		}
		if told := watch(10*time.Minute, a); len(told) > 0 {
			t.Error("what was not released is removed")
		}
	})
}

func TestAdoptRefuses(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a, b := c.join("one", 5), c.join("two", 5)
		pinned := StartRequest{Options: farm.StartOptions{PinnedNode: a.id}}
		known := c.lost(a, pinned)
		id := keys(known)[0]
		keep := adoption.Request{Node: a.id, Action: adoption.Keep, VMs: []string{id}}
		a.contact()
		c.adopt(keep, adoption.OutcomeRefused, "the node has not yet reported details of the VM")
		ending := known[id]
		ending.Ending = true
		a.tellAll(map[string]api.InventoryDetail{id: ending})
		c.adopt(keep, adoption.OutcomeRefused, "the VM is already being removed by its node")
		// An instance with that id is elsewhere: no instance may run twice.
		a.stray(1)
		a.contact()
		c.adopt(adoption.Request{Node: a.id, Action: adoption.Keep, VMs: []string{a.held[1].VMID}},
			adoption.OutcomeRefused,
			"the VM has no instance ID and claim")
		a.held = append(a.held, api.InventoryItem{InstanceID: "../x", Claim: "x"})
		a.contact()
		c.adopt(adoption.Request{Node: a.id, Action: adoption.Keep, VMs: []string{"../x"}}, adoption.OutcomeRefused,
			"the VM has no instance ID and claim")
		a.held = a.held[:2]
		a.contact()
		c.adopt(adoption.Request{Node: b.id, Action: adoption.Keep, VMs: []string{id}}, adoption.OutcomeRefused,
			"has no orphaned VM with this ID")
		c.adopt(adoption.Request{Node: b.id, Action: adoption.Remove, VMs: []string{id}}, adoption.OutcomeRefused,
			"has no orphaned VM with this ID")
		c.mustStart(StartRequest{Options: farm.StartOptions{PinnedNode: b.id}})
		o := b.take(api.OrderStart)
		c.adopt(adoption.Request{Node: b.id, Action: adoption.Remove, VMs: []string{o.InstanceID}},
			adoption.OutcomeRefused, "terminate the instance")
		c.adopt(adoption.Request{Node: a.id, Action: adoption.Keep, VMs: []string{o.InstanceID}},
			adoption.OutcomeRefused,
			"on another node or with another claim")
		twin := detail(o)
		twin.Status.Claim = "mine"
		a.held = append(a.held, api.InventoryItem{InstanceID: o.InstanceID, Claim: "mine"})
		a.tellAll(map[string]api.InventoryDetail{o.InstanceID: twin})
		keep.VMs = []string{o.InstanceID}
		c.adopt(keep, adoption.OutcomeRefused, "on another node or with another claim")
		keep.DryRun = true
		c.adopt(keep, adoption.OutcomeRefused, "on another node or with another claim")
		for ask, code := range map[*adoption.Request]farm.Code{
			{Node: "three", Action: adoption.Keep}: farm.CodeNotFound,
			{Node: "one", Action: "eat"}:           farm.CodeInvalid,
		} {
			if _, err := c.Adoption.Adopt(t.Context(), *ask); farm.CodeOf(err) != code {
				t.Errorf("%+v: %v", ask, err)
			}
		}
		c.restart()
		if _, err := c.Adoption.Adopt(t.Context(), keep); farm.CodeOf(err) != farm.CodeUnavailable {
			t.Errorf("before the node reported: %v", err)
		}
	})
}

// TestRemovesATwin: after a restore an instance that was pending at the time of the backup is
// pending or runs again, while the VM that it got since then is still on another node. That node
// has to remove it, and gets no order that is for another node.
func TestRemovesATwin(t *testing.T) {
	for name, bring := range map[string]func(b *agent, ids []string) string{
		"waits":  func(_ *agent, ids []string) string { return ids[1] },
		"placed": func(_ *agent, ids []string) string { return ids[0] },
		"runs": func(b *agent, ids []string) string {
			b.say(b.take(api.OrderStart), api.PhaseRunning)
			return ids[0]
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				a, b := c.join("one", 1), c.join("two", 1)
				pinned := StartRequest{Options: farm.StartOptions{PinnedNode: b.id, Script: []byte("secret")}}
				id := bring(b, append(c.mustStart(pinned), c.mustStart(pinned)...))
				a.held = append(a.held, api.InventoryItem{InstanceID: id, Claim: "older"})
				a.contact()
				c.adopt(adoption.Request{Node: "one", Action: adoption.Remove, VMs: []string{id}},
					adoption.OutcomeRemoved, "")
				orders := a.contact()
				if len(orders) != 1 || orders[0].Kind != api.OrderTerminate || orders[0].InstanceID != id ||
					orders[0].Claim != "" {
					t.Errorf("orders = %+v", orders)
				}
			})
		})
	}
}

// longPorts returns port rules that are larger together than the bound of one VM's details.
func longPorts() []api.NodePortRule {
	long := strings.Repeat("x", nodeinput.MaxName)
	return slices.Repeat([]api.NodePortRule{{Name: long, HostIP: long, Protocol: long}}, nodeinput.MaxPorts)
}

// TestDetailsAreBounded: details that the controller did not request, or that are too large, are
// not kept.
func TestDetailsAreBounded(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		known := c.lost(a, StartRequest{})
		id := keys(known)[0]
		told := func(d api.InventoryDetail) bool {
			t.Helper()
			if _, err := a.tryPoll(api.PollRequest{HasHeld: true, Held: a.held, Details: []api.InventoryDetail{d}},
				0); err != nil {
				t.Fatal(err)
			}
			list, err := c.Adoption.List(t.Context(), "")
			if err != nil || len(list) != 1 {
				t.Fatalf("unknown: %+v, %v", list, err)
			}
			return list[0].Detail != nil
		}
		a.contact()
		if told(known[id]) {
			t.Error("a detail was kept that nobody asked for")
		}
		time.Sleep(askAfter)
		a.contact()
		large := known[id]
		start := *large.Start
		start.Ports = longPorts()
		large.Start = &start
		if told(large) {
			t.Error("a detail was kept that is too large")
		}
		if !told(known[id]) {
			t.Error("an ordinary detail was not kept")
		}
	})
}
