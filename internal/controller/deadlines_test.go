package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/history"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/farm"
)

// keepContact has an agent poll for a while, as often as a real one.
func (a *agent) keepContact(d time.Duration) {
	a.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(5*time.Second, time.Until(end)))
		a.contact()
	}
}

// startedOn creates an instance that runs on one of several nodes.
func (c *cloud) startedOn(a *agent) api.Order {
	c.t.Helper()
	c.mustStart(StartRequest{Options: farm.StartOptions{PinnedNode: a.id}})
	o := a.take(api.OrderStart)
	a.say(o, api.PhaseRunning)
	return o
}

// wantMessage checks that an instance's message contains words.
func (c *cloud) wantMessage(id, words string) {
	c.t.Helper()
	inst, err := c.Instances.Get(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	if !strings.Contains(inst.Message, words) || (words == "") != (inst.Message == "") {
		c.t.Errorf("message = %q, want one with %q", inst.Message, words)
	}
}

// TestStepsThatTakeTooLong checks every step at its limit: one tick before it nothing happens, at
// it the instance ends.
func TestStepsThatTakeTooLong(t *testing.T) {
	saving := func(stage api.TaskStage) func(a *agent, o api.Order) {
		return func(a *agent, o api.Order) {
			a.say(o, api.PhaseRunning)
			s := a.c.save(a, o)
			if stage != "" {
				a.say(o, api.PhaseRunning, at(s, stage))
			}
		}
	}
	says := func(phases ...api.Phase) func(a *agent, o api.Order) {
		return func(a *agent, o api.Order) {
			for _, phase := range phases {
				a.say(o, phase)
			}
		}
	}
	cases := []struct {
		step   string
		bring  func(a *agent, o api.Order)
		limit  time.Duration
		recall bool
	}{
		{"start it", says(api.PhaseAccepted), 90*time.Second + startSlack, true},
		{"start it", says(api.PhasePulling, api.PhaseStarting), 90*time.Second + startSlack, true},
		{"get any further with the pull", says(api.PhasePulling), 30 * time.Minute, true},
		{"stop its VM", says(api.PhaseRunning, api.PhaseScriptFailed), stopLimit, false},
		{"restart its VM", func(a *agent, o api.Order) {
			a.say(o, api.PhaseRunning)
			if err := a.c.Instances.Restart(a.t.Context(), o.InstanceID, farm.RestartOptions{}); err != nil {
				a.t.Fatal(err)
			}
		}, 90*time.Second + restartSlack, false},
		{"begin the save", saving(""), 90*time.Second + restartSlack, false},
		{"end the script of the save", saving(api.TaskScript), scriptLimit, false},
		{"write the VM's disks and state", saving(api.TaskSaving), saveLimit, false},
		{"test the saved state", saving(api.TaskTesting), 90*time.Second + restartSlack, false},
		{"get any further with the push", saving(api.TaskPushing), time.Hour, false},
	}
	for _, tc := range cases {
		t.Run(tc.step, func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				a := c.join("one", 1)
				id := c.mustStart(StartRequest{})[0]
				o := a.take(api.OrderStart)
				tc.bring(a, o)
				before := c.state(id)
				a.keepContact(tc.limit - time.Second)
				c.wantState(id, before)
				a.keepContact(2 * time.Second)
				c.wantState(id, farm.Errored)
				c.wantMessage(id, "Its node one did not "+tc.step)
				inst, _ := c.Instances.Get(t.Context(), id)
				if inst.StartAborted != tc.recall || inst.Task != nil || !inst.UsesCapacity() {
					t.Errorf("recalled: %v, task: %v, slot: %v", inst.StartAborted, inst.Task, inst.UsesCapacity())
				}
			})
		})
	}
}

