package placement

import (
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Devices returns the USB devices of nodes; those that instances use are busy.
func (p *Placer) Devices(nodes ...string) [][]farm.USBDevice {
	list := make([][]farm.USBDevice, len(nodes))
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, node := range nodes {
		list[i] = p.index.NodeDevices(node)
	}
	return list
}

// ClaimDevice chooses the USB device of a restart, on the node of the instance. The change that it
// returns rewrites the node's record unchanged: so no two transactions that assign devices of one
// node can be decided on the same state of it.
func (p *Placer) ClaimDevice(inst *farm.Instance, o *farm.RestartOptions) (store.Change, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setNodeLocked(inst.NodeID)
	location, has := p.index.RestartDevice(inst.NodeID, inst.ID, *o.USBDevice)
	at := p.nodes[inst.NodeID]
	switch {
	case !has || at.record == nil:
		return store.Change{}, farm.Refused("usb_device %s cannot be attached: node %s does not offer this device",
			*o.USBDevice, inst.NodeName)
	case location == "":
		return store.Change{},
			farm.Refused(
				"usb_device %s cannot be attached: all such devices of node %s are in use; try again when one is free",
				*o.USBDevice, inst.NodeName)
	}
	o.Device = location
	return claim(p.db.Tables, inst.NodeID, at, true), nil
}
