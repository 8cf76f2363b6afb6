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

// unknownOne joins a node with nine running instances and an orphaned VM.
func (c *cloud) unknownOne() *agent {
	c.t.Helper()
	a := c.join("one", 20)
	c.mustStart(StartRequest{Count: 9})
	for _, o := range a.next() {
		a.say(o, api.PhaseRunning)
	}
	a.held = append(a.held, api.InventoryItem{VMID: "leak"})
	return a
}

// pollFor polls in full every three seconds and passes the orders of each response.
func (a *agent) pollFor(length time.Duration, each func([]api.Order)) {
	a.t.Helper()
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(3 * time.Second) {
		each(a.contact())
	}
}

func TestOrphans(t *testing.T) {
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

// stray adds orphaned VMs to a node.
func (a *agent) stray(n int) {
	for i := range n {
		a.held = append(a.held, api.InventoryItem{VMID: fmt.Sprintf("stray-%.8s-%d", a.id, i)})
	}
}

// runs adds running instances to a node, by starting them there.
func (c *cloud) runs(a *agent, n int) {
	c.t.Helper()
	c.mustStart(StartRequest{Count: n, Options: farm.StartOptions{PinnedNode: a.id, Priority: farm.DefaultPriority}})
	for _, o := range a.next() {
		a.say(o, api.PhaseRunning)
	}
}

// watch polls all nodes in full for a time and counts, for each node, the orders to remove
// something.
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

// TestGuard: when VMs of many nodes are orphaned nothing is removed on any of them, and an alarm is
// visible.
func TestGuard(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a, b, d := c.join("a", 20), c.join("b", 20), c.join("d", 20)
		c.runs(a, 9)
		c.runs(b, 2)
		c.runs(d, 2)
		a.stray(1)
		b.stray(2)
		d.stray(2)
		if told := watch(10*time.Minute, a, b, d); len(told) > 0 {
			t.Fatalf("removed: %v", told)
		}
		status := c.Status(t.Context())
		if status.UnknownVMs != 5 || len(status.Alarms) != 1 ||
			!strings.Contains(status.Alarms[0], "5 of 18 VMs are orphaned; those of 3 nodes") {
			t.Errorf("status = %+v", status)
		}
		if v, _ := c.Nodes.Get(t.Context(), b.id); v.Unknown != 2 {
			t.Errorf("node shows %d unknown VMs", v.Unknown)
		}
		c.runs(a, 1) // 3 of 15 without one of the others
		if told := watch(time.Minute, a, b, d); told[a.id] == 0 || told[b.id] == 0 || told[d.id] == 0 {
			t.Errorf("removed: %v", told)
		}
		if status := c.Status(t.Context()); len(status.Alarms) > 0 {
			t.Errorf("alarms = %q", status.Alarms)
		}
	})
}

// TestGuardOfOneNode: a node with many orphaned VMs is suspect, however many they are, and the
// others are not.
func TestGuardOfOneNode(t *testing.T) {
	for _, invented := range []int{3, 2 * maxOrphans} {
		inCloud(t, func(t *testing.T, c *cloud) {
			good, small, wrong := c.join("good", 40), c.join("small", 2), c.join("wrong", 20)
			c.runs(good, 30)
			c.runs(small, 1)
			c.runs(wrong, 5)
			small.stray(1)
			wrong.stray(invented)
			told := watch(3*time.Minute, good, small, wrong)
			if told[small.id] == 0 || told[wrong.id] > 0 {
				t.Errorf("removed: %v of %s and %s", told, small.id, wrong.id)
			}
			want := fmt.Sprintf("%d of %d VMs of node wrong are orphaned", invented, invented+5)
			if status := c.Status(t.Context()); len(status.Alarms) != 1 || !strings.Contains(status.Alarms[0], want) {
				t.Errorf("alarms = %q", status.Alarms)
			}
			node, _, _ := c.tables.Nodes.Get(wrong.id)
			if n := len(c.Link.Orphans.On(node)); n != min(invented, maxOrphans) {
				t.Errorf("%d unknown VMs are kept of %d", n, invented)
			}
			if v, _ := c.Nodes.Get(t.Context(), wrong.id); v.Unknown != invented {
				t.Errorf("the node shows %d unknown VMs", v.Unknown)
			}
		})
	}
}

// TestGuardAfterARestart: the share is not evaluated before every node that should be in contact
// has reported, or one full timeout has passed.
func TestGuardAfterARestart(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a, b, d := c.join("a", 20), c.join("b", 20), c.join("d", 20)
		c.runs(a, 9)
		a.stray(1)
		b.stray(8) // nine of 18 without d, one of ten without both
		d.stray(8)
		c.stop()
		c.start(Options{UnknownAge: 10 * time.Second, UnknownReports: 3})
		begun := time.Now()
		for time.Since(begun) < 2*time.Minute-5*time.Second {
			if told := watch(3*time.Second, a); len(told) > 0 {
				t.Fatalf("judged without the others after %s", time.Since(begun))
			}
		}
		if told := watch(10*time.Second, a); told[a.id] == 0 {
			t.Error("the others are away for good and nothing is removed")
		}
		c.stop()
		c.start(Options{UnknownAge: 10 * time.Second, UnknownReports: 3})
		if told := watch(5*time.Minute, a, b, d); len(told) > 0 {
			t.Errorf("removed: %v", told)
		}
		if told := watch(2*time.Minute+10*time.Second, a); told[a.id] == 0 {
			t.Error("the others are away again and still count")
		}
	})
}

// TestOrphansUseCapacity: orphaned VMs count against the capacity.
func TestOrphansUseCapacity(t *testing.T) {
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

// TestCapacityOfOrphans: they count with the resources that their node reports, and with one
// processor before that.
func TestCapacityOfOrphans(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("a", 9)
		known := c.lost(a, StartRequest{})
		a.stray(1)
		a.tellAll(known)
		if load, _ := c.Link.Orphans.Load(a.id); load != (sched.Load{VMs: 2, VCPU: 3, MemoryMB: 512}) {
			t.Errorf("load = %+v", load)
		}
	})
}

// TestReportedCapacityOfOrphans: the resources that a node reports for an orphaned VM count
// immediately, and are bounded.
func TestReportedCapacityOfOrphans(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("a", 9)
		known := c.lost(a, StartRequest{})
		a.contact()
		for id, d := range known {
			long := d
			start := *d.Start
			start.Ports = longPorts()
			long.Start = &start
			for _, step := range []struct {
				say  api.InventoryDetail
				vcpu int
			}{{long, 1}, {d, 2}} {
				time.Sleep(askAgain)
				a.poll(api.PollRequest{}, 0) // requests the details
				a.poll(api.PollRequest{Details: []api.InventoryDetail{step.say}}, 0)
				_, other := c.placer.Used(a.id)
				if got := other.Orphans; got.VMs != 1 || got.VCPU != step.vcpu {
					t.Errorf("%s takes %+v, want %d processors", id, got, step.vcpu)
				}
			}
		}
	})
}
