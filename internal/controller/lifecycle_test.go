package controller

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/farm"
)

func TestInstanceLifecycle(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 2)
		id := c.mustStart(StartRequest{Name: "job"})[0]
		o := a.take(api.OrderStart)
		if o.InstanceID != id || o.Start.ContentID != "content-1" || o.Start.Registry != "http://registry" {
			t.Errorf("order = %+v", o)
		}
		c.wantState(id, farm.Scheduling)
		a.say(o, api.PhasePulling, func(s *api.InstanceStatus) { s.Progress = 0.5 })
		c.wantState(id, farm.Pulling)
		a.say(o, api.PhaseStarting)
		c.wantState(id, farm.Scheduling)
		a.say(o, api.PhaseRunning)
		c.wantState(id, farm.Started)
		inst, _ := c.Instances.Get(t.Context(), id)
		if inst.VM == nil || inst.VM.Status != farm.VMRunning || inst.Message != "" || inst.NodeID != a.id {
			t.Errorf("started instance = %+v", inst)
		}
		if err := c.Instances.Terminate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		c.wantState(id, farm.Terminating)
		end := a.take(api.OrderTerminate)
		a.say(o, api.PhaseRunning) // a late report of the earlier start
		c.wantState(id, farm.Terminating)
		a.say(end, api.PhaseTerminated)
		c.wantState(id, farm.Terminated)
		time.Sleep(time.Minute + 2*time.Second)
		c.wantState(id, farm.InstanceRemoved)
		c.wantSlots(a, 0)
	})
}

func TestTerminateBeforePlacement(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		id := c.mustStart(StartRequest{})[0]
		inst, _ := c.Instances.Get(t.Context(), id)
		if inst.Message != "there are no nodes" {
			t.Errorf("reason = %q", inst.Message)
		}
		for range 2 {
			if err := c.Instances.Terminate(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		c.wantState(id, farm.InstanceRemoved)
		if err := c.Instances.Terminate(t.Context(), id); farm.CodeOf(err) != farm.CodeNotFound {
			t.Errorf("terminating what is gone: %v", err)
		}
	})
}

func TestTerminateAtEveryPhase(t *testing.T) {
	phases := []api.Phase{
		"", api.PhaseAccepted, api.PhasePulling, api.PhaseStarting, api.PhaseRunning, api.PhaseScriptOK,
		api.PhaseScriptFailed, api.PhaseScriptEnded, api.PhaseFailed, api.PhaseStopped, api.PhaseVanished,
	}
	for _, phase := range phases {
		t.Run("at "+string(phase), func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				a := c.join("one", 1)
				id := c.mustStart(StartRequest{})[0]
				o := a.take(api.OrderStart)
				if phase != "" {
					a.say(o, phase)
				}
				if err := c.Instances.Terminate(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				for _, late := range phases[1:] {
					a.say(o, late)
					c.wantState(id, farm.Terminating)
				}
				if orders := a.next(); len(orders) != 1 || orders[0].Kind != api.OrderTerminate {
					t.Fatalf("orders = %+v", orders)
				}
				inst, _ := c.Instances.Get(t.Context(), id)
				end := farm.Terminated
				if inst.Started.IsZero() {
					end = farm.InstanceRemoved
				}
				a.say(o, api.PhaseTerminated)
				c.wantState(id, end)
				a.say(o, api.PhaseTerminated) // again, since the response was lost
				c.wantState(id, end)
				if orders := a.next(); len(orders) != 0 {
					t.Errorf("more orders: %+v", orders)
				}
			})
		})
	}
}