// TestOrderThatIsNeverTaken: the order is sent again and again, and the node, which is in contact,
// never acknowledges it. The failed start is recalled, and only then its slot is free.
func TestOrderThatIsNeverTaken(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		id := c.mustStart(StartRequest{})[0]
		next := c.mustStart(StartRequest{})[0]
		a.keepContact(acknowledgeLimit - time.Second)
		c.wantState(id, farm.Scheduling)
		a.keepContact(2 * time.Second)
		c.wantState(id, farm.Errored)
		c.wantMessage(id, "Its node one did not take the order to start it within 2m")
		time.Sleep(6 * time.Second)
		o := a.take(api.OrderTerminate)
		if o.InstanceID != id {
			t.Fatalf("order for %s", o.InstanceID)
		}
		c.wantState(next, farm.Scheduling)
		a.say(o, api.PhaseTerminated)
		c.wantState(id, farm.Errored)
		c.wantMessage(id, "did not take the order")
		time.Sleep(2 * time.Second)
		if o := a.take(api.OrderStart); o.InstanceID != next {
			t.Errorf("the slot went to %s", o.InstanceID)
		}
		if err := c.Instances.Terminate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		a.contact() // the node's inventory lacks it: that is the confirmation
		c.wantState(id, farm.InstanceRemoved)
	})
}

// TestProgressIsNoStandstill: a pull and a push that make progress do not time out.
func TestProgressIsNoStandstill(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		id := c.mustStart(StartRequest{})[0]
		o := a.take(api.OrderStart)
		for i := range 10 {
			a.say(o, api.PhasePulling, func(s *api.InstanceStatus) { s.Progress = float64(i) / 100 })
			a.keepContact(20 * time.Minute)
			c.wantState(id, farm.Pulling)
		}
		a.say(o, api.PhaseRunning)
		s := c.save(a, o)
		for i := range 6 {
			a.say(o, api.PhaseRunning,
				at(s, api.TaskPushing, func(ts *api.TaskStatus) { ts.Progress = float64(i) / 1000 }))
			a.keepContact(50 * time.Minute)
			c.wantState(id, farm.Pushing)
		}
	})
}

// TestAbsenceIsNoStandstill: a step has its whole time again when its node is back.
func TestAbsenceIsNoStandstill(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		id := c.mustStart(StartRequest{})[0]
		o := a.take(api.OrderStart)
		a.say(o, api.PhaseStarting)
		a.keepContact(startSlack)
		time.Sleep(3 * time.Minute) // without contact, then offline
		c.wantMessage(id, "Node one is offline; the instance continues when it returns")
		a.contact()
		c.wantMessage(id, "")
		a.keepContact(90*time.Second + startSlack - time.Second)
		c.wantState(id, farm.Scheduling)
		a.keepContact(2 * time.Second)
		c.wantState(id, farm.Errored)
	})
}

// TestRestartGivesEveryStepItsTime: what the controller missed while it was away is not
// counted against any step.
func TestRestartGivesEveryStepItsTime(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		id := c.mustStart(StartRequest{})[0]
		a.say(a.take(api.OrderStart), api.PhaseStarting)
		c.stop()
		time.Sleep(time.Hour)
		c.start(Options{})
		a.keepContact(90*time.Second + startSlack - time.Second)
		c.wantState(id, farm.Scheduling)
		a.keepContact(3 * time.Second)
		c.wantState(id, farm.Errored)
	})
}

// TestEndThatIsNotConfirmed: it is reported, requested again and again, and never dropped.
func TestEndThatIsNotConfirmed(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.started(a)
		if err := c.Instances.Terminate(t.Context(), o.InstanceID); err != nil {
			t.Fatal(err)
		}
		a.keepContact(confirmLimit - time.Second)
		c.wantMessage(o.InstanceID, "")
		a.keepContact(2 * time.Second)
		c.wantMessage(o.InstanceID, "Node one has not confirmed the end of the VM for 1m")
		for range 50 {
			a.keepContact(time.Minute)
			time.Sleep(6 * time.Second)
			a.take(api.OrderTerminate)
			c.wantState(o.InstanceID, farm.Terminating)
		}
		a.say(o, api.PhaseTerminated)
		c.wantState(o.InstanceID, farm.Terminated)
	})
}

