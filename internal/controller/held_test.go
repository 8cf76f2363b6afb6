package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
)

// unknownOne joins a node with nine instances that run and a VM that nobody owns.
func (c *cloud) unknownOne() *agent {
	c.t.Helper()
	a := c.join("one", 20)
	c.mustStart(StartRequest{Count: 9})
	for _, o := range a.next() {
		a.say(o, api.PhaseRunning)
	}
	a.held = append(a.held, api.Held{VMID: "leak"})
	return a
}

// pollFor polls in full every three seconds and shows each answer's orders.
func (a *agent) pollFor(length time.Duration, each func([]api.Order)) {
	a.t.Helper()
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(3 * time.Second) {
		each(a.contact())
	}
}

func TestUnknownVMs(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.unknownOne()
		begun, removed := time.Now(), time.Time{}
		a.pollFor(5*time.Minute, func(orders []api.Order) {
			if removed.IsZero() && len(orders) > 0 {
				removed = time.Now()
			}
			for _, o := range orders {
				if o.Kind != api.OrderTerminate || o.InstanceID != "leak" {
					t.Fatalf("orders = %+v", orders)
				}
			}
		})
		if after := removed.Sub(begun); after < 150*time.Second || after > 160*time.Second {
			t.Errorf("removed after %s", after)
		}
	})
}

// stray gives a node VMs that nobody owns.
func (a *agent) stray(n int) {
	for i := range n {
		a.held = append(a.held, api.Held{VMID: fmt.Sprintf("stray-%.8s-%d", a.id, i)})
	}
}

// runs gives a node instances that run, by starting them there.
func (c *cloud) runs(a *agent, n int) {
	c.t.Helper()
	c.mustStart(StartRequest{Count: n, Options: farm.StartOptions{PinnedNode: a.id, Priority: DefaultPriority}})
	for _, o := range a.next() {
		a.say(o, api.PhaseRunning)
	}
}

// watch polls all nodes in full for a time and gives the nodes that were told to
// remove something.
func watch(length time.Duration, agents ...*agent) (told map[string]int) {
	told = map[string]int{}
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(3 * time.Second) {
		for _, a := range agents {
			for _, o := range a.contact() {
				if o.Kind == api.OrderTerminate {
					told[a.id]++
				}
			}
		}
	}
	return told
}

// TestGuard: with more than a fifth of all VMs unknown nothing is removed anywhere,
// and it is seen.
func TestGuard(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a, b := c.join("a", 20), c.join("b", 20)
		c.runs(a, 9)
		c.runs(b, 2)
		a.stray(1)
		b.stray(2)
		if told := watch(10*time.Minute, a, b); len(told) > 0 {
			t.Fatalf("removed: %v", told)
		}
		status := c.Status(t.Context())
		if status.UnknownVMs != 3 || len(status.Alarms) != 1 || !strings.Contains(status.Alarms[0], "3 of 14 VMs belong to nobody") {
			t.Errorf("status = %+v", status)
		}
		if v, _ := c.Node(t.Context(), b.id); v.Unknown != 2 {
			t.Errorf("node shows %d unknown VMs", v.Unknown)
		}
		c.runs(a, 1) // 3 of 15
		if told := watch(time.Minute, a, b); told[a.id] == 0 || told[b.id] == 0 {
			t.Errorf("removed: %v", told)
		}
		if status := c.Status(t.Context()); len(status.Alarms) > 0 {
			t.Errorf("alarms = %q", status.Alarms)
		}
	})
}

// TestGuardOfOneNode: a node of which much is unknown is suspect, and the others are not.
func TestGuardOfOneNode(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		good, small, wrong := c.join("good", 40), c.join("small", 2), c.join("wrong", 20)
		c.runs(good, 30)
		c.runs(small, 1)
		c.runs(wrong, 5)
		small.stray(1)
		wrong.stray(3)
		told := watch(10*time.Minute, good, small, wrong)
		if told[small.id] == 0 || told[wrong.id] > 0 {
			t.Errorf("removed: %v of %s and %s", told, small.id, wrong.id)
		}
		if status := c.Status(t.Context()); len(status.Alarms) != 1 || !strings.Contains(status.Alarms[0], "many VMs of node wrong belong to nobody") {
			t.Errorf("alarms = %q", status.Alarms)
		}
	})
}

// TestGuardAfterARestart: the share is not judged before every node that should be
// there has reported, or one full time-out has passed.
func TestGuardAfterARestart(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a, b := c.join("a", 20), c.join("b", 20)
		c.runs(a, 9)
		a.stray(1)
		b.stray(8) // nine of 18 in all, one of ten without b
		c.stop()
		c.start(Options{UnknownAge: 10 * time.Second, UnknownReports: 3})
		begun := time.Now()
		for time.Since(begun) < 2*time.Minute-5*time.Second {
			if told := watch(3*time.Second, a); len(told) > 0 {
				t.Fatalf("judged without b after %s", time.Since(begun))
			}
		}
		if told := watch(10*time.Second, a); told[a.id] == 0 {
			t.Error("b is away for good and nothing is removed")
		}
		c.stop()
		c.start(Options{UnknownAge: 10 * time.Second, UnknownReports: 3})
		if told := watch(5*time.Minute, a, b); len(told) > 0 {
			t.Errorf("removed: %v", told)
		}
		if told := watch(2*time.Minute+10*time.Second, a); told[a.id] == 0 {
			t.Error("b is away again and still counts")
		}
	})
}

// TestUnknownVMsTakeRoom: what nobody owns counts against the capacity.
func TestUnknownVMsTakeRoom(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("a", 3)
		a.stray(1)
		a.contact()
		c.mustStart(StartRequest{Count: 3})
		if n := len(a.next()); n != 2 {
			t.Errorf("%d starts beside an unknown VM on 3 slots", n)
		}
	})
}

// TestRoomOfUnknownVMs: what their node says they take, and one processor when it has not said.
func TestRoomOfUnknownVMs(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("a", 9)
		known := c.lost(a, StartRequest{})
		a.stray(1)
		a.tellAll(known)
		if load, _ := c.foreign(a.id); load != (sched.Load{VMs: 2, VCPU: 3, MemoryMB: 512}) {
			t.Errorf("load = %+v", load)
		}
	})
}

// TestRoomAsSoonAsItIsKnown: what a node says of an unknown VM counts at once, and is
// bounded.
func TestRoomAsSoonAsItIsKnown(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("a", 9)
		known := c.lost(a, StartRequest{})
		a.contact()
		for id, d := range known {
			long := d
			long.ContentID = strings.Repeat("x", maxDetail)
			for _, step := range []struct {
				say  api.HeldDetail
				vcpu int
			}{{long, 1}, {d, 2}} {
				time.Sleep(askAgain)
				a.poll(api.PollRequest{}, 0) // asks
				a.poll(api.PollRequest{Details: []api.HeldDetail{step.say}}, 0)
				c.placer.mu.Lock()
				got := c.placer.nodes[a.id].foreign
				c.placer.mu.Unlock()
				if got.VMs != 1 || got.VCPU != step.vcpu {
					t.Errorf("%s takes %+v, want %d processors", id, got, step.vcpu)
				}
			}
		}
	})
}
