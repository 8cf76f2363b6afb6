package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/api"
)

// fakeNode is a node that the suite speaks for by hand.
type fakeNode struct {
	c      *cloud
	id     string
	secret string
	info   api.NodeInfo
	seq    int64
}

func (c *cloud) join(ctx context.Context, name string, groups ...string) (*fakeNode, error) {
	var a api.JoinAnswer
	req := api.JoinRequest{
		Protocol: 1, Token: fmt.Sprint(c.vars["token"]), Name: name, Host: "127.0.0.1",
		Groups: groups, Capacity: 20,
	}
	err := c.caller().Send(ctx, "POST", api.PathJoin, req, &a)
	info := api.NodeInfo{Arch: "amd64", OS: "linux", CPUs: 4, MemoryMB: 8192, Driver: "sim", FreeDisk: 1 <<
		40, DiskSize: 1 << 40}
	return &fakeNode{c: c, id: a.NodeID, secret: a.Credential, info: info}, err
}

// poll sends the inventory of the node, and returns the orders.
func (h *fakeNode) poll(
	ctx context.Context, held []api.InventoryItem, details ...api.InventoryDetail,
) (api.PollAnswer, error) {
	req := api.PollRequest{
		Protocol: 1, NodeID: h.id, BootID: "b", InfoHash: "h", HeldHash: fmt.Sprint("k", len(held)), Held: held,
		HasHeld: true, Details: details,
		Info: &h.info,
	}
	var out api.PollAnswer
	return out, h.c.post(ctx, api.PathPoll+"?wait=0s", h.secret, req, &out)
}

// say reports one status.
func (h *fakeNode) say(ctx context.Context, status api.InstanceStatus) error {
	h.seq++
	report := api.Report{Protocol: 1, NodeID: h.id, BootID: "b", Seq: h.seq, Statuses: []api.InstanceStatus{status}}
	return h.c.post(ctx, api.PathReport, h.secret, report, nil)
}

// run waits for the orders to start some instances, reports that their VMs run, and returns the
// inventory of the node after that.
func (h *fakeNode) run(ctx context.Context, ids ...string) (held []api.InventoryItem, err error) {
	for deadline := time.Now().Add(patience); len(held) < len(ids); time.Sleep(pause) {
		a, err := h.poll(ctx, held)
		if err != nil || time.Now().After(deadline) {
			return nil, fmt.Errorf("orders of %d instances of %d, %w", len(held), len(ids), err)
		}
		for _, o := range a.Orders {
			if o.Kind != api.OrderStart {
				return nil, fmt.Errorf("an order to %s %s", o.Kind, o.InstanceID)
			}
			held = append(held, api.InventoryItem{InstanceID: o.InstanceID, Claim: o.Claim, VMID: o.InstanceID})
			if err := h.say(ctx, api.InstanceStatus{
				InstanceID: o.InstanceID, Claim: o.Claim, No: 1, Phase: api.PhaseScriptOK,
				VM: &api.NodeVM{
					UUID: o.InstanceID, Name: "x", Status: "running", CPUs: 1, MemoryMB: 256,
					HostIP: "127.0.0.1", Started: time.Now(),
				},
			}); err != nil {
				return nil, err
			}
		}
	}
	for _, id := range ids {
		if err := h.c.await(ctx, id, func(i api.Instance) bool { return i.InstanceState == "Started" }); err != nil {
			return nil, err
		}
	}
	return held, nil
}

// start starts instances on the node and has them run.
func (h *fakeNode) start(ctx context.Context, count int) ([]api.InventoryItem, error) {
	var ids []string
	asks := map[string]any{"vmid": h.c.vars["template"], "node_id": h.id, "count": count}
	if err := h.c.caller().Send(ctx, "POST", "/api/v1/vm", asks, &ids); err != nil {
		return nil, err
	}
	return h.run(ctx, ids...)
}

// leave removes the node.
func (h *fakeNode) leave(ctx context.Context) error {
	return h.c.caller().Send(ctx, "DELETE", "/api/v1/node", map[string]string{"node_id": h.id}, nil)
}

// twice terminates an instance two times: its node gets one order, and the event log one event.
func twice(ctx context.Context, p *caseRunner) error {
	c := p.stage.clouds["split"]
	h, err := c.join(ctx, "twice")
	if err != nil {
		return err
	}
	if _, err := h.poll(ctx, nil); err != nil {
		return err
	}
	held, err := h.start(ctx, 1)
	if err != nil {
		return err
	}
	id := held[0].InstanceID
	for range 2 {
		if err := c.caller().Send(ctx, "DELETE", "/api/v1/vm", map[string]string{"id": id}, nil); err != nil {
			return err
		}
	}
	a, err := h.poll(ctx, held)
	if err != nil || len(a.Orders) != 1 || a.Orders[0].Kind != api.OrderTerminate || a.Orders[0].InstanceID != id {
		return fmt.Errorf("orders %v after two terminations, %w", a.Orders, err)
	}
	if err := h.say(ctx,
		api.InstanceStatus{InstanceID: id, Claim: held[0].Claim, No: 2, Phase: api.PhaseTerminated}); err != nil {
		return err
	}
	if a, err = h.poll(ctx, nil); err != nil || len(a.Orders) > 0 {
		return fmt.Errorf("orders %v after the end, %w", a.Orders, err)
	}
	faults := p.playWith(ctx, sequence{Case: "terminated twice, and told once", On: "split", Steps: []step{
		{Send: "GET /api/v1/vm?id=$id", Within: patience, Fail: "Not found", As: "json"},
		{Send: "GET /api/v1/events?filter=instance:$id%20name:TerminateVM", OK: map[string]any{"": "!len 1"}},
		{Send: "GET /api/v1/events?filter=instance:$id%20name:VMTerminated", OK: map[string]any{"": "!len 1"}},
	}}, vars{"id": id})
	return errors.Join(faulty(faults), h.leave(ctx))
}
