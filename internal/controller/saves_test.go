package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/saves"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// started returns an instance that runs on a node, with its start order.
func (c *cloud) started(a *agent) api.Order {
	c.t.Helper()
	c.mustStart(StartRequest{})
	o := a.take(api.OrderStart)
	a.say(o, api.PhaseRunning)
	c.wantState(o.InstanceID, farm.Started)
	return o
}

// asking returns a request to save an instance into a new template.
func asking(o api.Order, edits ...func(*saves.Request)) saves.Request {
	ask := saves.Request{
		SaveOptions: farm.SaveOptions{InstanceID: o.InstanceID, Tag: "v3", NewTemplateName: "fresh", Suspend: true},
	}
	for _, edit := range edits {
		edit(&ask)
	}
	return ask
}

// save requests a save and returns its order.
func (c *cloud) save(a *agent, o api.Order, edits ...func(*saves.Request)) api.Order {
	c.t.Helper()
	id, err := c.Saves.Create(c.t.Context(), asking(o, edits...))
	if err != nil {
		c.t.Fatal(err)
	}
	c.wantState(o.InstanceID, farm.Pushing)
	c.wantSave(id, farm.SavePending, "")
	order := a.take(api.OrderSave)
	if order.Task != id || order.InstanceID != o.InstanceID || order.Claim != o.Claim {
		c.t.Fatalf("order = %+v", order)
	}
	return order
}

// wantSave checks the status of a request and the text of its error.
func (c *cloud) wantSave(id string, status farm.SaveStatus, message string) *farm.SaveRequest {
	c.t.Helper()
	synctest.Wait()
	s, err := c.Saves.Get(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	if s.Status != status || s.ErrorMessage != message {
		c.t.Fatalf("request is %s %q, want %s %q", s.Status, s.ErrorMessage, status, message)
	}
	return s
}

// at sets the stage of the task in a status.
func at(o api.Order, stage api.TaskStage, edits ...func(*api.TaskStatus)) func(*api.InstanceStatus) {
	return func(s *api.InstanceStatus) {
		s.Task = &api.TaskStatus{ID: o.Task, Stage: stage}
		for _, edit := range edits {
			edit(s.Task)
		}
	}
}

func TestSaveOfAnInstance(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.started(a)
		s := c.save(a, o, func(ask *saves.Request) {
			ask.Description, ask.Script, ask.CancelOnScriptFailure, ask.SanityTest = "why", []byte("sync\xff"), true,
				true
		})
		want := &api.SaveOrder{
			Registry: "http://registry", TemplateID: s.Save.TemplateID, NewName: "fresh", Tag: "v3", Description: "why",
			Suspend: true, Script: []byte("sync\xff"), MustSucceed: true, SanityTest: true,
		}
		if d := cmp.Diff(want, s.Save); d != "" || uuid.Validate(s.Save.TemplateID) != nil {
			t.Errorf("order (-want +got):\n%s", d)
		}
		for _, step := range []struct {
			stage    api.TaskStage
			progress float64
			message  string
		}{
			{api.TaskAccepted, 0, "saving: about to begin"},
			{api.TaskScript, 0, "saving: its script runs"},
			{api.TaskSaving, 0, "saving: writing disks and state"},
			{api.TaskTesting, 0, "saving: testing the saved state"},
			{api.TaskPushing, 0.42, "saving: pushing 42 %"},
			{"sealing", 0, "saving: sealing"}, // a newer node
		} {
			time.Sleep(writeInterval) // a node may describe itself that often
			a.say(o, api.PhaseRunning, at(s, step.stage, func(ts *api.TaskStatus) { ts.Progress = step.progress }))
			if inst, _ := c.Instances.Get(t.Context(), o.InstanceID); inst.Message != step.message ||
				inst.State != farm.Pushing {
				t.Errorf("at %s the instance is %s %q", step.stage, inst.State, inst.Message)
			}
		}
		a.say(o, api.PhaseRunning,
			at(s, api.TaskDone, func(ts *api.TaskStatus) { ts.Version = &api.PushResult{ContentID: "made"} }))
		c.wantState(o.InstanceID, farm.Terminating)
		if r := c.wantSave(s.Task, farm.SaveSucceeded, ""); r.ContentID != "made" || r.Progress != 1 ||
			r.VMUUID != "vm-"+o.InstanceID || r.NodeID != a.id {
			t.Errorf("request = %+v", r)
		}
		a.say(a.take(api.OrderTerminate), api.PhaseTerminated)
		c.wantState(o.InstanceID, farm.Terminated)
		time.Sleep(time.Minute + 2*time.Second)
		c.wantState(o.InstanceID, farm.InstanceRemoved)
		c.wantSave(s.Task, farm.SaveSucceeded, "")
		c.wantSlots(a, 0)
	})
}

