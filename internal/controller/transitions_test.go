package controller

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// inState puts an instance into the store that is in a state on the agent's node, with the task
// that goes with it. It returns the order that created it.
func (c *cloud) inState(
	a *agent, state farm.InstanceState, handler farm.ScriptFailureAction,
) (o api.Order, task string) {
	c.t.Helper()
	now := c.now()
	inst := &farm.Instance{
		ID: record.NewID(), State: state, NodeID: a.id, NodeName: "one", Claim: uuid.NewString(), Created: now,
		Updated: now, Placed: now, Owner: "o",
		Template: farm.TemplateRef{ID: templateID, Name: "base", Tag: "v1", Arch: "amd64"},
		Options:  farm.StartOptions{ScriptOnFailure: handler},
	}
	if state != farm.Scheduling && state != farm.Pulling {
		inst.Started, inst.VM = now, &farm.VMInfo{UUID: "vm", Status: farm.VMRunning}
	}
	if state == farm.Terminated {
		inst.Finished = now
	}
	changes := []store.Change{}
	if state == farm.Pushing {
		s := &farm.SaveRequest{
			ID: record.NewID(), Status: farm.SavePending, Request: farm.SaveOptions{InstanceID: inst.ID}, Updated: now,
		}
		inst.Task = &farm.NodeTask{ID: s.ID, Kind: farm.TaskSave}
		changes = append(changes, store.Put(c.tables.Saves, s.ID, s, store.IfAbsent))
	}
	if state == farm.Started {
		inst.Task = &farm.NodeTask{ID: record.NewID(), Kind: farm.TaskRestart, Restart: &farm.RestartOptions{}}
	}
	if inst.Task != nil {
		task = inst.Task.ID
	}
	if err := c.store.Commit(c.t.Context(),
		append(changes, store.Put(c.tables.Instances, inst.ID, inst, store.IfAbsent))...); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
	return api.Order{InstanceID: inst.ID, Claim: inst.Claim}, task
}

// happening is something that happens to an instance, in the way that it really occurs, and the
// resulting events.
type happening struct {
	name    string
	handler farm.ScriptFailureAction
	events  []farm.InstanceEvent
	happens func(c *cloud, a *agent, o api.Order, task string)
}

func status(phase api.Phase, events ...farm.InstanceEvent) happening {
	return happening{"the node says " +
		string(phase), 0, events, func(_ *cloud, a *agent, o api.Order, _ string) { a.say(o, phase) }}
}

func taskEnds(stage api.TaskStage, events ...farm.InstanceEvent) happening {
	return happening{"its task is " + string(stage), 0, events, func(_ *cloud, a *agent, o api.Order, task string) {
		a.say(o, api.PhaseAccepted, func(s *api.InstanceStatus) { s.Task = &api.TaskStatus{ID: task, Stage: stage} })
	}}
}

func scriptFails(phase api.Phase, handler farm.ScriptFailureAction, events ...farm.InstanceEvent) happening {
	h := status(phase, append([]farm.InstanceEvent{farm.VMStarted}, events...)...)
	h.name, h.handler = fmt.Sprintf("%s with handler %d", h.name, handler), handler
	return h
}

func (c *cloud) setNode(id string, state farm.NodeState) {
	n, _, _ := c.tables.Nodes.Get(id)
	n = n.Clone()
	n.State, n.StateSince = state, c.now()
	c.putNode(n)
}

