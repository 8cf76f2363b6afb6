package controller

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodes"
	"github.com/buildyard/buildyard/internal/farm"
)

func (c *cloud) mustConfigure(a *agent, conf nodes.Config) {
	c.t.Helper()
	if err := c.Nodes.Configure(c.t.Context(), a.id, conf); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

func (c *cloud) node(a *agent) nodes.View {
	c.t.Helper()
	synctest.Wait()
	v, err := c.Nodes.Get(c.t.Context(), a.id)
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

func TestCapacityCut(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 2)
		c.mustStart(StartRequest{Count: 2})
		for _, o := range a.next() {
			a.say(o, api.PhaseRunning)
		}
		c.mustConfigure(a, nodes.Config{Capacity: new(1)})
		waits := c.mustStart(StartRequest{})[0]
		c.wantOn(waits, nil)
		c.wantSlots(a, 2) // running VMs stay
		c.mustConfigure(a, nodes.Config{Capacity: new(3)})
		c.wantOn(waits, a)
	})
}

func TestCapacityModes(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1) // 8 cores, 16 GB
		c.mustStart(StartRequest{})
		big := c.mustStart(StartRequest{Options: farm.StartOptions{CPUs: 8, MemoryMB: 1024}})[0]
		larger := c.mustStart(StartRequest{Options: farm.StartOptions{CPUs: 9, MemoryMB: 1024}})[0]
		c.wantMessage(larger, "no node is large enough for 9 vCPU and 1024 MiB")
		c.wantOn(big, nil)
		c.mustConfigure(a, nodes.Config{Mode: new(farm.CapacityByResources), VCPUOverride: new(8)})
		c.wantOn(big, nil)
		c.mustConfigure(a, nodes.Config{VCPUOverride: new(0)}) // twice the cores
		c.wantOn(big, a)
		c.wantMessage(larger, "no node is large enough for 9 vCPU and 1024 MiB") // than the machine
	})
}

func TestAppleSilicon(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("mac", 5)
		a.info = &api.NodeInfo{Arch: "amd64", OS: "linux", CPUs: 8, MemoryMB: 16384, Driver: "sim"}
		arm := *a.info
		arm.Arch, arm.OS, arm.Driver = "arm64", "darwin", "anka"
		set := func(info api.NodeInfo) {
			a.poll(api.PollRequest{Info: &info, HasHeld: true}, 0)
			synctest.Wait()
		}
		set(arm)
		if v := c.node(a); v.Node.VMLimit(&v.Info) != 2 {
			t.Errorf("%d slots", v.Node.VMLimit(&v.Info))
		}
		if got := c.Usage.Stats().Capacity; got != 2 {
			t.Errorf("the statistics say %d", got)
		}
		arm.Arch, arm.Driver = "arm64", "qemu" // which runs no macOS
		set(arm)
		if got := c.Usage.Stats().Capacity; got != 5 {
			t.Errorf("the statistics say %d under QEMU", got)
		}
		if v := c.node(a); v.Node.VMLimit(&v.Info) != 5 {
			t.Errorf("%d slots under QEMU", v.Node.VMLimit(&v.Info))
		}
	})
}

// TestHostOfANode: an address that an operator has set stays, one that the node reports is applied,
// and VMs have the configured address.
func TestHostOfANode(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		c.mustConfigure(a, nodes.Config{Host: new("build1.example"), Name: new("first"), NoCentralLog: new(true)})
		a.poll(api.PollRequest{Host: "10.0.0.9"}, 0)
		if n := c.node(a).Node; n.Host != "build1.example" || n.Name != "first" || !n.NoCentralLog {
			t.Errorf("node = %+v", n)
		}
		o := c.startedOn(a)
		if inst, _ := c.Instances.Get(t.Context(), o.InstanceID); inst.VM.HostIP != "build1.example" {
			t.Errorf("VM is reached under %s", inst.VM.HostIP)
		}
		c.mustConfigure(a, nodes.Config{Host: new("")})
		a.poll(api.PollRequest{Host: "10.0.0.9"}, 0)
		if n := c.node(a).Node; n.Host != "10.0.0.9" {
			t.Errorf("host = %s", n.Host)
		}
	})
}

