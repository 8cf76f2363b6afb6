package controllerrest

import (
	"cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodes"
	"github.com/buildyard/buildyard/internal/farm"
)

func slotsToAPI(s nodes.Slots) api.Slots {
	return api.Slots{
		Capacity: s.Capacity, Running: s.Running, Failed: s.Failed, Orphaned: s.Orphaned, Other: s.Other,
		Free: s.Free(),
	}
}

// slotUses are the uses of slots as clients see them. A VM without an instance is orphaned.
var slotUses = map[farm.SlotUse]string{
	farm.SlotRunning: api.SlotRunning, farm.SlotFailed: api.SlotFailed, farm.SlotOther: api.SlotOther,
	farm.SlotUnused: api.SlotOrphaned,
}

// slotHoldersToAPI converts holders to their API form. An instance that the caller may not list, and an orphaned VM for
// a caller that may not list those, has no IDs and no name.
func (s *server) slotHoldersToAPI(
	list []nodes.SlotHolder, lists func(*farm.Instance) bool, listsOrphans bool,
) []api.SlotHolder {
	out := make([]api.SlotHolder, len(list))
	for i, h := range list {
		out[i] = api.SlotHolder{Use: slotUses[h.Use]}
		if inst := h.Instance; inst != nil {
			out[i].State, out[i].Since = string(inst.State), inst.Placed
			if inst.IsStandby() { // no instance of a client
				out[i].Name, out[i].VMID = "standby of pool "+s.controller.Pools.Name(inst.Pool), h.VMID()
				continue
			}
			if lists(inst) {
				out[i].InstanceID, out[i].Name, out[i].VMID = inst.ID, cmp.Or(inst.Name, inst.ExternalID), h.VMID()
				out[i].Fill = s.controller.Link.DiskFill(inst.NodeID, inst.ID)
			}
			continue
		}
		vm := orphanedVMToAPI(h.Orphan)
		out[i].Since = vm.Since
		if listsOrphans {
			out[i].InstanceID, out[i].Name, out[i].VMID = vm.InstanceID, vm.Name, h.VMID()
		}
	}
	return out
}