func TestSaveThatFails(t *testing.T) {
	for _, tc := range []struct {
		name    string
		phase   api.Phase
		task    func(*api.TaskStatus)
		state   farm.InstanceState
		message string
		kind    string
		code    int
	}{
		{"push", api.PhaseRunning, func(s *api.TaskStatus) {
			s.Message = "disk full"
		}, farm.Started, "disk full", "save.Error", 0},
		{
			"without a word", api.PhaseRunning, func(*api.TaskStatus) {}, farm.Started,
			"The node does not say why the save failed", "save.Error", 0,
		},
		{"script", api.PhaseRunning, func(s *api.TaskStatus) {
			s.Message, s.Code = "x",
				7
		}, farm.Started, "Script execution failed", "", 7},
		{"and its VM is down", api.PhaseStopped, func(s *api.TaskStatus) {
			s.Message = "no start"
		}, farm.Errored, "no start", "save.Error", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				a := c.join("one", 1)
				o := c.started(a)
				s := c.save(a, o)
				a.say(o, tc.phase, at(s, api.TaskFailed, tc.task))
				c.wantState(o.InstanceID, tc.state)
				r := c.wantSave(s.Task, farm.SaveError, tc.message)
				if r.ErrorType != tc.kind || r.ErrorCode != tc.code {
					t.Errorf("request = %+v", r)
				}
				if orders := a.next(); len(orders) != 0 {
					t.Errorf("more orders: %+v", orders)
				}
				if tc.state != farm.Started {
					return
				}
				again := c.save(a, o) // the next one is another task
				a.say(o, api.PhaseRunning, at(s, api.TaskFailed, tc.task))
				c.wantSave(again.Task, farm.SavePending, "")
				c.wantState(o.InstanceID, farm.Pushing)
			})
		})
	}
}

// TestEndOfASave ends the instance in every possible way while it is being saved.
func TestEndOfASave(t *testing.T) {
	terminated := "The instance was terminated before the save had ended"
	for _, tc := range []struct {
		name    string
		end     func(t *testing.T, c *cloud, a *agent, o api.Order)
		wait    time.Duration
		message string
	}{
		{"terminate", func(t *testing.T, c *cloud, _ *agent, o api.Order) {
			if err := c.Instances.Terminate(t.Context(), o.InstanceID); err != nil {
				t.Fatal(err)
			}
		}, 0, terminated},
		{
			"vanished", func(_ *testing.T, _ *cloud, a *agent, o api.Order) { a.say(o, api.PhaseVanished) }, 0,
			"The instance failed before the save had ended: VM no longer exists on its node",
		},
		{
			"ended without being asked to",
			func(_ *testing.T, _ *cloud, a *agent, o api.Order) { a.say(o, api.PhaseTerminated) }, 0,
			"The instance failed before the save had ended: VM no longer exists on its node",
		},
		{
			"lost by its node", func(_ *testing.T, _ *cloud, a *agent, _ api.Order) { a.held = nil; a.contact() }, 0,
			"The instance failed before the save had ended: VM no longer exists on its node",
		},
		{"node deleted", func(t *testing.T, c *cloud, a *agent, _ api.Order) {
			if err := c.Nodes.Delete(t.Context(), a.id); err != nil {
				t.Fatal(err)
			}
		}, 0, "The instance failed before the save had ended: Its node was removed from the cloud"},
		{
			"node away for good", func(*testing.T, *cloud, *agent, api.Order) {}, 5 * time.Minute,
			"The instance failed before the save had ended: Its node one has been offline for too long",
		},
		{"record gone", func(t *testing.T, c *cloud, _ *agent, o api.Order) {
			if err := c.store.Commit(t.Context(),
				store.Delete(c.tables.Instances, o.InstanceID, store.Any)); err != nil {
				t.Fatal(err)
			}
		}, 2 * time.Second, terminated},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				a := c.join("one", 1)
				o := c.started(a)
				s := c.save(a, o, func(ask *saves.Request) { ask.Script = []byte("secret") })
				tc.end(t, c, a, o)
				time.Sleep(tc.wait)
				if r := c.wantSave(s.Task, farm.SaveError, tc.message); r.ErrorType != "save.InstanceEnded" {
					t.Errorf("type %q", r.ErrorType)
				}
				if inst, err := c.Instances.Get(t.Context(), o.InstanceID); err == nil && inst.Task != nil {
					t.Errorf("the instance still has the task: %+v", inst)
				}
				time.Sleep(2 * time.Second)
				if n := c.tables.SaveChunks.Len(); n != 0 {
					t.Errorf("%d pieces of the script are left", n)
				}
			})
		})
	}
}