func TestDrain(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 2)
		o := c.startedOn(a)
		began := time.Now().UTC()
		c.mustConfigure(a, nodes.Config{Drain: new(true), DrainReason: new("new disk")})
		time.Sleep(time.Second)
		c.mustConfigure(a, nodes.Config{Drain: new(true)})
		v := c.node(a)
		since, reason := v.Node.VisibleSince()
		if v.Node.VisibleState() != farm.NodeDrain || !since.Equal(began) || reason != "new disk" || v.Remaining != 1 {
			t.Errorf("drained node: %s since %s: %q, %d left", v.Node.VisibleState(), since, reason, v.Remaining)
		}
		waits := c.mustStart(StartRequest{})[0]
		c.wantMessage(waits, "in drain mode")
		c.wantState(o.InstanceID, farm.Started)
		if err := c.Instances.Terminate(t.Context(), o.InstanceID); err != nil {
			t.Fatal(err)
		}
		if !v.Node.DrainInfo.Emptied.IsZero() {
			t.Error("it counts as empty while something is there")
		}
		a.say(a.take(api.OrderTerminate), api.PhaseTerminated)
		time.Sleep(time.Second)
		if v := c.node(a); v.Node.DrainInfo.Emptied.IsZero() || v.Remaining != 0 {
			t.Errorf("drain of an empty node: %+v, %d left", v.Node.DrainInfo, v.Remaining)
		}
		c.mustConfigure(a, nodes.Config{Drain: new(false)})
		c.wantOn(waits, a)
		if v := c.node(a); v.Node.DrainInfo != nil || v.Node.VisibleState() != farm.NodeActive {
			t.Errorf("after the drain: %+v", v.Node)
		}
	})
}

// TestDrainDeadline: what still runs is terminated when the time is over, also by a controller that
// started later; not before, and not when the deadline was removed.
func TestDrainDeadline(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a, b := c.join("one", 2), c.join("two", 2)
		runs, spared := c.startedOn(a), c.startedOn(b)
		failed := c.startedOn(a)
		a.say(failed, api.PhaseStopped, func(s *api.InstanceStatus) { s.VM = &api.NodeVM{Status: "stopped"} })
		c.wantState(failed.InstanceID, farm.Errored)
		hour := nodes.Config{Drain: new(true), DrainFor: new(time.Hour)}
		c.mustConfigure(a, hour)
		c.mustConfigure(b, hour)
		c.mustConfigure(b, nodes.Config{DrainFor: new(time.Duration(0))})
		c.away(59 * time.Minute)
		a.c, b.c = c, c
		a.contact()
		b.contact()
		c.wantState(runs.InstanceID, farm.Started)
		a.keepContact(90 * time.Second)
		b.contact()
		c.wantState(runs.InstanceID, farm.Terminating)
		c.wantState(failed.InstanceID, farm.Terminating)
		c.wantMessage(runs.InstanceID, "Its node one is drained, and the time for that is over")
		c.wantState(spared.InstanceID, farm.Started)
		c.away(time.Hour)
		c.wantState(spared.InstanceID, farm.Started)
	})
}

// TestDrainDeadlineOverAChangeOfLeader: the replica that holds the lease when the time is over
// terminates what still runs, whichever replica received the drain request. The node is recorded as
// empty one time.
func TestDrainDeadlineOverAChangeOfLeader(t *testing.T) {
	withEvents(t, func(t *testing.T, c *cloud, to *inbox) {
		a := c.join("one", 1)
		o := c.startedOn(a)
		second := &cloud{t: t, shelf: c.shelf, backend: c.backend}
		second.start(Options{Events: c.opts.Events})
		defer func() { second.stop() }()
		synctest.Wait()
		to.clear()
		there := a.at(second)
		second.mustConfigure(there,
			nodes.Config{Drain: new(true), DrainFor: new(10 * time.Minute), DrainReason: new("disk")})
		there.keepContact(5 * time.Minute)
		c.stop() // it held the lease
		there.keepContact(4*time.Minute + 55*time.Second)
		second.wantState(o.InstanceID, farm.Started)
		there.keepContact(10 * time.Second)
		second.wantState(o.InstanceID, farm.Terminating)
		c.start(Options{Events: c.opts.Events})
		second.stop()
		synctest.Wait()
		second.start(Options{Events: c.opts.Events})
		a.say(a.take(api.OrderTerminate), api.PhaseTerminated)
		a.keepContact(2 * time.Minute)
		v := c.node(a)
		if v.Node.DrainInfo.Emptied.IsZero() || v.Remaining != 0 || v.Node.VisibleState() != farm.NodeDrain {
			t.Errorf("%+v, %d left", v.Node, v.Remaining)
		}
		wantLines(t, to, "ConfigNode", "VMTerminated Terminated", "NodeDrained") // no API request caused the end
	})
}

