package controller

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// TestWhatNodesSayFitsTheStore uses a hostile node that describes itself and a VM. Its fields are
// tested in nodeinput.
func TestWhatNodesSayFitsTheStore(t *testing.T) {
	long := strings.Repeat("ä", 1<<12)
	in := &api.NodeInfo{
		Arch: "amd64", OS: long, AgentVersion: long, Driver: long, Hypervisor: long, Accelerator: long, Machine: long,
		CPUModel: long, HostCPU: long, License: long, Expires: long,
	}
	for range 2000 {
		in.Templates = append(in.Templates, api.NodeTemplate{ID: long, Name: long, Tag: long, ContentID: long})
		in.USB = append(in.USB, api.USBDevice{Name: long, Location: long})
		in.Abilities = append(in.Abilities, long)
		in.VLANs = append(in.VLANs, len(in.VLANs))
	}
	if err := nodeinput.Poll(&api.PollRequest{BootID: "b", Info: in}); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(infoOf("n", in))
	if err != nil || len(raw) > store.MaxBytes {
		t.Errorf("a description of %d bytes (%v)", len(raw), err)
	}
	vm := &api.NodeVM{UUID: long, Name: long, Version: long, Accel: long}
	for range 1000 {
		vm.Ports = append(vm.Ports, api.NodePortRule{Name: long, Protocol: long, HostIP: long})
	}
	status := api.InstanceStatus{
		Message: long, VM: vm, Script: &api.ScriptStatus{Stdout: strings.Repeat("\x00", 1<<20), Stderr: long},
	}
	report := api.Report{Statuses: []api.InstanceStatus{status}}
	if err := nodeinput.Report(&report); err != nil {
		t.Fatal(err)
	}
	status = report.Statuses[0]
	raw, err = json.Marshal([]any{vmOf(status.VM, nil), scriptOf(status.Script), status.Message})
	if err != nil || len(raw) > store.MaxBytes/2 {
		t.Errorf("a status of %d bytes (%v)", len(raw), err)
	}
}

// TestRemovedNodesHaveNoSessions: events arrive after the removal of their node.
func TestRemovedNodesHaveNoSessions(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		other := c.replica()
		defer other.stop()
		a := c.join("one", 1)
		id := c.mustStart(StartRequest{TemplateID: templateID, Count: 1})[0]
		synctest.Wait()
		inst, _, _ := c.tables.Instances.Get(id)
		if inst.NodeID != a.id {
			t.Fatal("it was not placed")
		}
		sessions := func(c *Controller) int {
			c.link.mu.Lock()
			defer c.link.mu.Unlock()
			return len(c.link.sessions)
		}
		if here, there := sessions(c.Controller), sessions(other.Controller); here != 1 || there != 1 {
			t.Fatalf("%d and %d sessions of one node", here, there)
		}
		if err := c.DeleteNode(t.Context(), a.id); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, r := range []*Controller{c.Controller, other.Controller} {
			r.link.observe([]store.Event{
				{Kind: record.KindInstance, ID: id, New: inst},
				{Kind: record.KindInstance, ID: id, Old: inst},
				{Kind: record.KindInstance, ID: id, New: &farm.Instance{ID: id, NodeID: a.id, State: farm.Terminating}},
			})
			if n := sessions(r); n != 0 {
				t.Errorf("%d sessions of no node", n)
			}
		}
	})
}

// TestPollThatDoesNotWait: the poll is answered immediately, since part of the node's report is
// missing.
func TestPollThatDoesNotWait(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		time.Sleep(time.Millisecond)
		began := time.Now()
		a.contact()
		if took := time.Since(began); took > 0 {
			t.Errorf("answered after %s", took)
		}
	})
}

// TestOneBadStatus: a status that cannot be stored is left out with an alarm, and the rest of the
// report counts.
func TestOneBadStatus(t *testing.T) {
	for name, spoil := range map[string]func(c *cloud, s *api.InstanceStatus){
		"a record that outgrows the store": func(c *cloud, s *api.InstanceStatus) {
			text := map[string]any{"x": strings.Repeat("x", store.MaxBytes-2000)}
			if err := c.UpdateInstance(c.t.Context(), s.InstanceID, InstanceUpdate{Metadata: text}); err != nil {
				c.t.Fatal(err)
			}
			s.Script = &api.ScriptStatus{Stdout: strings.Repeat("y", maxOutput)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCloud(t, func(t *testing.T, c *cloud) {
				var logged strings.Builder
				c.stop()
				c.start(Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
				a := c.join("one", 2)
				c.mustStart(StartRequest{Count: 2})
				var statuses []api.InstanceStatus
				for _, o := range a.next() {
					statuses = append(statuses,
						api.InstanceStatus{InstanceID: o.InstanceID, Claim: o.Claim, No: 1, Phase: api.PhaseRunning})
				}
				spoil(c, &statuses[0])
				for range 2 {
					if _, err := c.Report(t.Context(), a.cred,
						api.Report{NodeID: a.id, BootID: a.boot, Statuses: statuses}); err != nil {
						t.Fatalf("the report fails: %v", err)
					}
				}
				c.wantState(statuses[0].InstanceID, farm.Scheduling)
				c.wantState(statuses[1].InstanceID, farm.Started)
				if n := strings.Count(logged.String(), "instance status dropped: it is too large to store"); n != 1 {
					t.Errorf("%d alarms: %s", n, logged.String())
				}
			})
		})
	}
}

// TestKeepNothing: with a retention of zero, the record of a terminated instance is removed
// immediately.
func TestKeepNothing(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		c.stop()
		c.start(Options{KeepTerminated: -1})
		a := c.join("one", 1)
		o := c.started(a)
		if err := c.Terminate(t.Context(), o.InstanceID); err != nil {
			t.Fatal(err)
		}
		a.say(o, api.PhaseTerminated)
		time.Sleep(time.Millisecond)
		c.wantState(o.InstanceID, farm.Gone)
	})
}

// TestAlarmOfTheGuard: an alarm in the log begins with the word that operators look for.
func TestAlarmOfTheGuard(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		var logged strings.Builder
		c.stop()
		c.start(Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		a := c.join("one", 9)
		a.stray(4)
		watch(5*time.Minute, a)
		if n := strings.Count(logged.String(),
			`msg="orphan removal suspended: many VMs of a node are orphaned`); n == 0 || n > 4 {
			t.Errorf("%d alarms: %s", n, logged.String())
		}
	})
}

// TestVanishedThatCannotEnd: instances whose end cannot be written are logged in one line with
// their number, not one line each at every poll.
func TestVanishedThatCannotEnd(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		var logged strings.Builder
		c.stop()
		c.start(Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		a := c.join("one", 5)
		c.runs(a, 5)
		a.held = nil
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range 3 {
			c.reconcile(gone, c.link.session(a.id), nil)
		}
		synctest.Wait()
		if n := strings.Count(logged.String(), "could not end instances"); n != 1 ||
			strings.Contains(logged.String(), "count=1 ") {
			t.Errorf("%d lines: %s", n, logged.String())
		}
	})
}
