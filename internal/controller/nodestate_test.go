package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodes"
	"github.com/buildyard/buildyard/internal/farm"
)

// wantVerdict checks the state of a node and the reason for it.
func (c *cloud) wantVerdict(a *agent, state farm.NodeState, reason string) {
	c.t.Helper()
	n := c.node(a).Node
	if n.State != state || n.StateReason != reason || n.StateSince.IsZero() {
		c.t.Errorf("node is %s since %s: %q, want %s: %q", n.State, n.StateSince, n.StateReason, state, reason)
	}
}

// stops reports a VM that stopped without an order and still exists.
func (a *agent) stops(o api.Order) {
	a.t.Helper()
	a.say(o, api.PhaseStopped, func(s *api.InstanceStatus) { s.VM = &api.NodeVM{UUID: "vm", Status: "stopped"} })
}

const noneOfTwo = "it is full, and none of its 2 VMs runs"

func TestUnhealthyNode(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 2)
		one, two := c.startedOn(a), c.startedOn(a)
		a.stops(one)
		a.keepContact(2 * unhealthyAfter)
		c.wantVerdict(a, farm.NodeActive, "") // one runs
		a.stops(two)
		a.keepContact(unhealthyAfter - time.Second)
		c.wantVerdict(a, farm.NodeActive, "") // not yet
		time.Sleep(2 * time.Second)
		c.wantVerdict(a, farm.NodeUnhealthy, noneOfTwo)
		waits := c.mustStart(StartRequest{})[0]
		c.wantMessage(waits, "no node is schedulable (1 node: 1 unhealthy)")

		a.say(two, api.PhaseRunning, func(s *api.InstanceStatus) { s.VM.Name = "restarted" })
		if inst, _ := c.Instances.Get(t.Context(), two.InstanceID); inst.VM.Status == farm.VMRunning {
			time.Sleep(time.Second)
			c.wantVerdict(a, farm.NodeActive, "")
			a.say(two, api.PhaseStopped,
				func(s *api.InstanceStatus) { s.VM = &api.NodeVM{UUID: "vm", Status: "stopped"} })
			a.keepContact(unhealthyAfter + time.Second)
		} else {
			t.Errorf("the VM is %s", inst.VM.Status)
		}
		c.wantVerdict(a, farm.NodeUnhealthy, noneOfTwo)
		c.restart()
		a.c = c
		a.contact()
		c.wantVerdict(a, farm.NodeUnhealthy, noneOfTwo)
		if err := c.Instances.Terminate(t.Context(), one.InstanceID); err != nil {
			t.Fatal(err)
		}
		a.say(a.take(api.OrderTerminate), api.PhaseTerminated)
		time.Sleep(time.Second)
		c.wantVerdict(a, farm.NodeActive, "")
		c.wantOn(waits, a)
	})
}

// TestBootingIsNotUnhealthy: a full node whose VMs do not run yet, or do not run for a moment, is
// not unhealthy.
func TestBootingIsNotUnhealthy(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 2)
		c.mustStart(StartRequest{Count: 2})
		orders := a.next()
		a.say(orders[0], api.PhasePulling)
		a.say(orders[1], api.PhaseStarting)
		a.keepContact(2 * time.Minute)
		c.wantVerdict(a, farm.NodeActive, "")
		for _, o := range orders {
			a.say(o, api.PhaseRunning)
			a.say(o, api.PhaseRunning,
				func(s *api.InstanceStatus) { s.VM = &api.NodeVM{UUID: "vm", Status: "stopped"} })
		}
		a.keepContact(unhealthyAfter - 5*time.Second)
		a.say(orders[0], api.PhaseRunning)
		a.keepContact(2 * unhealthyAfter)
		c.wantVerdict(a, farm.NodeActive, "")
	})
}

// TestUnhealthyByResource: full by resources counts as well, and capacity that an operator adds
// makes the node healthy.
func TestUnhealthyByResource(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		c.mustConfigure(a, nodes.Config{Mode: new(farm.CapacityByResources), VCPUOverride: new(1)})
		a.stops(c.startedOn(a))
		a.keepContact(unhealthyAfter + time.Second)
		c.wantVerdict(a, farm.NodeUnhealthy, "it is full, and none of its 1 VMs runs")
		c.mustConfigure(a, nodes.Config{VCPUOverride: new(2)})
		time.Sleep(time.Second)
		c.wantVerdict(a, farm.NodeActive, "")
	})
}

func TestExpiredLicense(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		license := func(expires string) {
			info := *a.info
			info.License, info.Expires = "enterprise", expires
			a.info = &info
			a.contact()
			synctest.Wait()
		}
		soon := time.Now().UTC().Add(time.Minute).Format(time.RFC3339)
		license(soon)
		if v := c.node(a); v.Info.Hypervisor.LicenseKind != "enterprise" || v.Info.Hypervisor.LicenseExpires != soon {
			t.Errorf("node says %+v", v.Info.Hypervisor)
		}
		a.keepContact(50 * time.Second)
		c.wantVerdict(a, farm.NodeActive, "")
		a.keepContact(15 * time.Second)
		expired := "its license expired: "
		c.wantVerdict(a, farm.NodeInactive, expired+soon)
		waits := c.mustStart(StartRequest{})[0]
		c.wantMessage(waits, "1 without a valid license")

		c.away(3 * time.Minute) // it is offline, and comes back as it was
		a.c = c
		time.Sleep(3 * time.Minute)
		c.wantVerdict(a, farm.NodeOffline, "no contact for 2m0s")
		a.contact()
		c.wantVerdict(a, farm.NodeInactive, expired+soon)
		license("not a time") // does not stop any node
		c.wantVerdict(a, farm.NodeActive, "")
		c.wantOn(waits, a)
		license("2000-01-01") // it began before the bubble's time
		c.wantVerdict(a, farm.NodeActive, "")
		license("31-dec-1999")
		c.wantVerdict(a, farm.NodeInactive, expired+"31-dec-1999")
	})
}