// happenings are all of them. A node's phase implies the events of those before it.
var happenings = []happening{
	status(api.PhaseAccepted),
	status(api.PhasePulling, farm.PullProgress),
	status(api.PhaseStarting, farm.Pulled),
	status(api.PhaseRunning, farm.VMStarted),
	status(api.PhaseScriptOK, farm.VMStarted, farm.ScriptOK),
	status(api.PhaseFailed, farm.StartFailed),
	status(api.PhaseStopped, farm.VMStarted, farm.VMStoppedEvent),
	status(api.PhaseVanished, farm.VMStarted, farm.VMVanished),
	scriptFails(api.PhaseScriptFailed, farm.StopVM, farm.ScriptFailedStop),
	scriptFails(api.PhaseScriptFailed, farm.KeepVM, farm.ScriptFailedKeep),
	scriptFails(api.PhaseScriptFailed, farm.DeleteVM, farm.ScriptFailedDelete),
	scriptFails(api.PhaseScriptEnded, farm.StopVM, farm.ScriptFailedStop, farm.ScriptStopped),
	taskEnds(api.TaskDone, farm.SaveDone, farm.Restarted),
	taskEnds(api.TaskFailed, farm.SaveFailed),
	{"its user ends it", 0, []farm.InstanceEvent{farm.Terminate}, func(c *cloud, _ *agent, o api.Order, _ string) {
		for range 2 {
			if err := c.Instances.Terminate(c.t.Context(), o.InstanceID); err != nil {
				c.t.Fatal(err)
			}
		}
	}},
	{"its node is lost", 0, []farm.InstanceEvent{farm.NodeLost}, func(c *cloud, a *agent, _ api.Order, _ string) {
		c.setNode(a.id, farm.NodeOffline)
	}},
	{"its node is lost and found", 0, []farm.InstanceEvent{
		farm.NodeLost, farm.NodeBack,
	}, func(c *cloud, a *agent, o api.Order, _ string) {
		a.hold(o, true)
		c.setNode(a.id, farm.NodeOffline)
		a.contact()
	}},
	{"its time is over", 0, []farm.InstanceEvent{
		farm.NodeLost, farm.Expired,
	}, func(c *cloud, a *agent, _ api.Order, _ string) {
		c.setNode(a.id, farm.NodeOffline)
		time.Sleep(2*time.Minute + time.Second)
	}},
}

// TestEveryStateAndEvent applies every event in every state. The table of the domain has the
// result; the way there is the controller's.
func TestEveryStateAndEvent(t *testing.T) {
	for _, state := range farm.InstanceStates {
		for _, h := range happenings {
			t.Run(fmt.Sprintf("%s/%s", state, h.name), func(t *testing.T) {
				inCloud(t, func(t *testing.T, c *cloud) {
					a := c.join("one", 2)
					o, task := c.inState(a, state, h.handler)
					want := state
					for _, e := range h.events {
						if to, ok := farm.NextInstanceState(want, e); ok {
							want = to
						}
					}
					h.happens(c, a, o, task)
					c.wantState(o.InstanceID, want)
					c.checkRecord(o.InstanceID)
				})
			})
		}
		t.Run(fmt.Sprintf("%s/the node says terminated", state), func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				a := c.join("one", 2)
				o, _ := c.inState(a, state, 0)
				want := farm.Errored // a VM that ended without an order has vanished
				if state == farm.Terminating || state == farm.Terminated {
					want = farm.Terminated
				}
				a.say(o, api.PhaseTerminated)
				c.wantState(o.InstanceID, want)
				c.checkRecord(o.InstanceID)
			})
		})
	}
}

// checkRecord checks what is true of every record.
func (c *cloud) checkRecord(id string) {
	c.t.Helper()
	inst, _, ok := c.tables.Instances.Get(id)
	if !ok {
		return
	}
	n := inst.Clone()
	if n.FinishTask(); (n.Task == nil) != (inst.Task == nil) {
		c.t.Errorf("%s with a %s", inst.State, inst.Task.Kind)
	}
	if k := len(inst.Transitions); k > 0 && inst.Transitions[k-1].State != inst.State {
		c.t.Errorf("%s after %v", inst.State, inst.Transitions)
	}
	if inst.StartAborted && inst.State != farm.Errored {
		c.t.Errorf("%s is recalled", inst.State)
	}
}

// TestNeverStartedAfterATermination: whatever a node reports late, in whatever order, and whatever
// happens to the node and the controller, the instance is only removed.
func TestNeverStartedAfterATermination(t *testing.T) {
	for _, state := range farm.InstanceStates {
		t.Run(string(state), func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				a := c.join("one", 2)
				o, task := c.inState(a, state, 0)
				if err := c.Instances.Terminate(t.Context(), o.InstanceID); err != nil {
					t.Fatal(err)
				}
				for _, h := range happenings {
					h.happens(c, a, o, task)
					if got := c.state(o.InstanceID); got != farm.Terminating && got != farm.Terminated &&
						got != farm.InstanceRemoved {
						t.Fatalf("%s after it was terminated: %s", got, h.name)
					}
					if c.state(o.InstanceID) == farm.InstanceRemoved {
						return
					}
				}
			})
		})
	}
}
