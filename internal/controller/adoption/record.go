package adoption

import (
	"cmp"
	"strconv"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// metadataAdopted marks the instances whose records were created again.
const metadataAdopted = "adopted"

// recordOf creates the record of a VM from its node's details: where it runs, from which version,
// and its state. requested is the record of its instance as it was requested; where it is nil, the
// fields that only the lost record had (names, the external id, the group) stay empty.
func (a *Adoption) recordOf(node *farm.Node, vm record.OrphanedVM, requested *farm.Instance) *farm.Instance {
	now := a.db.Now()
	d := *vm.Detail
	inst := a.newRecord(node.ID, vm)
	if requested != nil {
		inst = requested.Clone()
	}
	inst.NodeID, inst.NodeName, inst.Claim, inst.Updated, inst.Placed = node.ID, node.Name, vm.Held.Claim, now, now
	if is := d.Status.VM; is != nil && !is.Created.IsZero() && is.Created.Before(now) {
		inst.Placed = is.Created
		if requested == nil {
			inst.Created = is.Created
		}
	}
	status := d.Status
	status.No, status.Task = max(1, status.No), nil
	inst = a.o.Apply(inst, status, now)
	// The node is asked for its present status again. That status must count again, since this one
	// came without the output of the scripts.
	inst.StatusNumber = max(1, status.No-1)
	return inst
}

// newRecord creates the record of an instance as it was requested, from its node's details.
func (a *Adoption) newRecord(node string, vm record.OrphanedVM) *farm.Instance {
	inst := &farm.Instance{
		ID: vm.Held.InstanceID, Metadata: map[string]any{metadataAdopted: true}, State: farm.Scheduling,
		Template: a.templateOf(node, *vm.Detail), Options: farm.StartOptions{Priority: farm.DefaultPriority},
		Owner: "root", Registry: a.o.Registry, Created: a.db.Now(),
	}
	if start := vm.Detail.Start; start != nil {
		inst.Options = optionsOf(start)
		if start.Machine != nil {
			inst.USBLocation = start.Machine.USBDevice
		}
		inst.Registry = cmp.Or(start.Registry, inst.Registry)
	}
	return inst
}

// templateOf returns the version that a VM was started from, as far as its node or another one has
// it cached.
func (a *Adoption) templateOf(node string, d api.InventoryDetail) farm.TemplateRef {
	ref := farm.TemplateRef{ContentID: d.ContentID, Arch: "amd64", CPUs: 1}
	if info, _, ok := a.db.Tables.Infos.Get(node); ok {
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
	for _, info := range a.db.Tables.Infos.All() {
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
			farm.ScriptFailureAction(s.OnFailure)
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
