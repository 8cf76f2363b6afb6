package fleet_test

import (
	"testing"

	"github.com/buildyard/buildyard/api"
)

// TestSimulatedNodesAreUpdated: they report the new version and keep their VMs.
func TestSimulatedNodesAreUpdated(t *testing.T) {
	c, url := serve(t)
	o := options(url)
	o.NodeCount = 3
	stop := start(t, o)
	c.await("3 running instances", func() bool { return c.running() == 3 })
	c.mu.Lock()
	c.update = &api.AgentUpdate{ID: "u", Package: api.AgentPackage{Version: "2.0.0-b"}}
	clear(c.phases)
	clear(c.cached)
	c.mu.Unlock()
	c.await("3 nodes of the new version", func() bool {
		updated := 0
		for _, v := range c.versions {
			if v == "2.0.0-b" {
				updated++
			}
		}
		return updated == 3
	})
	c.await("their instances", func() bool { return c.running() == 3 && len(c.cached) == 3 })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestSimulatedUpdatesFail(t *testing.T) {
	c, url := serve(t)
	o := options(url)
	o.NodeCount, o.UpdateFailureRate = 2, 1
	c.update = &api.AgentUpdate{ID: "u", Package: api.AgentPackage{Version: "2.0.0-b"}}
	stop := start(t, o)
	c.await("2 failures", func() bool {
		return len(c.failed) == 2 && len(c.versions) == 2
	})
	for id, v := range c.versions {
		if v != "test" || c.failed[id] != "the simulated update failed" {
			t.Errorf("node %s is %s: %s", id, v, c.failed[id])
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
