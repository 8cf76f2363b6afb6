package controller

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/saves"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/tools/fulltest"
)

func TestSavesAreForgotten(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 2)
		o, p := c.started(a), c.started(a)
		s := c.save(a, o)
		a.say(o, api.PhaseRunning,
			at(s, api.TaskFailed, func(ts *api.TaskStatus) { ts.Script = &api.ScriptStatus{Code: 1, Stdout: "out"} }))
		open := c.save(a, p)
		for _, id := range []string{s.Task, open.Task} { // as if they were of yesterday
			_, err := store.Update(t.Context(), c.store, c.tables.Saves,
				id, func(s *farm.SaveRequest) (*farm.SaveRequest, error) {
					old := *s
					old.Updated = c.now().Add(2*time.Minute - saves.Retention)
					return &old, nil
				})
			if err != nil {
				t.Fatal(err)
			}
		}
		for id := range c.tables.SaveChunks.All() {
			if err := c.store.Commit(t.Context(), store.Put(c.tables.SaveChunks,
				id, &record.SaveChunk{Made: c.now().Add(-saves.Retention)}, store.Any)); err != nil {
				t.Fatal(err)
			}
		}
		a.keepContact(2*time.Minute - 2*time.Second)
		c.wantSave(s.Task, farm.SaveError, "The node does not say why the save failed")
		a.keepContact(4 * time.Second)
		if _, err := c.Saves.Get(t.Context(), s.Task); farm.CodeOf(err) != farm.CodeNotFound {
			t.Errorf("a day after its end: %v", err)
		}
		if n := c.tables.SaveChunks.Len(); n != 0 {
			t.Errorf("%d pieces are left", n)
		}
		c.wantSave(open.Task, farm.SavePending, "")
	})
}

// TestMaintenanceKeepsSaves: no request is removed automatically during maintenance mode, nor
// immediately after it.
func TestMaintenanceKeepsSaves(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		s := &farm.SaveRequest{ID: "s", Status: farm.SaveSucceeded, Updated: c.now()}
		if err := c.store.Commit(t.Context(), store.Put(c.tables.Saves, s.ID, s, store.IfAbsent)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Maintenance.Begin(t.Context(), 0, ""); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			do   func() error
			wait time.Duration
			kept int
		}{
			{func() error { c.away(2 * saves.Retention); return nil }, 10 * time.Minute, 1},
			{func() error { return c.Maintenance.End(t.Context()) }, 10 * time.Minute, 1},
			{func() error { c.away(saves.Retention - 12*time.Minute); return nil }, time.Minute, 1},
			{func() error { return nil }, 3 * time.Minute, 0},
		} {
			if err := step.do(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(step.wait)
			synctest.Wait()
			if n := c.tables.Saves.Len(); n != step.kept {
				t.Errorf("%d requests after another %s, want %d", n, step.wait, step.kept)
			}
		}
	})
}

func TestManySaves(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		const most = 500
		c.bounded(bounds{saves: most})
		for i := range most + 150 {
			s := &farm.SaveRequest{ID: fmt.Sprintf("%08d", i), Status: farm.SaveSucceeded, Updated: c.now()}
			if err := c.store.Commit(t.Context(), store.Put(c.tables.Saves, s.ID, s, store.IfAbsent)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if list := c.Saves.List("", 1, nil); c.tables.Saves.Len() != most || list[0].ID != "00000150" {
			t.Errorf("%d requests are kept, the oldest is %s", c.tables.Saves.Len(), list[0].ID)
		}
		if page := c.Saves.List("00000200", 2, nil); len(page) != 2 || page[0].ID != "00000201" {
			t.Errorf("page = %+v", page)
		}
	})
}

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
		_ = asked.Restart(c.t.Context(), o.InstanceID, farm.RestartOptions{})
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