// TestDrainOfWhatRunsForLong: the deadline applies to VMs without any other deadline.
func TestDrainOfWhatRunsForLong(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.startedOn(a)
		a.keepContact(time.Hour)
		c.mustConfigure(a, nodes.Config{Drain: new(true), DrainFor: new(time.Minute)})
		a.keepContact(59 * time.Second)
		c.wantState(o.InstanceID, farm.Started)
		a.keepContact(2 * time.Second)
		c.wantState(o.InstanceID, farm.Terminating)
	})
}

// TestDrainDeadlineInMaintenance: maintenance mode delays it.
func TestDrainDeadlineInMaintenance(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		o := c.startedOn(a)
		c.mustConfigure(a, nodes.Config{Drain: new(true), DrainFor: new(time.Minute)})
		if _, err := c.Maintenance.Begin(t.Context(), 10*time.Minute, "because"); err != nil {
			t.Fatal(err)
		}
		a.keepContact(5 * time.Minute)
		c.wantState(o.InstanceID, farm.Started)
		a.keepContact(6 * time.Minute)
		c.wantState(o.InstanceID, farm.Terminating)
	})
}

func TestLongReasonsFit(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 1)
		c.mustConfigure(a, nodes.Config{Drain: new(true), DrainReason: new(strings.Repeat("x", nodes.MaxName))})
		if _, reason := c.node(a).Node.VisibleSince(); len(reason) != nodes.MaxName {
			t.Errorf("reason of %d bytes", len(reason))
		}
	})
}

// TestEventsOfConfigurations: an event has the requested changes, and a request without changes
// causes none. That a drained node is empty is reported one time.
func TestEventsOfConfigurations(t *testing.T) {
	withEvents(t, func(t *testing.T, c *cloud, to *inbox) {
		a := c.join("mac-1", 2)
		o := c.startedOn(a)
		synctest.Wait()
		to.clear()
		c.mustConfigure(a, nodes.Config{Capacity: new(2)})
		wantLines(t, to)
		c.mustConfigure(a, nodes.Config{
			Name: new("first"), Capacity: new(3), Drain: new(true), DrainFor: new(time.Hour), DrainReason: new("disk"),
		})
		if len(to.got) != 1 {
			t.Fatalf("%d events", len(to.got))
		}
		want := fmt.Sprintf(
			`{"drain_deadline":3600,"drain_mode":true,"drain_reason":"disk","instance_id":"","machineName":"host","max_vm_count":3,`+
				`"name":"ConfigNode","new_name":"first","node_id":"%s","node_name":"first","sub_type":"nodeAction","time":%d,"type":"apiAction"}`,
			a.id, time.Now().Unix())
		if got := string(to.got[0].Record); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		to.clear()
		if err := c.Instances.Terminate(t.Context(), o.InstanceID); err != nil {
			t.Fatal(err)
		}
		a.say(a.take(api.OrderTerminate), api.PhaseTerminated)
		a.keepContact(5 * time.Minute)
		wantLines(t, to, "TerminateVM Started", "VMTerminated Terminated", "NodeDrained")
	})
}

// TestWhatRunsOnANode: the VMs in a node's view are those that run in the list of instances, from
// the same moment on, through every replica; its load is what it reports.
func TestWhatRunsOnANode(t *testing.T) {
	inCloud(t, func(t *testing.T, c *cloud) {
		a := c.join("one", 3)
		a.poll(api.PollRequest{Usage: &api.Usage{CPU: 0.5, RAM: 0.25, VMs: 9, VCPUs: 9, VRAM: 9}}, 0)
		runs, stops := c.startedOn(a), c.startedOn(a)
		c.mustStart(StartRequest{}) // and one that does not run yet
		a.stops(stops)
		want := api.Usage{CPU: 0.5, RAM: 0.25, VMs: 1, VCPUs: 1, VRAM: 512}
		if v := c.node(a); v.Usage != want || !v.Seen.Equal(time.Now()) {
			t.Errorf("usage = %+v, seen %s", v.Usage, v.Seen)
		}
		other := c.replica()
		defer func() { other.stop() }()
		b := *a
		b.c = other
		want.CPU, want.RAM = 0, 0
		if v := other.node(&b); v.Usage != want || time.Since(v.Seen) > 2*time.Minute {
			t.Errorf("usage through another replica = %+v, seen %s", v.Usage, v.Seen)
		}
		if err := c.Instances.Terminate(t.Context(), runs.InstanceID); err != nil {
			t.Fatal(err)
		}
		for _, o := range a.next() {
			if o.Kind == api.OrderTerminate {
				a.say(o, api.PhaseTerminated)
			}
		}
		if v := c.node(a); v.Usage.VMs != 0 {
			t.Errorf("usage = %+v", v.Usage)
		}
	})
}