func TestFailuresEndInError(t *testing.T) {
	script := func(code int) func(*api.InstanceStatus) {
		return func(s *api.InstanceStatus) { s.Script = &api.ScriptStatus{Code: code} }
	}
	cases := []struct {
		name    string
		handler farm.ScriptFailureAction
		phase   api.Phase
		change  func(*api.InstanceStatus)
		state   farm.InstanceState
		message string
		slot    bool
	}{
		{"start", 0, api.PhaseFailed, func(s *api.InstanceStatus) {
			s.Message = "no room"
		}, farm.Errored, "no room", false},
		{
			"script, stopping", farm.StopVM, api.PhaseScriptFailed, script(7), farm.Stopping,
			"startup script exit code 7",
			true,
		},
		{
			"script, stopped", farm.StopVM, api.PhaseScriptEnded, script(7), farm.Errored, "startup script exit code 7",
			true,
		},
		{
			"script, kept", farm.KeepVM, api.PhaseScriptFailed, script(1), farm.Errored, "startup script exit code 1",
			true,
		},
		{
			"stopped by itself", 0, api.PhaseStopped, func(*api.InstanceStatus) {}, farm.Errored,
			"The VM stopped without being asked to", true,
		},
		{
			"vanished", 0, api.PhaseVanished, func(*api.InstanceStatus) {}, farm.Errored,
			"VM no longer exists on its node", false,
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				a := c.join("one", 1)
				id := c.mustStart(StartRequest{Options: farm.StartOptions{
					Script: []byte("false"), ScriptMonitoring: true, ScriptOnFailure: tc.handler,
				}})[0]
				o := a.take(api.OrderStart)
				if tc.phase != api.PhaseFailed {
					a.say(o, api.PhaseRunning)
				}
				a.say(o, tc.phase, tc.change)
				c.wantState(id, tc.state)
				inst, _ := c.Instances.Get(t.Context(), id)
				if inst.Message != tc.message {
					t.Errorf("message = %q, want %q", inst.Message, tc.message)
				}
				c.wantSlots(a, map[bool]int{true: 1}[tc.slot])
				time.Sleep(10 * time.Minute)
				a.contact()
				if c.state(id) == farm.InstanceRemoved {
					t.Error("an instance in Error must stay until it is terminated")
				}
			})
		})
	}
}

func TestCapacityAndWaiting(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 2)
		ids := c.mustStart(StartRequest{Count: 5})
		if orders := a.next(); len(orders) != 2 {
			t.Fatalf("%d orders for 2 slots", len(orders))
		}
		waiting := 0
		for _, id := range ids {
			inst, _ := c.Instances.Get(t.Context(), id)
			if inst.NodeID == "" {
				waiting++
				if inst.Message == "" {
					t.Error("a waiting instance has no reason")
				}
				continue
			}
			if err := c.Instances.Terminate(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		if waiting != 3 {
			t.Fatalf("%d wait, want 3", waiting)
		}
		for _, o := range a.next() {
			a.say(o, api.PhaseTerminated)
		}
		if orders := a.next(); len(orders) != 2 {
			t.Errorf("%d orders after two slots were freed, want 2", len(orders))
		}
	})
}

func TestControllerRestartLosesNothing(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 3)
		ids := c.mustStart(StartRequest{Count: 3})
		orders := a.next()
		a.say(orders[0], api.PhaseRunning)
		token := c.Nodes.JoinToken()
		c.restart()
		synctest.Wait()
		if c.Nodes.JoinToken() != token {
			t.Error("the join token changed")
		}
		if n := len(c.Instances.List(instances.Page{})); n != 3 {
			t.Fatalf("%d instances after the restart", n)
		}
		c.wantState(orders[0].InstanceID, farm.Started)
		if again := a.contact(); len(again) != 2 {
			t.Errorf("%d start orders sent again, want the 2 without a status", len(again))
		}
		for _, id := range ids {
			if c.state(id) == farm.Errored {
				t.Errorf("instance %s is in Error", id)
			}
		}
	})
}

func TestNodeLostAndFound(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 3)
		ids := c.mustStart(StartRequest{Count: 3})
		orders := a.next()
		for _, o := range orders {
			a.say(o, api.PhaseRunning)
		}
		a.contact()
		time.Sleep(119 * time.Second)
		if n, _ := c.Nodes.Get(t.Context(), a.id); n.Node.State != farm.NodeActive {
			t.Fatalf("node is %s before its time-out", n.Node.State)
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if n, _ := c.Nodes.Get(t.Context(), a.id); n.Node.State != farm.NodeOffline {
			t.Fatalf("node is %s after its time-out", n.Node.State)
		}
		inst, _ := c.Instances.Get(t.Context(), ids[0])
		if inst.State != farm.Started || inst.Message == "" {
			t.Errorf("instance of a lost node: %s %q", inst.State, inst.Message)
		}
		a.contact()
		if inst, _ = c.Instances.Get(t.Context(), ids[0]); inst.Message != "" || inst.State != farm.Started {
			t.Errorf("instance of a node that is back: %s %q", inst.State, inst.Message)
		}
		time.Sleep(5 * time.Minute)
		c.wantState(ids[0], farm.Errored)
		if err := c.Instances.Terminate(t.Context(), ids[0]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		c.wantState(ids[0], farm.Terminating)
		c.wantMessage(ids[0], "is removed when it returns")
		if o := a.take(api.OrderTerminate); o.InstanceID != ids[0] {
			t.Errorf("kill order for %s", o.InstanceID)
		}
	})
}