// TestKillOrderOutlivesTheController: an instance of a node that is away permanently ends
// in Error; its termination waits for the node, also through restarts of the controller.
func TestKillOrderOutlivesTheController(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.started(a)
		time.Sleep(2*time.Minute - time.Second)
		synctest.Wait()
		c.wantMessage(o.InstanceID, "")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		c.wantMessage(o.InstanceID, "Node one is offline")
		time.Sleep(2*time.Minute - 3*time.Second)
		c.wantState(o.InstanceID, farm.Started)
		time.Sleep(4 * time.Second)
		c.wantState(o.InstanceID, farm.Errored)
		c.wantMessage(o.InstanceID, "Its node one has been offline for too long")
		if err := c.Instances.Terminate(t.Context(), o.InstanceID); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(time.Hour)
			c.away(23 * time.Hour)
			c.wantState(o.InstanceID, farm.Terminating)
		}
		a.boot = "again"
		if kill := a.take(api.OrderTerminate); kill.InstanceID != o.InstanceID || kill.Claim != o.Claim {
			t.Errorf("order = %+v", kill)
		}
		a.say(o, api.PhaseTerminated)
		c.wantState(o.InstanceID, farm.Terminated)
	})
}

// TestReturnAfterTheError: the node is back too late; the instance stays in Error and keeps its VM
// until it is terminated.
func TestReturnAfterTheError(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.started(a)
		time.Sleep(5 * time.Minute)
		c.wantState(o.InstanceID, farm.Errored)
		if orders := a.contact(); len(orders) != 0 {
			t.Errorf("orders for a VM that nobody terminated: %+v", orders)
		}
		a.say(o, api.PhaseRunning)
		a.keepContact(time.Hour)
		c.wantState(o.InstanceID, farm.Errored)
		c.wantMessage(o.InstanceID, "offline for too long")
	})
}

// TestNoNodeIsOfflineAfterAStart: a new leader waits one whole timeout before it declares nodes
// offline, also with instances that were lost before.
func TestNoNodeIsOfflineAfterAStart(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		b := c.join("two", 1)
		o, p := c.startedOn(a), c.startedOn(b)
		for range 13 { // two is lost
			time.Sleep(10 * time.Second)
			a.contact()
		}
		c.wantMessage(p.InstanceID, "Node two is offline")
		for range 3 {
			c.restart()
			time.Sleep(2*time.Minute - time.Second)
			synctest.Wait()
			if n, _ := c.Nodes.Get(t.Context(), a.id); n.Node.State != farm.NodeActive {
				t.Fatalf("node is %s before its time-out", n.Node.State)
			}
			c.wantState(o.InstanceID, farm.Started)
			c.wantState(p.InstanceID, farm.Started)
		}
		time.Sleep(2 * time.Second)
		c.wantState(p.InstanceID, farm.Errored)
		if n, _ := c.Nodes.Get(t.Context(), a.id); n.Node.State != farm.NodeOffline {
			t.Errorf("node is %s after its time-out", n.Node.State)
		}
	})
}

// TestInstancesMarkedLostByADeadReplica: a replica that died while it brought a node back online leaves
// instances that are marked as lost; they must not end because of that.
func TestInstancesMarkedLostByADeadReplica(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.started(a)
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		n, _ := c.Nodes.Get(t.Context(), a.id)
		node := n.Node.Clone()
		node.State, node.StateSince = farm.NodeActive, c.now()
		c.putNode(node)
		a.keepContact(resumeTime + 2*time.Second)
		c.wantMessage(o.InstanceID, "")
		a.keepContact(time.Hour)
		c.wantState(o.InstanceID, farm.Started)
	})
}