func TestTerminateBeatsASaveThatIsDone(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.started(a)
		id, err := c.Saves.Create(t.Context(), asking(o))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Instances.Terminate(t.Context(), o.InstanceID); err != nil {
			t.Fatal(err)
		}
		a.take(api.OrderTerminate) // and no save order
		a.say(o, api.PhaseRunning, at(api.Order{Task: id}, api.TaskDone))
		c.wantState(o.InstanceID, farm.Terminating)
		c.wantSave(id, farm.SaveError, "The instance was terminated before the save had ended")
	})
}

// TestSaveDoneAndGone: the final report may be the first that arrives.
func TestSaveDoneAndGone(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.started(a)
		s := c.save(a, o)
		a.say(o, api.PhaseTerminated, at(s, api.TaskDone))
		c.wantState(o.InstanceID, farm.Terminated)
		c.wantSave(s.Task, farm.SaveSucceeded, "")
	})
}

func TestRevertIsOrdered(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*saves.Request)
		want *api.PushRevert
	}{
		{"none", func(ask *saves.Request) { ask.RevertTag = "v2" }, nil},
		{"latest", func(ask *saves.Request) { ask.RevertBeforePush = true }, &api.PushRevert{}},
		{"a tag", func(ask *saves.Request) {
			ask.RevertBeforePush, ask.RevertTag = true,
				"v2"
		}, &api.PushRevert{Tag: "v2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				a := c.join("one", 1)
				s := c.save(a, c.started(a),
					func(ask *saves.Request) { ask.TemplateID, ask.NewTemplateName = templateID, "" }, tc.edit)
				if d := cmp.Diff(tc.want, s.Save.Revert); d != "" || s.Save.TemplateID != templateID ||
					s.Save.NewName != "" {
					t.Errorf("order %+v, revert (-want +got):\n%s", s.Save, d)
				}
			})
		})
	}
}

// TestOnlyStartedCanBeSaved tries both tasks in every state that precedes and follows Started.
func TestOnlyStartedCanBeSaved(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		id := c.mustStart(StartRequest{})[0]
		o := a.take(api.OrderStart)
		refused := func(state string) {
			t.Helper()
			_, saved := c.Saves.Create(t.Context(), asking(o))
			for verb, err := range map[string]error{"saved": saved, "restarted": c.Instances.Restart(t.Context(),
				id, farm.RestartOptions{})} {
				want := "Instance " + id + " cannot be " + verb + ": "
				if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), state) ||
					farm.CodeOf(err) != farm.CodeRefused {
					t.Errorf("%v, want %q and %q", err, want, state)
				}
			}
		}
		refused("Scheduling")
		a.say(o, api.PhasePulling)
		refused("Pulling")
		a.say(o, api.PhaseRunning)
		s := c.save(a, o)
		refused("a save of it is in progress")
		a.say(o, api.PhaseRunning, at(s, api.TaskFailed))
		if err := c.Instances.Restart(t.Context(), id, farm.RestartOptions{}); err != nil {
			t.Fatal(err)
		}
		refused("a restart is in progress; try again")
		a.say(o, api.PhaseStopped)
		refused("Error")
		if err := c.Instances.Terminate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		refused("Terminating")
	})
}

func TestNoTaskOnALostNode(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.started(a)
		time.Sleep(2*time.Minute + 3*time.Second)
		if _, err := c.Saves.Create(t.Context(), asking(o)); err == nil ||
			!strings.Contains(err.Error(), "its node one is offline") {
			t.Errorf("a save on a lost node: %v", err)
		}
	})
}

func TestScriptThatCannotBeDecoded(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.started(a)
		id, err := c.Saves.Create(t.Context(),
			asking(o, func(ask *saves.Request) { ask.BadScript, ask.Description = errBad{}, "long" }))
		if err != nil {
			t.Fatal(err)
		}
		if r := c.wantSave(id, farm.SaveError, "bad byte"); r.ErrorType != "base64.CorruptInputError" ||
			!r.Request.Scripted ||
			r.Request.Description != "" {
			t.Errorf("request = %+v", r)
		}
		c.wantState(o.InstanceID, farm.Started)
		if orders := a.next(); len(orders) != 0 {
			t.Errorf("orders = %+v", orders)
		}
	})
}

type errBad struct{}

func (errBad) Error() string { return "bad byte" }