// TestStatusUnderAnotherClaim: a status under another claim changes nothing, and does not affect the VM.
func TestStatusUnderAnotherClaim(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		id := c.mustStart(StartRequest{})[0]
		o := a.take(api.OrderStart)
		o.Claim = "older"
		a.say(o, api.PhaseRunning)
		c.wantState(id, farm.Scheduling)
		if orders := a.contact(); len(orders) > 0 {
			t.Errorf("orders = %+v", orders)
		}
	})
}

func TestSecondAgentIsRefused(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		b := *a
		b.boot = "other"
		if _, err := b.tryPoll(api.PollRequest{}, 0); farm.CodeOf(err) != farm.CodeConflict {
			t.Errorf("second agent: %v", err)
		}
		if _, err := c.Link.Report(t.Context(), b.cred,
			api.Report{NodeID: b.id, BootID: b.boot}); farm.CodeOf(err) != farm.CodeConflict {
			t.Errorf("report of a second agent: %v", err)
		}
		time.Sleep(takeoverAfter + time.Second)
		if _, err := b.tryPoll(api.PollRequest{}, 0); err != nil {
			t.Errorf("an agent after the first fell silent: %v", err)
		}
		if _, err := a.tryPoll(api.PollRequest{}, 0); farm.CodeOf(err) != farm.CodeConflict {
			t.Errorf("the first agent, taken over: %v", err)
		}
	})
}

func TestPollWaitsForWork(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		began := time.Now()
		if orders := a.poll(api.PollRequest{}, 5*time.Second); len(orders) != 0 || time.Since(began) != 5*time.Second {
			t.Errorf("an idle poll gave %v after %s", orders, time.Since(began))
		}
		got := make(chan []api.Order)
		go func() { got <- a.poll(api.PollRequest{}, 20*time.Second) }()
		time.Sleep(time.Second)
		began = time.Now()
		c.mustStart(StartRequest{})
		if orders := <-got; len(orders) != 1 || time.Since(began) > 10*time.Millisecond {
			t.Errorf("got %v after %s", orders, time.Since(began))
		}
		if orders := a.poll(api.PollRequest{}, 20*time.Second); len(orders) != 1 {
			t.Errorf("an order without acknowledgement was not sent again: %v", orders)
		}
	})
}

func TestDeleteNode(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 2)
		ids := c.mustStart(StartRequest{Count: 2})
		for _, o := range a.next() {
			a.say(o, api.PhaseRunning)
		}
		if err := c.Instances.Terminate(t.Context(), ids[0]); err != nil {
			t.Fatal(err)
		}
		if err := c.Nodes.Delete(t.Context(), a.id); err != nil {
			t.Fatal(err)
		}
		if s := c.state(ids[0]); s != farm.Terminated {
			t.Errorf("terminating instance of a removed node is %s", s)
		}
		c.wantState(ids[1], farm.Errored)
		if err := c.Nodes.Delete(t.Context(), a.id); farm.CodeOf(err) != farm.CodeNotFound {
			t.Errorf("deleting it again: %v", err)
		}
		if answer, err := a.tryPoll(api.PollRequest{}, 0); err != nil || !answer.Removed {
			t.Errorf("a removed node polls: %+v, %v", answer, err)
		}
		stranger := *a
		stranger.cred = "guessed"
		if _, err := stranger.tryPoll(api.PollRequest{}, 0); farm.CodeOf(err) != farm.CodeUnauthenticated {
			t.Errorf("a removed node with a wrong credential polls: %v", err)
		}
		if err := c.Instances.Terminate(t.Context(), ids[1]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		c.wantState(ids[1], farm.InstanceRemoved)
		c.away(7*24*time.Hour - 4*time.Minute)
		if answer, err := a.tryPoll(api.PollRequest{}, 0); err != nil || !answer.Removed {
			t.Errorf("a node that was removed a while ago polls: %+v, %v", answer, err)
		}
		time.Sleep(4 * time.Minute)
		if _, err := a.tryPoll(api.PollRequest{}, 0); farm.CodeOf(err) != farm.CodeUnauthenticated {
			t.Errorf("a node that was removed long ago polls: %v", err)
		}
	})
}

