package agent

import (
	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv"
)

// maxDetails limits the instances that one poll describes on the controller's request.
const maxDetails = 200

// inventoryDetails describes the instances and VMs of this node with the given IDs. IDs that the node no
// longer has are left out.
func (a *Agent) inventoryDetails(ids []string) []api.InventoryDetail {
	if len(ids) == 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	strays := make(map[string]hv.VM, len(a.listedVMs))
	for _, vm := range a.listedVMs {
		if a.isForeign(vm.Labels[labelNode]) || isTestVM(vm) {
			continue
		}
		if id := vm.Labels[labelInstance]; id != "" {
			strays[id] = vm
		} else {
			strays[vm.ID] = vm
		}
	}
	var list []api.InventoryDetail
	for _, id := range ids[:min(len(ids), maxDetails)] {
		if in := a.instances[id]; in != nil && !in.foreign {
			list = append(list, in.inventoryDetail())
		} else if vm, ok := strays[id]; ok {
			list = append(list, a.orphanDetail(id, vm))
		}
	}
	return list
}

// inventoryDetail describes an instance of the journal. The output of its scripts is part of its next status.
func (in *instance) inventoryDetail() api.InventoryDetail {
	status, _ := in.status()
	status.Task = nil
	if status.Script != nil {
		script := *status.Script
		script.Stdout, script.Stderr, script.Errors = "", "", nil
		status.Script = &script
	}
	d := api.InventoryDetail{ID: in.id, Ending: in.snapshot().Ending, Status: status}
	if in.order.Start != nil {
		d.ContentID, d.Start = in.order.Start.ContentID, withoutPrivateFields(*in.order.Start)
	}
	return d
}

// withoutPrivateFields returns a start order without the secrets and texts that only its node needs.
func withoutPrivateFields(o api.StartOrder) *api.StartOrder {
	if o.Script != nil {
		script := *o.Script
		script.Text = nil
		o.Script = &script
	}
	if o.Machine != nil {
		machine := *o.Machine
		machine.VNCPassword = ""
		o.Machine = &machine
	}
	return &o
}

// orphanDetail describes a VM that is missing in the journal.
func (a *Agent) orphanDetail(id string, vm hv.VM) api.InventoryDetail {
	phase := api.PhaseStopped
	if vm.Status == hv.Running {
		phase = api.PhaseRunning
	}
	return api.InventoryDetail{
		ID: id, ContentID: vm.Labels[labelContent],
		Status: api.InstanceStatus{
			InstanceID: id, Claim: vm.Labels[labelClaim], No: 1, Phase: phase, VM: a.linkVM(vm),
		},
	}
}
