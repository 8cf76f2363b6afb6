package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/controller/saves"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

func TestRestart(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		a.info = &api.NodeInfo{Arch: "amd64", Driver: "sim", USB: []api.USBDevice{{Name: "phone", Location: "1-2"}}}
		o := c.started(a)
		device, location, password := "phone", "1-2", "secret"
		given := func(device *string) *string { // both are that device
			if device == nil {
				return nil
			}
			return &location
		}
		other := "tablet"
		if err := c.Instances.Restart(t.Context(), o.InstanceID, farm.RestartOptions{USBDevice: &other}); err == nil ||
			err.Error() != "usb_device tablet cannot be attached: node one does not offer this device" {
			t.Errorf("a device that is not there: %v", err)
		}
		if err := c.Instances.Restart(t.Context(), uuid.NewString(),
			farm.RestartOptions{}); farm.CodeOf(err) != farm.CodeNotFound {
			t.Errorf("unknown instance: %v", err)
		}
		for _, opts := range []farm.RestartOptions{
			{USBDevice: &device, VNCPassword: &password}, {USBDevice: &location}, {},
		} {
			if err := c.Instances.Restart(t.Context(), o.InstanceID, opts); err != nil {
				t.Fatal(err)
			}
			c.wantState(o.InstanceID, farm.Started)
			r := a.take(api.OrderRestart)
			if d := cmp.Diff(&api.RestartOrder{USB: given(opts.USBDevice), VNCPassword: opts.VNCPassword},
				r.Restart); d != "" || r.Task == "" {
				t.Errorf("order (-want +got):\n%s", d)
			}
			later := time.Now()
			a.say(o, api.PhaseRunning, at(r, api.TaskDone), func(s *api.InstanceStatus) { s.VM.Started = later })
			inst, _ := c.Instances.Get(t.Context(), o.InstanceID)
			if inst.State != farm.Started || inst.Task != nil || !inst.VM.Started.Equal(later) || inst.Message != "" {
				t.Errorf("restarted instance = %+v", inst)
			}
		}
		inst, _ := c.Instances.Get(t.Context(), o.InstanceID)
		if inst.Options.USBDevice != location || inst.Options.VNCPassword != password {
			t.Errorf("options after the restarts = %+v", inst.Options)
		}
	})
}

func TestRestartThatFails(t *testing.T) {
	for _, tc := range []struct {
		phase   api.Phase
		state   farm.InstanceState
		message string
	}{
		{api.PhaseRunning, farm.Started, "The restart failed: no such device"},
		{api.PhaseStopped, farm.Errored, "no boot"},
	} {
		t.Run(string(tc.phase), func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				a := c.join("one", 1)
				o := c.started(a)
				device := "phone"
				a.info = &api.NodeInfo{
					Arch: "amd64", Driver: "sim", USB: []api.USBDevice{{Name: "phone", Location: "1-2"}},
				}
				a.poll(api.PollRequest{Info: a.info, HasHeld: true, Held: a.held}, 0)
				if err := c.Instances.Restart(t.Context(), o.InstanceID,
					farm.RestartOptions{USBDevice: &device}); err != nil {
					t.Fatal(err)
				}
				r := a.take(api.OrderRestart)
				a.say(o, tc.phase, at(r, api.TaskFailed, func(s *api.TaskStatus) { s.Message = "no such device" }),
					func(s *api.InstanceStatus) { s.Message = "no boot" })
				c.wantState(o.InstanceID, tc.state)
				inst, _ := c.Instances.Get(t.Context(), o.InstanceID)
				if inst.Message != tc.message || inst.Options.USBDevice != "" || inst.Task != nil {
					t.Errorf("instance = %+v", inst)
				}
				if tc.state != farm.Started {
					return
				}
				c.save(a, o) // the failure does not prevent it, and its message is cleared
				if inst, _ := c.Instances.Get(t.Context(),
					o.InstanceID); inst.Message != "saving: waiting for its node" {
					t.Errorf("message = %q", inst.Message)
				}
			})
		})
	}
}

func TestPushRegistry(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		c.stop()
		c.start(Options{PushRegistry: "http://push"})
		a := c.join("one", 1)
		s := c.save(a, c.started(a))
		if r := c.wantSave(s.Task, farm.SavePending, ""); s.Save.Registry != "http://push" ||
			r.Registry != "http://push" {
			t.Errorf("pushed to %s, said to be %s", s.Save.Registry, r.Registry)
		}
	})
}

