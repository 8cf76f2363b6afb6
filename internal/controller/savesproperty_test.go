package controller

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

// TestSavesAndInstancesAgree applies random actions to instances that are being saved. A request is
// always pending exactly while its instance is Pushing and works on it, and all of them end with
// their instances.
func TestSavesAndInstancesAgree(t *testing.T) {
	var seeds []uint64
	for seed := range uint64(25) {
		seeds = append(seeds, seed)
	}
	for _, seed := range fulltest.Some(t, 8, seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				r := rand.New(rand.NewPCG(seed, 0))
				second := c.replica()
				defer second.stop()
				a := c.join("one", 4)
				var orders []api.Order
				for range 4 {
					orders = append(orders, c.started(a))
				}
				for range 60 {
					c.shake(second, a, orders[r.IntN(len(orders))], r)
					time.Sleep(1100 * time.Millisecond) // one round of the reconciler
					c.checkSaves()
					second.checkSaves()
				}
				for _, inst := range c.Instances.List(instances.Page{}) {
					if err := c.Instances.Terminate(t.Context(), inst.ID); err != nil {
						t.Fatal(err)
					}
				}
				c.checkSaves()
				for _, s := range c.Saves.List("", 1000, nil) {
					if s.Status == farm.SavePending {
						t.Errorf("request %s is pending and its instance terminated", s.ID)
					}
				}
			})
		})
	}
}

// shake does one random action, on one of two replicas where clients have the choice.
func (c *cloud) shake(second *cloud, a *agent, o api.Order, r *rand.Rand) {
	inst, _, _ := c.tables.Instances.Get(o.InstanceID)
	task := api.Order{Task: "none"}
	if inst != nil && inst.Task != nil {
		task.Task = inst.Task.ID
	}
	asked := []*cloud{c, second}[r.IntN(2)]
	stages := []api.TaskStage{
		api.TaskAccepted, api.TaskScript, api.TaskPushing, api.TaskPushing, api.TaskFailed,
		api.TaskFailed, api.TaskDone,
	}
	phases := []api.Phase{
		api.PhaseRunning, api.PhaseRunning, api.PhaseRunning, api.PhaseStopped, api.PhaseVanished,
		api.PhaseTerminated,
	}
	switch what := r.IntN(14); what {
	case 0, 1, 2, 3, 4:
		_, _ = asked.Saves.Create(c.t.Context(), asking(o)) // refused in most states
	case 5:
		_ = asked.Instances.Restart(c.t.Context(), o.InstanceID, farm.RestartOptions{})
	case 6, 7, 8, 9:
		a.say(o, phases[r.IntN(len(phases)-1-what%3)], at(task, stages[r.IntN(len(stages))]))
	case 10:
		if r.IntN(4) == 0 {
			_ = asked.Instances.Terminate(c.t.Context(), o.InstanceID)
		}
	case 11:
		c.restart()
		a.contact()
	case 12:
		if r.IntN(4) == 0 {
			time.Sleep(3 * time.Minute)
		}
		a.contact()
	case 13:
		if r.IntN(10) == 0 {
			time.Sleep(6 * time.Minute)
			a.contact()
		}
	}
}

// checkSaves compares the requests with the instances.
func (c *cloud) checkSaves() {
	c.t.Helper()
	synctest.Wait()
	working := map[string]bool{}
	for _, inst := range c.tables.Instances.All() {
		if (inst.State == farm.Pushing) != (inst.Task != nil && inst.Task.Kind == farm.TaskSave) {
			c.t.Fatalf("instance %s is %s with task %+v", inst.ID, inst.State, inst.Task)
		}
		if inst.State == farm.Pushing {
			working[inst.Task.ID] = true
		}
	}
	for id, s := range c.tables.Saves.All() {
		if (s.Status == farm.SavePending) != working[id] {
			c.t.Fatalf("request %s is %s, its instance works on it: %v", id, s.Status, working[id])
		}
		delete(working, id)
	}
	if len(working) > 0 {
		c.t.Fatalf("instances work on %v, of which there are no requests", working)
	}
}
