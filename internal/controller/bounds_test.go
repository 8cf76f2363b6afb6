package controller

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// TestWhatNodesSayIsBounded lets a hostile node describe itself and a VM.
func TestWhatNodesSayIsBounded(t *testing.T) {
	long := strings.Repeat("ä", 1<<20)
	in := &api.NodeInfo{
		Arch: "amd64", OS: long, AgentVersion: long, Driver: long, Hypervisor: long, Accelerator: long, Machine: long, CPUModel: long, HostCPU: long,
	}
	for range 10 * maxHave {
		in.Templates = append(in.Templates, api.NodeTemplate{ID: "x", Name: "y", Tag: "z", ContentID: "c"})
		in.USB = append(in.USB, api.USBDevice{Name: long[:600], Location: long[:600]})
	}
	in.Templates[0] = api.NodeTemplate{ID: long, Name: long, Tag: long, ContentID: long}
	raw, err := json.Marshal(infoOf("n", in))
	if err != nil || len(raw) > store.MaxBytes {
		t.Errorf("a description of %d bytes (%v)", len(raw), err)
	}
	vm := &api.LinkVM{}
	for range 1000 {
		vm.Ports = append(vm.Ports, api.LinkPort{Name: long, Protocol: long, HostIP: long, GuestPort: -1, HostPort: -1})
	}
	got := vmOf(vm, nil)
	raw, err = json.Marshal(got)
	if err != nil || len(raw) > maxVMPorts*4*maxLabel || got.Ports[0].GuestPort != 0 || got.Ports[0].HostPort != 0 {
		t.Errorf("a VM of %d bytes with the ports %d and %d (%v)", len(raw), got.Ports[0].GuestPort, got.Ports[0].HostPort, err)
	}
}

// TestRemovedNodesHaveNoSessions lets events come after the removal of their node.
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
				{Kind: kindInstance, ID: id, New: inst},
				{Kind: kindInstance, ID: id, Old: inst},
				{Kind: kindInstance, ID: id, New: &farm.Instance{ID: id, NodeID: a.id, State: farm.Terminating}},
			})
			if n := sessions(r); n != 0 {
				t.Errorf("%d sessions of no node", n)
			}
		}
	})
}

// TestPollThatDoesNotWait is answered at once: what its node says next is missing.
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
