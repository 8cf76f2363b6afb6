package controller

import (
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
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
