package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
)

// tuned restarts the controller of a cloud with settings of the scheduler.
func (c *cloud) tuned(o sched.Options) {
	c.t.Helper()
	c.stop()
	c.start(Options{Scheduler: o})
	synctest.Wait()
}

// whereTo starts an instance and returns the name of its node, "" while it waits.
func (c *cloud) whereTo() string {
	c.t.Helper()
	id := c.mustStart(StartRequest{})[0]
	synctest.Wait()
	inst, err := c.Instances.Get(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	return inst.NodeName
}

func TestNodesAreFilledAsSet(t *testing.T) {
	for _, fit := range []bool{false, true} {
		inCloud(t, func(t *testing.T, c *cloud) {
			c.tuned(sched.Options{BinPack: fit})
			c.join("one", 2)
			c.join("two", 2)
			if first, second := c.whereTo(), c.whereTo(); first == "" || second == "" || (first == second) != fit {
				t.Errorf("fit %t: placed on %q and %q", fit, first, second)
			}
		})
	}
}

func TestRequestWaitsForItsVersion(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		c.tuned(sched.Options{LocalityWait: 10 * time.Second, LocalityBytes: 50})
		near := c.join("near", 1)
		near.info = &api.NodeInfo{
			Arch: "amd64", Driver: "sim",
			Templates: []api.NodeTemplate{{ID: templateID, ContentID: "content-1", Size: 100}},
		}
		near.contact()
		if got := c.whereTo(); got != "near" {
			t.Fatalf("placed on %q", got)
		}
		c.join("far", 1)
		id := c.mustStart(StartRequest{})[0]
		synctest.Wait()
		const want = "waits up to 10 s for a node that has the version"
		if inst, _ := c.Instances.Get(t.Context(), id); inst.NodeID != "" || inst.Message != want {
			t.Errorf("node %q, message %q", inst.NodeName, inst.Message)
		}
		time.Sleep(9 * time.Second)
		if inst, _ := c.Instances.Get(t.Context(), id); inst.NodeID != "" {
			t.Error("placed too early")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if inst, _ := c.Instances.Get(t.Context(), id); inst.NodeName != "far" { // nothing else woke the placer
			t.Errorf("node %q, message %q", inst.NodeName, inst.Message)
		}
	})
}

func TestNodesOfFailedStartsAreAvoided(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 9)
		c.mustStart(StartRequest{Options: farm.StartOptions{PinnedNode: a.id}})
		a.say(a.take(api.OrderStart), api.PhaseFailed,
			func(s *api.InstanceStatus) { s.Message = "no room on the disk" })
		c.join("two", 3)
		for range 3 {
			if got := c.whereTo(); got != "two" {
				t.Errorf("placed on %q", got)
			}
		}
	})
}
