package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
)

// bearing is what a node keeps over restarts and absences of its program.
type bearing struct {
	ID, Name, Mode       string
	Groups               []api.Group
	Capacity, VCPUs, RAM int
}

func bearingOf(n api.Node) bearing {
	return bearing{
		ID: n.NodeID, Name: n.NodeName, Mode: n.CapacityMode, Groups: n.Groups, Capacity: n.Capacity,
		VCPUs: n.VCPUOverride, RAM: n.RAMOverride,
	}
}

// configured puts a node into a separate group and sets its capacity and overrides.
func (c *cloud) configured(ctx context.Context, node any) (bearing, error) {
	var group api.Group
	call := c.caller()
	if err := call.Send(ctx, "POST", "/api/v1/group", map[string]string{"name": "of-one-that-is-lost"},
		&group); err != nil {
		return bearing{}, err
	}
	if err := call.Send(ctx, "POST", "/api/v1/node/group",
		map[string]any{"group_ids": []string{group.ID}, "node_ids": []any{node}}, nil); err != nil {
		return bearing{}, err
	}
	config := map[string]any{
		"node_id": node, "max_vm_count": 9, "capacity_mode": "resource", "vcpu_override": 7,
		"ram_override": 2048,
	}
	if err := call.Send(ctx, "POST", "/api/v1/node/config", config, nil); err != nil {
		return bearing{}, err
	}
	n, err := c.awaitNode(ctx, node, func(n api.Node) bool { return n.VCPUOverride == 7 })
	if len(n.Groups) != 1 || n.Capacity != 9 {
		err = errors.Join(err, fmt.Errorf("node %s was configured and shows %v and %d", n.NodeName, n.Groups,
			n.Capacity))
	}
	return bearingOf(n), err
}

// lostNode takes a node away for a moment, and then until it is Offline.
func lostNode(ctx context.Context, p *caseRunner) error {
	c := p.stage.clouds["split"]
	id, node := "", c.fleets["lost"]
	before, err := c.configured(ctx, c.vars["node_lost"])
	if err != nil {
		return err
	}
	if id, err = c.start(ctx, "node_lost", "Started"); err != nil {
		return err
	}
	for _, away := range []string{"Active", "Offline"} {
		if err := node.Kill(); err != nil {
			return err
		}
		killed := time.Now()
		if away == "Offline" {
			if err := c.offline(ctx, id); err != nil {
				return err
			}
		}
		if err := node.Start(); err != nil {
			return err
		}
		back, err := c.awaitNode(ctx, c.vars["node_lost"],
			func(n api.Node) bool { return n.State == "Active" && n.LastUpdated.After(killed) })
		if err != nil {
			return err
		}
		if after := bearingOf(back); !reflect.DeepEqual(before, after) {
			return fmt.Errorf("a node that was %s came back as %+v and was %+v", away, after, before)
		}
		if err := c.remains(ctx, id, func(i api.Instance) bool {
			return i.Message == "" && i.VMInfo != nil &&
				i.VMInfo.Status == "running"
		}); err != nil {
			return fmt.Errorf("its node was %s and is back: %w", away, err)
		}
	}
	return c.caller().Send(ctx, "DELETE", "/api/v1/vm", map[string]string{"id": id}, nil)
}

// offline waits until the lost node is Offline, and sees that its instance stays Started
// with a message, and that other nodes are Active.
func (c *cloud) offline(ctx context.Context, id string) error {
	began := time.Now()
	if _, err := c.awaitNode(ctx, c.vars["node_lost"],
		func(n api.Node) bool { return n.State == "Offline" }); err != nil {
		return err
	}
	// the last contact was at most 6 s ago, and the time-out is 8 s
	if took := time.Since(began); took < 2*time.Second {
		return fmt.Errorf("a node is Offline after %s", took)
	}
	if _, err := c.awaitNode(ctx, c.vars["node_slow"],
		func(n api.Node) bool { return n.State == "Active" }); err != nil {
		return err
	}
	return c.remains(ctx, id, func(i api.Instance) bool { return i.Message != "" && i.VMInfo != nil })
}

// remains waits until an instance, which is Started all the time, is as wanted.
func (c *cloud) remains(ctx context.Context, id string, so func(api.Instance) bool) error {
	other := ""
	err := c.await(ctx, id, func(i api.Instance) bool {
		if i.InstanceState != "Started" {
			other = i.InstanceState
		}
		return other != "" || so(i)
	})
	if other != "" {
		return fmt.Errorf("instance %s is %q", id, other)
	}
	return err
}

// goneNode stops a node for longer than instances wait for it. One instance is terminated during
// that; the other is in Error permanently.
func goneNode(ctx context.Context, p *caseRunner) error {
	c := p.stage.clouds["split"]
	ids, failed := make([]string, 2), func(i api.Instance) bool {
		return i.InstanceState == "Error" && i.Message != "" && i.VMInfo != nil && i.VMInfo.UUID != ""
	}
	for i := range ids {
		var err error
		if ids[i], err = c.start(ctx, "node_gone", "Started"); err != nil {
			return err
		}
	}
	if err := c.fleets["gone"].Kill(); err != nil {
		return err
	}
	for _, id := range ids {
		if err := c.await(ctx, id, failed); err != nil {
			return err
		}
	}
	if err := c.caller().Send(ctx, "DELETE", "/api/v1/vm", map[string]string{"id": ids[0]}, nil); err != nil {
		return err
	}
	time.Sleep(time.Second)
	if err := c.await(ctx, ids[0], func(i api.Instance) bool { return i.InstanceState == "Terminating" }); err != nil {
		return fmt.Errorf("its node is away: %w", err)
	}
	if err := c.fleets["gone"].Start(); err != nil {
		return err
	}
	if err := c.await(ctx, ids[0], gone); err != nil {
		return fmt.Errorf("its node is back: %w", err)
	}
	var last api.Instance
	if err := c.await(ctx, ids[1], func(i api.Instance) bool { last = i; return true }); err != nil || !failed(last) {
		return fmt.Errorf("its node is back, and an instance in Error is %s with %q: %w", last.InstanceState,
			last.Message, err)
	}
	return c.caller().Send(ctx, "DELETE", "/api/v1/vm", map[string]string{"id": ids[1]}, nil)
}

// awaitNode looks at a node until it is as wanted, and returns it.
func (c *cloud) awaitNode(ctx context.Context, id any, so func(api.Node) bool) (n api.Node, err error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		var list []api.Node
		if err := c.caller().Send(ctx, "GET", fmt.Sprint("/api/v1/node?id=", id), nil, &list); err != nil {
			return n, err
		}
		if i := slices.IndexFunc(list, so); i >= 0 {
			return list[i], nil
		}
		if len(list) == 1 {
			n = list[0]
		}
		time.Sleep(pause)
	}
	return n, fmt.Errorf("node %v stays %s (%s)", id, n.State, n.StateReason)
}
