package controller

import (
	"context"
	"errors"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// USB returns the number of devices of each claim name, or location where a claim has no name, on
// all nodes that are not Offline and that the caller sees, and the number that instances use.
func (c *Controller) USB(sees func(node string) bool) map[string]farm.USBCount {
	counts := map[string]farm.USBCount{}
	c.placer.mu.Lock()
	defer c.placer.mu.Unlock()
	for id, node := range c.tables.Nodes.All() {
		if node.State == farm.NodeOffline || !sees(id) {
			continue
		}
		for _, d := range c.placer.index.Devices(id) {
			name := firstOf(d.Name, d.Location)
			n := counts[name]
			if d.Busy {
				n.Busy++
			} else {
				n.Available++
			}
			counts[name] = n
		}
	}
	return counts
}

// devices returns the USB devices of one node; those that instances use are busy.
func (c *Controller) devices(node string) []farm.USBDevice {
	c.placer.mu.Lock()
	defer c.placer.mu.Unlock()
	return c.placer.index.Devices(node)
}

// Restart requests a forced stop and a new start of an instance's VM from its node.
func (c *Controller) Restart(ctx context.Context, id string, o farm.RestartOptions) error {
	inst, err := c.latest(ctx, id)
	if err != nil {
		return err
	}
	if err := mayBegin(inst, farm.Restart); err != nil {
		return err
	}
	task := &farm.Task{ID: record.NewID(), Kind: farm.TaskRestart, Restart: &o}
	if o.USBDevice == nil {
		return c.begin(ctx, id, farm.Restart, task)
	}
	for attempt := range statusAttempts {
		if attempt > 0 {
			if err := c.db.UpToDate(ctx); err != nil {
				return err
			}
		}
		touch, err := c.device(inst, task.Restart)
		if err != nil {
			return err
		}
		if err = c.begin(ctx, id, farm.Restart, task, touch); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return store.ErrConflict
}

// device chooses the USB device of a restart, on the node of the instance. The change that it
// returns rewrites the node's record unchanged: so no two transactions that assign devices of one
// node can be decided on the same state of it.
func (c *Controller) device(inst *farm.Instance, o *farm.RestartOptions) (store.Change, error) {
	p := c.placer
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setNodeLocked(inst.NodeID)
	location, has := p.index.Device(inst.NodeID, inst.ID, *o.USBDevice)
	at := p.nodes[inst.NodeID]
	switch {
	case !has || at.record == nil:
		return store.Change{}, farm.Refused("usb_device %s cannot be attached: node %s offers no such device", *o.USBDevice, inst.NodeName)
	case location == "":
		return store.Change{}, farm.Refused("usb_device %s cannot be attached: every such device of node %s is in use; try again when one is free", *o.USBDevice, inst.NodeName)
	}
	o.Device = location
	return store.Put(c.tables.Nodes, inst.NodeID, at.record, store.IfRev(at.rev)), nil
}

// deviceOf returns the USB field of a restart order: nil, or the location of the chosen device.
func deviceOf(o *farm.RestartOptions) *string {
	if o.USBDevice == nil || o.Device == "" {
		return o.USBDevice
	}
	return &o.Device
}

// claims returns the change that goes with placements on a node: a check that its record is the one
// that they were decided on. Placements that assign devices rewrite it instead, so that the next
// ones see them.
func (c *Controller) claims(node string, at indexedNode, devices bool) store.Change {
	if devices {
		return store.Put(c.tables.Nodes, node, at.record, store.IfRev(at.rev))
	}
	return store.Check(c.tables.Nodes, node, store.IfRev(at.rev))
}
