package controller

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/controller/pools"
	"github.com/buildyard/buildyard/internal/farm"
)

// resolveTime is longer than it takes until a pool sees another version behind its tag.
const resolveTime = 15 * time.Second

// pool creates a pool of the template.
func (c *cloud) pool(idle int, edit ...func(*farm.Pool)) *farm.Pool {
	c.t.Helper()
	p := farm.Pool{Name: "warm", TemplateID: templateID, MinIdle: idle}
	for _, f := range edit {
		f(&p)
	}
	made, err := c.Pools.Create(c.t.Context(), p, func(*farm.Pool) any { return nil })
	if err != nil {
		c.t.Fatal(err)
	}
	return made
}

// poolNode adds a node that can hand standbys to starts.
func (c *cloud) poolNode(name string, capacity int) *agent {
	c.t.Helper()
	a := c.join(name, capacity)
	a.info.Abilities = []string{farm.AbilityPC, farm.AbilityTakeOver}
	a.poll(api.PollRequest{Info: a.info, Held: a.held, HasHeld: true}, 0)
	synctest.Wait()
	return a
}

// bootStandbys lets the node start all VMs that are ordered within a few seconds.
func (a *agent) bootStandbys(want int) []api.Order {
	a.t.Helper()
	var list []api.Order
	for range 20 {
		time.Sleep(500 * time.Millisecond)
		for _, o := range a.next() {
			if o.Kind == api.OrderStart {
				a.say(o, api.PhaseRunning)
				list = append(list, o)
			} else {
				a.say(o, api.PhaseTerminated)
			}
		}
	}
	if len(list) != want {
		a.t.Fatalf("%d VMs were ordered, want %d: %+v", len(list), want, list)
	}
	return list
}

func (c *cloud) poolView(p *farm.Pool) pools.View {
	c.t.Helper()
	v, err := c.Pools.Get(c.t.Context(), p.ID)
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

// TestClaim: a pool keeps standbys that no list shows; a start claims one, and its node gets an order to hand the VM
// over under a new claim. Reports of the standby from before change nothing.
func TestClaim(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.poolNode("one", 3)
		p := c.pool(2)
		before := a.bootStandbys(2)
		if v := c.poolView(p); v.Ready != 2 || v.Wanted != 2 {
			t.Fatalf("pool %+v", v)
		}
		if list := c.Instances.List(instances.Page{}); len(list) != 0 {
			t.Fatalf("the list shows standbys: %+v", list)
		}
		if list := c.poolView(p).Standbys; len(list) != 2 {
			t.Fatalf("standbys in the list: %d", len(list))
		}
		ids := c.mustStart(StartRequest{
			Name: "mine", ExternalID: "job", Options: farm.StartOptions{Script: []byte("echo hi")},
		})
		if i := slices.IndexFunc(before, func(o api.Order) bool { return o.InstanceID == ids[0] }); i < 0 {
			t.Fatalf("instance %s is none of the standbys %+v", ids[0], before)
		} else if i > 0 {
			before[0], before[i] = before[i], before[0]
		}
		inst, err := c.Instances.Get(t.Context(), ids[0])
		if err != nil || inst.IsStandby() || inst.State != farm.Scheduling || inst.Name != "mine" ||
			inst.Claim == before[0].Claim || inst.NodeID != a.id {
			t.Fatalf("claimed %+v, %v", inst.Instance, err)
		}
		a.say(before[0], api.PhaseStopped) // a late report of the standby
		c.wantState(ids[0], farm.Scheduling)
		var order api.Order
		for _, o := range a.next() {
			if o.InstanceID == ids[0] {
				order = o
			}
		}
		if order.Kind != api.OrderStart || order.Claim != inst.Claim || order.Start.TakesOver != before[0].Claim ||
			order.Start.Script == nil {
			t.Fatalf("order %+v", order)
		}
		for i := range a.held {
			if a.held[i].InstanceID == ids[0] {
				a.held[i].Claim = order.Claim
			}
		}
		a.say(order, api.PhaseRunning)
		c.wantState(ids[0], farm.Started)
		if v := c.poolView(p); v.Stats.Hits != 1 || v.Stats.Misses != 0 {
			t.Errorf("sums %+v", v.Stats)
		}
		a.bootStandbys(1) // in place of the claimed one
	})
}

