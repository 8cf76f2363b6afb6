package controller

import (
	"strconv"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/instancestatus"
	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/farm"
)

// metadataAdopted marks the instances whose records were created again.
const metadataAdopted = "adopted"

// recordOf creates the record of a VM from its node's details: where it runs, from which version,
// and its state. asked is the record of its instance as it was requested; where it is nil, the
// fields that only the lost record had (names, the external id, the group) stay empty.
func (c *Controller) recordOf(node *farm.Node, u nodelink.OrphanedVM, asked *farm.Instance) *farm.Instance {
	now := c.now()
	d := *u.Detail
	inst := c.newRecord(node.ID, u)
	if asked != nil {
		inst = asked.Clone()
	}
	inst.NodeID, inst.NodeName, inst.Claim, inst.Updated, inst.Placed = node.ID, node.Name, u.Held.Claim, now, now
	if vm := d.Status.VM; vm != nil && !vm.Created.IsZero() && vm.Created.Before(now) {
		inst.Placed = vm.Created
		if asked == nil {
			inst.Created = vm.Created
		}
	}
	status := d.Status
	status.No, status.Task = max(1, status.No), nil
	inst = instancestatus.Apply(inst, status, now)
	// The node is asked for its present status again. That status must count again, since this one
	// came without the output of the scripts.
	inst.StatusNo = max(1, status.No-1)
	return inst
}

// newRecord creates the record of an instance as it was requested, from its node's details.
func (c *Controller) newRecord(node string, u nodelink.OrphanedVM) *farm.Instance {
	inst := &farm.Instance{
		ID: u.Held.InstanceID, Metadata: map[string]any{metadataAdopted: true}, State: farm.Scheduling,
		Template: c.templateOf(node, *u.Detail), Options: farm.StartOptions{Priority: farm.DefaultPriority},
		Owner: "root", Registry: c.opts.RegistryAddress, Created: c.now(),
	}
	if start := u.Detail.Start; start != nil {
		inst.Options = optionsOf(start)
		if start.Machine != nil {
			inst.USB = start.Machine.USBDevice
		}
		inst.Registry = firstOf(start.Registry, inst.Registry)
	}
	return inst
}

// templateOf returns the version that a VM was started from, as far as its node or another one has
// it cached.
func (c *Controller) templateOf(node string, d api.InventoryDetail) farm.TemplateRef {
	ref := farm.TemplateRef{ContentID: d.ContentID, Arch: "amd64", CPUs: 1}
	if info, _, ok := c.tables.Infos.Get(node); ok {
		ref.Arch = info.Arch
	}
	if vm := d.Status.VM; vm != nil {
		ref.CPUs, ref.MemoryMB = max(1, vm.CPUs), max(0, vm.MemoryMB)
	}
	if o := d.Start; o != nil {
		ref.ID, ref.Name, ref.Tag = o.TemplateID, o.TemplateName, o.Tag
		ref.Version = max(0, o.Version)
		return ref
	}
	for _, info := range c.tables.Infos.All() {
		for _, t := range info.Templates {
			if t.ContentID == ref.ContentID {
				ref.ID, ref.Name, ref.Tag, ref.Size = t.ID, t.Name, t.Tag, t.Size
				return ref
			}
		}
	}
	return ref
}

// optionsOf returns the options of a start order; it is the reverse of startOrder, except for the
// script and the passwords, which stay on the node.
func optionsOf(o *api.StartOrder) farm.StartOptions {
	out := farm.StartOptions{Priority: farm.DefaultPriority, PortOverride: o.PortOverride}
	for _, p := range o.Ports {
		out.Ports = append(out.Ports, farm.Port(p))
	}
	if s := o.Script; s != nil {
		out.ScriptMonitoring, out.ScriptTimeout, out.ScriptOnFailure = s.Monitoring, s.Timeout,
			farm.OnFailure(s.OnFailure)
		if s.AtBoot {
			out.ScriptCondition = 1
		}
	}
	if m := o.Machine; m != nil {
		out.CPUs, out.MemoryMB, out.DiskBytes, out.KeepFileSystem = m.CPUs, m.MemoryMB, m.DiskBytes, m.KeepFileSys
		out.MACAddress, out.HardwareUUID, out.HardwareSerial = m.MAC, m.HardwareUUID, m.Serial
		out.Video, out.NetworkMode, out.NetworkLocal = m.Video, m.Network, m.NetworkLocal
		out.USBDevice = m.USB
		if m.VLAN > 0 && m.VLAN <= farm.MaxVLAN {
			out.VLAN = strconv.Itoa(m.VLAN)
		}
	}
	return out
}