func TestWaitingPollOfARemovedNode(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		parked := make(chan *api.PollAnswer)
		go func() {
			answer, err := a.tryPoll(api.PollRequest{}, 20*time.Second)
			if err != nil {
				t.Error(err)
			}
			parked <- answer
		}()
		time.Sleep(time.Second)
		removed := time.Now()
		if err := c.Nodes.Delete(t.Context(), a.id); err != nil {
			t.Fatal(err)
		}
		if answer := <-parked; !answer.Removed || time.Since(removed) > 0 {
			t.Errorf("answered %+v after %s", answer, time.Since(removed))
		}
	})
}

// TestLargeRecords compares what clients and guests may send with the limits of one transaction of
// the store.
func TestLargeRecords(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 12)
		script := bytes.Repeat([]byte{0xff}, 256<<10)
		ids := c.mustStart(StartRequest{Count: 12, Options: farm.StartOptions{Script: script, ScriptMonitoring: true}})
		orders := a.next()
		if len(orders) != 12 {
			t.Fatalf("%d of 12 instances with large scripts were placed", len(orders))
		}
		report := api.Report{Protocol: api.LinkProtocol, NodeID: a.id, BootID: a.boot}
		noise := strings.Repeat("\x00", 64<<10)
		for _, o := range orders {
			report.Statuses = append(report.Statuses, api.InstanceStatus{
				InstanceID: o.InstanceID, Claim: o.Claim, No: 1, Phase: api.PhaseScriptEnded,
				Message: strings.Repeat("\x01", 1<<20),
				Script:  &api.ScriptStatus{Code: 9, Stdout: noise, Stderr: noise},
				VM:      &api.NodeVM{UUID: "u", Name: strings.Repeat("n", 1<<20), Status: "deleted"},
			})
		}
		if _, err := c.Link.Report(t.Context(), a.cred, report); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			c.wantState(id, farm.Errored)
		}
		c.wantSlots(a, 0)
	})
}

func TestStartRefusals(t *testing.T) {
	seven := 7
	one := 1
	cases := []struct {
		name    string
		req     StartRequest
		message string
	}{
		{"name instead of id", StartRequest{TemplateID: "base"}, "VM not in the registry"},
		{
			"unknown template",
			StartRequest{TemplateID: "99999999-2222-4333-8444-555555555555"},
			"VM not in the registry",
		},
		{"unknown tag", StartRequest{Tag: "v9"}, "No such tag v9"},
		{"unknown version", StartRequest{Version: &seven}, "No such tag 7"},
		{
			"tag and version that differ",
			StartRequest{Tag: "v1", Version: &one},
			"tag v1 is version 0, not 1: use only one of tag and version",
		},
		{"unknown node", StartRequest{Options: farm.StartOptions{PinnedNode: "nowhere"}}, "Node nowhere not found"},
	}
	inCloud(t, func(t *testing.T, c *cloud) {
		for _, tc := range cases {
			if tc.req.TemplateID == "" {
				tc.req.TemplateID = templateID
			}
			tc.req.Count = 1
			_, err := c.Start(t.Context(), tc.req)
			if err == nil || err.Error() != tc.message {
				t.Errorf("%s: %v, want %q", tc.name, err, tc.message)
			}
		}
		c.shelf.setDown(true)
		_, err := c.Start(t.Context(), StartRequest{TemplateID: templateID, Tag: "v9", Count: 1})
		if farm.CodeOf(err) != farm.CodeRefused || !strings.Contains(err.Error(), "cannot be reached") {
			t.Errorf("registry down: %v", err)
		}
		if n := len(c.Instances.List(instances.Page{})); n != 0 {
			t.Errorf("%d instances were created", n)
		}
	})
}