// TestClaimDoesNotFit: a start with a parameter that a running VM cannot get, another group or another version claims
// no standby.
func TestClaimDoesNotFit(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.poolNode("one", 10)
		p := c.pool(1)
		standby := a.bootStandbys(1)[0].InstanceID
		for name, req := range map[string]StartRequest{
			"vcpu":    {Options: farm.StartOptions{CPUs: 2}},
			"ports":   {Options: farm.StartOptions{PortOverride: true}},
			"version": {Tag: "v1"},
		} {
			if ids := c.mustStart(req); ids[0] == standby {
				t.Errorf("%s: claimed", name)
			}
		}
		if v := c.poolView(p); v.Ready != 1 || v.Stats.Misses != 0 {
			t.Errorf("pool %+v", v)
		}
		if ids := c.mustStart(StartRequest{Options: farm.StartOptions{CPUs: 1}, Count: 3}); ids[0] != standby {
			t.Errorf("a start with the CPUs of the template does not claim")
		}
		synctest.Wait()
		if v := c.poolView(p); v.Stats.Hits != 1 || v.Stats.Misses != 2 {
			t.Errorf("sums %+v", v.Stats)
		}
	})
}

// TestYield: a request that finds no free slot gets the one of a standby, and the pool gets none back while requests
// wait.
func TestYield(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.poolNode("one", 2)
		p := c.pool(2)
		a.bootStandbys(2)
		ids := c.mustStart(StartRequest{Tag: "v1"})
		c.wantState(ids[0], farm.Scheduling)
		order := a.bootStandbys(1)[0]
		if order.InstanceID != ids[0] {
			t.Fatalf("order %+v, want that of the request", order)
		}
		c.wantState(ids[0], farm.Started)
		if v := c.poolView(p); v.Stats.Yielded != 1 || v.Ready != 1 || v.Problem == "" {
			t.Errorf("pool %+v", v)
		}
	})
}

// TestNewTag: another version behind the tag of a pool ends its standbys and boots new ones.
func TestNewTag(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.poolNode("one", 4)
		p := c.pool(2)
		a.bootStandbys(2)
		if err := c.Pools.Update(t.Context(), p.ID, func(p *farm.Pool) { p.Tag = "v1" }); err != nil {
			t.Fatal(err)
		}
		for _, o := range a.bootStandbys(2) {
			if o.Start.Tag != "v1" {
				t.Errorf("booted %+v", o.Start)
			}
		}
		if v := c.poolView(p); v.Stats.Replaced != 2 || v.Ready != 2 {
			t.Errorf("pool %+v", v)
		}
		if err := c.Pools.Update(t.Context(), p.ID, func(p *farm.Pool) { p.Tag = "" }); err != nil {
			t.Fatal(err)
		}
		a.bootStandbys(2)
		c.shelf.addMac() // the newest version, which no node runs
		time.Sleep(resolveTime)
		a.bootStandbys(0)
		if v := c.poolView(p); v.Stats.Replaced != 6 || v.Ready != 0 || v.Problem == "" {
			t.Errorf("pool %+v", v)
		}
		if v := c.poolView(p); len(v.Standbys) != 0 {
			t.Errorf("standbys %+v", v.Standbys)
		}
	})
}

// TestPoolEnds: the standbys of a deleted pool end, and so do those beyond min_idle.
func TestPoolEnds(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.poolNode("one", 4)
		p := c.pool(3)
		a.bootStandbys(3)
		if err := c.Pools.Update(t.Context(), p.ID, func(p *farm.Pool) { p.MinIdle = 1 }); err != nil {
			t.Fatal(err)
		}
		a.bootStandbys(0)
		if v := c.poolView(p); v.Ready != 1 {
			t.Errorf("pool %+v", v)
		}
		if err := c.Pools.Delete(t.Context(), p.ID); err != nil {
			t.Fatal(err)
		}
		a.bootStandbys(0)
		time.Sleep(2 * time.Minute)
		a.next()
		if n := c.tables.Instances.Len(); n != 0 {
			t.Errorf("%d standbys are left", n)
		}
		c.wantSlots(a, 0)
	})
}