// TestTaskOrdersAreLevels follows an order through all that may happen to it before the first
// report of its node.
func TestTaskOrdersAreLevels(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.started(a)
		s := c.save(a, o, func(ask *saves.Request) { ask.Script = []byte("once") }) // received and acknowledged
		quiet := func(when string) {
			t.Helper()
			if orders := a.contact(); len(orders) != 0 {
				t.Fatalf("%s the order was sent again: %+v", when, orders)
			}
		}
		again := func(when string) {
			t.Helper()
			if d := cmp.Diff(s, a.take(api.OrderSave)); d != "" {
				t.Fatalf("%s the order is another (-want +got):\n%s", when, d)
			}
		}
		quiet("at once")
		name := "renamed"
		if err := c.Instances.Update(t.Context(), o.InstanceID, instances.Update{Name: &name}); err != nil {
			t.Fatal(err)
		}
		quiet("after a change of the record")
		a.say(o, api.PhaseRunning, at(s, api.TaskPushing))
		quiet("after a status")
		time.Sleep(time.Minute)
		quiet("after a minute")
		c.restart()
		again("after a restart of the controller")
		a.boot = uuid.NewString()
		time.Sleep(takeoverAfter + time.Second)
		again("for a new agent")
		quiet("after that")
		if r := c.wantSave(s.Task, farm.SavePending, ""); r.Stage != string(api.TaskPushing) {
			t.Errorf("stage %q after all that", r.Stage)
		}
		a.say(o, api.PhaseRunning, at(s, api.TaskDone))
		c.restart()
		a.take(api.OrderTerminate)
	})
}

func TestAckOfAnotherTask(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.started(a)
		if _, err := c.Saves.Create(t.Context(), asking(o)); err != nil {
			t.Fatal(err)
		}
		s := a.contact()[0]
		for _, ack := range []api.Ack{
			{InstanceID: o.InstanceID, Claim: o.Claim, Kind: api.OrderSave, Task: "another"},
			{InstanceID: o.InstanceID, Claim: o.Claim, Kind: api.OrderSave},
			{InstanceID: o.InstanceID, Claim: o.Claim, Kind: api.OrderRestart, Task: s.Task},
			{InstanceID: o.InstanceID, Claim: "another", Kind: api.OrderSave, Task: s.Task},
			{InstanceID: "another"},
		} {
			a.poll(api.PollRequest{Acks: []api.Ack{ack}, HasHeld: true, Held: a.held}, 0)
			time.Sleep(6 * time.Second)
			if orders := a.contact(); len(orders) != 1 {
				t.Errorf("%+v took the order away", ack)
			}
		}
	})
}

func TestNodeLostWhileSaving(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.started(a)
		s := c.save(a, o)
		time.Sleep(3 * time.Minute)
		c.wantState(o.InstanceID, farm.Pushing)
		if inst, _ := c.Instances.Get(t.Context(),
			o.InstanceID); inst.Message != "Node one is offline; the instance continues when it returns" {
			t.Errorf("message = %q", inst.Message)
		}
		a.contact()
		if inst, _ := c.Instances.Get(t.Context(), o.InstanceID); inst.Message != "saving: waiting for its node" {
			t.Errorf("message = %q", inst.Message)
		}
		a.say(o, api.PhaseRunning, at(s, api.TaskDone))
		c.wantSave(s.Task, farm.SaveSucceeded, "")
	})
}

// TestSecondReplica accepts a save on one replica, sends the order and receives the reports on the
// other one, and ends it on the first.
func TestSecondReplica(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		second := c.replica()
		defer second.stop()
		a := c.join("one", 2)
		o, p := c.started(a), c.started(a)
		id, err := second.Saves.Create(t.Context(), asking(o, func(ask *saves.Request) { ask.Script = []byte("x") }))
		if err != nil {
			t.Fatal(err)
		}
		s := a.take(api.OrderSave) // of the first replica
		if s.Task != id || string(s.Save.Script) != "x" {
			t.Errorf("order = %+v", s)
		}
		a.say(o, api.PhaseRunning,
			at(s, api.TaskSaving, func(ts *api.TaskStatus) { ts.Script = &api.ScriptStatus{Stdout: "hello"} }))
		if r := second.wantSave(id, farm.SavePending, ""); string(r.Script.Stdout) != "hello" {
			t.Errorf("result on the second replica = %+v", r.Script)
		}
		a.say(o, api.PhaseRunning, at(s, api.TaskDone))
		second.wantSave(id, farm.SaveSucceeded, "")
		second.wantState(o.InstanceID, farm.Terminating)
		a.say(a.take(api.OrderTerminate), api.PhaseTerminated)

		other := c.save(a, p)
		if err := second.Instances.Terminate(t.Context(), p.InstanceID); err != nil {
			t.Fatal(err)
		}
		c.wantSave(other.Task, farm.SaveError, "The instance was terminated before the save had ended")
	})
}

// TestProgressIsWrittenInSteps counts the writes of a push that reports every per mille.
func TestProgressIsWrittenInSteps(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.started(a)
		s := c.save(a, o)
		writes := 0
		c.store.Subscribe(func(events []store.Event) { writes += len(events) })
		for i := range 1001 {
			a.say(o, api.PhaseRunning, at(s, api.TaskPushing, func(ts *api.TaskStatus) {
				ts.Progress, ts.Script = float64(i)/1000, &api.ScriptStatus{Stdout: "said with every status"}
			}))
		}
		time.Sleep(2 * writeInterval) // the last of it is written when the node may write again
		synctest.Wait()
		if r := c.wantSave(s.Task, farm.SavePending, ""); r.Progress < 0.95 {
			t.Errorf("progress %f at the end of the push", r.Progress)
		}
		if writes > 20 { // the output, the burst and one more, each of two records
			t.Errorf("%d records were written", writes)
		}
	})
}
