package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/api"
)

// oneSlot has two instances on a node with capacity for one: the second is pending with a reason,
// and starts when the first has ended.
func oneSlot(ctx context.Context, p *caseRunner) error {
	c := p.stage.clouds["split"]
	h, err := c.join(ctx, "one-slot")
	if err != nil {
		return err
	}
	if _, err := h.poll(ctx, nil); err != nil {
		return err
	}
	call := c.caller()
	if err := call.Send(ctx, "POST", "/api/v1/node/config", map[string]any{"node_id": h.id, "max_vm_count": 1},
		nil); err != nil {
		return err
	}
	var ids []string
	if err := call.Send(ctx, "POST", "/api/v1/vm",
		map[string]any{"vmid": c.vars["template"], "node_id": h.id, "count": 2}, &ids); err != nil {
		return err
	}
	first, orders, err := h.settled(ctx, 1)
	if err != nil || orders != 1 {
		return fmt.Errorf("%d orders for a node with room for one, %w", orders, err)
	}
	waits := ids[0]
	if waits == first[0].InstanceID {
		waits = ids[1]
	}
	if err := c.await(ctx, waits, func(i api.Instance) bool {
		return i.InstanceState == "Scheduling" &&
			i.Message != ""
	}); err != nil {
		return err
	}
	if err := call.Send(ctx, "DELETE", "/api/v1/vm", map[string]string{"id": first[0].InstanceID}, nil); err != nil {
		return err
	}
	var gone []string // the order follows the change that the request made, and need not be in the next poll
	for deadline := time.Now().Add(patience); len(gone) == 0; time.Sleep(pause) {
		if gone, err = h.ordered(ctx, first); err != nil {
			return err
		}
		if len(gone) > 1 || time.Now().After(deadline) {
			return fmt.Errorf("removed are %v", gone)
		}
	}
	if err := h.say(ctx, api.InstanceStatus{
		InstanceID: first[0].InstanceID, Claim: first[0].Claim, No: 9, Phase: api.PhaseTerminated,
	}); err != nil {
		return err
	}
	if err := h.begins(ctx, waits); err != nil {
		return err
	}
	return errors.Join(call.Send(ctx, "DELETE", "/api/v1/vm", map[string]string{"id": waits}, nil), h.leave(ctx))
}

// begins takes the order to start an instance that has waited, and sees that the reason for
// waiting is gone while it is pulled and when it runs.
func (h *fakeNode) begins(ctx context.Context, id string) error {
	var o api.Order
	for deadline := time.Now().Add(patience); o.InstanceID != id; time.Sleep(pause) {
		a, err := h.poll(ctx, nil)
		if err != nil || time.Now().After(deadline) {
			return fmt.Errorf("there is no order to start %s, %w", id, err)
		}
		if len(a.Orders) > 0 {
			o = a.Orders[0]
		}
	}
	for i, phase := range []struct {
		api.Phase
		state string
	}{{api.PhasePulling, "Pulling"}, {api.PhaseScriptOK, "Started"}} {
		status := api.InstanceStatus{InstanceID: id, Claim: o.Claim, No: int64(i +
			1), Phase: phase.Phase, Progress: 0.25}
		if phase.Phase == api.PhaseScriptOK {
			status.VM = &api.NodeVM{UUID: id, Name: "x", Status: "running"}
		}
		if err := h.say(ctx, status); err != nil {
			return err
		}
		if err := h.c.await(ctx, id, func(i api.Instance) bool {
			return i.InstanceState == phase.state && i.Message == "" && (phase.state != "Pulling" || i.Progress == 0.25)
		}); err != nil {
			return err
		}
	}
	return nil
}

// settled polls until the wanted number of orders to start instances has come, and then until no
// further one comes for a while; it returns the ordered instances as an inventory, and the number of
// orders. Instances wait for their MAC addresses while the nodes of other cases have orphaned VMs.
func (h *fakeNode) settled(ctx context.Context, want int) ([]api.InventoryItem, int, error) {
	var held []api.InventoryItem
	known := map[string]bool{}
	last := time.Now()
	for end := last.Add(patience); time.Since(last) < time.Second || len(known) < want && time.Now().Before(end); {
		time.Sleep(pause)
		a, err := h.poll(ctx, held)
		if err != nil {
			return nil, 0, err
		}
		for _, o := range a.Orders {
			if o.Kind == api.OrderStart && !known[o.InstanceID] {
				known[o.InstanceID], last = true, time.Now()
				held = append(held, api.InventoryItem{InstanceID: o.InstanceID, Claim: o.Claim, VMID: o.InstanceID})
			}
		}
	}
	return held, len(known), nil
}

// resources starts more than fits two nodes in the capacity mode resource: one has few
// processors, of which each counts twice, and one little memory, of which 2 GB are the host's.
func resources(ctx context.Context, p *caseRunner) error {
	c := p.stage.clouds["split"]
	for _, node := range []struct {
		name              string
		cpus, memory, fit int
	}{{"few-processors", 2, 8192, 4}, {"little-memory", 4, 2560, 2}} {
		h, err := c.join(ctx, node.name)
		if err != nil {
			return err
		}
		h.info.CPUs, h.info.MemoryMB = node.cpus, node.memory
		if _, err := h.poll(ctx, nil); err != nil {
			return err
		}
		if err := c.caller().Send(ctx, "POST", "/api/v1/node/config",
			map[string]any{"node_id": h.id, "capacity_mode": "resource"}, nil); err != nil {
			return err
		}
		var ids []string
		// 1 processor, 256 MB each
		asks := map[string]any{"vmid": c.vars["template"], "node_id": h.id, "count": node.fit + 1}
		if err := c.caller().Send(ctx, "POST", "/api/v1/vm", asks, &ids); err != nil {
			return err
		}
		if _, orders, err := h.settled(ctx, node.fit); err != nil || orders != node.fit {
			return fmt.Errorf("%s: %d of %d fit, and %d were expected, %w", node.name, orders, len(ids), node.fit, err)
		}
		for _, id := range ids {
			if err := c.caller().Send(ctx, "DELETE", "/api/v1/vm", map[string]string{"id": id}, nil); err != nil {
				return err
			}
		}
		if err := h.leave(ctx); err != nil {
			return err
		}
	}
	return nil
}