// TestPoolAge: standbys that are too old are replaced, one at a time, also where no other slot is free.
func TestPoolAge(t *testing.T) {
	for _, capacity := range []int{4, 2} {
		inCloud(t, func(t *testing.T, c *cloud) {
			a := c.poolNode("one", capacity)
			p := c.pool(2, func(p *farm.Pool) { p.MaxAge = 60 })
			a.bootStandbys(2)
			least := 2
			var before []api.Order
			for range 200 {
				time.Sleep(500 * time.Millisecond)
				orders := a.next()
				for _, o := range before { // a VM takes a moment
					if o.Kind == api.OrderStart {
						a.say(o, api.PhaseRunning)
					} else {
						a.say(o, api.PhaseTerminated)
					}
				}
				before = orders
				least = min(least, c.poolView(p).Ready)
			}
			if v := c.poolView(p); v.Stats.Replaced < 2 || least < 1 {
				t.Errorf("capacity %d: at least %d ready, sums %+v", capacity, least, v.Stats)
			}
		})
	}
}

// TestClaimOfBootingStandby: without a ready standby a start claims one that still boots, and its node continues.
func TestClaimOfBootingStandby(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.poolNode("one", 1)
		p := c.pool(1)
		time.Sleep(2 * time.Second)
		standby := a.take(api.OrderStart)
		a.say(standby, api.PhaseStarting)
		ids := c.mustStart(StartRequest{Name: "mine"})
		if ids[0] != standby.InstanceID {
			t.Fatalf("instance %s, want that of the standby %s", ids[0], standby.InstanceID)
		}
		order := a.take(api.OrderStart)
		if order.Start.TakesOver != standby.Claim {
			t.Fatalf("order %+v", order)
		}
		a.say(order, api.PhaseRunning)
		c.wantState(ids[0], farm.Started)
		if v := c.poolView(p); v.Stats.EarlyHits != 1 || v.Stats.Hits != 0 || v.Stats.SavedSeconds <= 0 {
			t.Errorf("sums %+v", v.Stats)
		}
	})
}

// TestStandbyIsNoInstance: requests by the id of a standby fail as for an unknown one.
func TestStandbyIsNoInstance(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.poolNode("one", 2)
		p := c.pool(1)
		id := a.bootStandbys(1)[0].InstanceID
		ctx := t.Context()
		_, get := c.Instances.Get(ctx, id)
		_, explain := c.Explain(ctx, id, func(string) bool { return true })
		_, save := c.Saves.Create(ctx, asking(api.Order{InstanceID: id}))
		_, console := c.Consoles.Of(ctx, id)
		for name, err := range map[string]error{
			"get": get, "explain": explain, "save": save, "console": console,
			"terminate":       c.Instances.Terminate(ctx, id),
			"update":          c.Instances.Update(ctx, id, instances.Update{}),
			"restart":         c.Instances.Restart(ctx, id, farm.RestartOptions{}),
			"discard a claim": c.Instances.DiscardClaimed(ctx, c.store, id, "another"),
		} {
			if farm.CodeOf(err) != farm.CodeNotFound {
				t.Errorf("%s: %v", name, err)
			}
		}
		if v := c.poolView(p); v.Ready != 1 {
			t.Errorf("pool %+v", v)
		}
		c.wantSlots(a, 1)
	})
}

// TestPoolsChangedTogether: a pool is created although another one is while it is checked, unless that has its name.
func TestPoolsChangedTogether(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		for _, second := range []string{"two", "one"} {
			var pools []farm.Pool
			for _, name := range []string{"one", second} {
				pools = append(pools, farm.Pool{
					Name: name, TemplateID: templateID, GroupID: c.mustGroup(fmt.Sprint(second, len(pools)), nil).ID,
				})
			}
			created := map[string]error{}
			_, err := c.Pools.Create(t.Context(), pools[0], func(*farm.Pool) any {
				if len(created) == 0 {
					created[second] = nil
					_, created[second] = c.Pools.Create(t.Context(), pools[1], func(*farm.Pool) any { return nil })
				}
				return nil
			})
			if created[second] != nil || farm.CodeOf(err) == farm.CodeConflict || (err == nil) != (second == "two") {
				t.Errorf("with %s: %v, the other one: %v", second, err, created[second])
			}
			for _, p := range c.Pools.List() {
				if err := c.Pools.Delete(t.Context(), p.ID); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