func TestTimeToLive(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		ids := c.mustStart(StartRequest{Count: 2, TTL: time.Hour})
		o := a.take(api.OrderStart)
		a.say(o, api.PhaseRunning)
		renewed, waits := o.InstanceID, ids[0]
		if waits == renewed {
			waits = ids[1]
		}
		a.keepContact(30 * time.Minute)
		ttl := 2 * time.Hour
		if err := c.Instances.Update(t.Context(), renewed, instances.Update{TTL: &ttl}); err != nil {
			t.Fatal(err)
		}
		a.keepContact(30*time.Minute - time.Second)
		c.wantState(waits, farm.Scheduling)
		a.keepContact(time.Second)
		time.Sleep(3 * time.Second)
		c.wantState(waits, farm.InstanceRemoved)
		if past := c.History.List(history.Query{ID: waits, Limit: 1}); len(past) != 1 ||
			past[0].Message != "Its time to live of 1h0m0s is over" {
			t.Errorf("history = %+v", past)
		}
		c.wantState(renewed, farm.Started)
		a.keepContact(90*time.Minute - 5*time.Second)
		c.wantState(renewed, farm.Started)
		a.keepContact(5 * time.Second)
		c.wantState(renewed, farm.Terminating)
		c.wantMessage(renewed, "Its time to live of 2h0m0s is over")
		never := c.mustStart(StartRequest{TTL: time.Hour})[0]
		if err := c.Instances.Update(t.Context(), never, instances.Update{TTL: new(time.Duration)}); err != nil {
			t.Fatal(err)
		}
		a.keepContact(3 * time.Hour)
		c.wantState(never, farm.Scheduling)
	})
}

// TestMaintenancePutsDutiesOff: during maintenance mode nothing ends automatically, what clients
// request still happens, and afterwards everything resumes.
func TestMaintenancePutsDutiesOff(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 2)
		o, p := c.started(a), c.started(a)
		ttl := time.Hour
		if err := c.Instances.Update(t.Context(), o.InstanceID, instances.Update{TTL: &ttl}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Maintenance.Begin(t.Context(), 0, "test"); err != nil {
			t.Fatal(err)
		}
		waiting := c.mustStart(StartRequest{})[0]
		if err := c.Instances.Terminate(t.Context(), waiting); err != nil {
			t.Fatal(err)
		}
		if err := c.Instances.Terminate(t.Context(), p.InstanceID); err != nil {
			t.Fatal(err)
		}
		a.say(p, api.PhaseTerminated)
		time.Sleep(3 * time.Hour)
		c.wantState(waiting, farm.InstanceRemoved)
		c.wantState(p.InstanceID, farm.Terminated)
		c.wantState(o.InstanceID, farm.Started)
		if err := c.Maintenance.End(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.keepContact(time.Minute)
		c.wantState(o.InstanceID, farm.Terminating)
		c.wantState(p.InstanceID, farm.InstanceRemoved)
	})
}

// TestBackInTheLastMoment: a node that returns just before its instances fail keeps them, also when
// the replica that brought it back has not updated them yet.
func TestBackInTheLastMoment(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.startedOn(a)
		c.setNode(a.id, farm.NodeOffline)
		time.Sleep(2*time.Minute - time.Second)
		c.wantMessage(o.InstanceID, "continues when it returns")
		c.setNode(a.id, farm.NodeActive) // without updating its instances
		time.Sleep(2 * time.Second)
		c.wantState(o.InstanceID, farm.Started)
		time.Sleep(resumeTime)
		c.wantState(o.InstanceID, farm.Started)
		c.wantMessage(o.InstanceID, "")
	})
}

// TestEndsWithItsNodeAway: an instance was terminated while its node was offline, and the node has
// lost the VM when it returns: the instance is removed like any other.
func TestEndsWithItsNodeAway(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.startedOn(a)
		c.setNode(a.id, farm.NodeOffline)
		if err := c.Instances.Terminate(t.Context(), o.InstanceID); err != nil {
			t.Fatal(err)
		}
		a.hold(o, false)
		a.contact()
		c.wantState(o.InstanceID, farm.Terminated)
		a.keepContact(61 * time.Second)
		c.wantState(o.InstanceID, farm.InstanceRemoved)
	})
}
