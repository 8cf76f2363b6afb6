package controller

import (
	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// pinned are the parameters of a start that a saved state fixes: it can be loaded only into the
// same virtual hardware.
var pinned = []struct {
	name  string
	given func(o farm.StartOptions) bool
}{
	{"vcpu", func(o farm.StartOptions) bool { return o.CPUs != 0 }},
	{"vram", func(o farm.StartOptions) bool { return o.MemoryMB != 0 }},
	{"mac_address", func(o farm.StartOptions) bool { return o.MACAddress != "" }},
	{"vlan_tag", func(o farm.StartOptions) bool { return o.VLAN != "" }},
	{"network_mode", func(o farm.StartOptions) bool { return o.NetworkMode != "" }},
	{"video_controller", func(o farm.StartOptions) bool { return o.Video != "" }},
	{"hw_serial", func(o farm.StartOptions) bool { return o.HardwareSerial != "" }},
	{"hw_uuid", func(o farm.StartOptions) bool { return o.HardwareUUID != "" }},
}

// checkPinned refuses changes by a start that a suspended version does not allow.
func checkPinned(ref farm.TemplateRef, o farm.StartOptions) error {
	if !ref.Suspended {
		return nil
	}
	for _, p := range pinned {
		if p.given(o) {
			return farm.Refused("%s cannot be set: version %s of template %s is suspended, which pins it; leave it out, or start a version that was saved stopped",
				p.name, ref.Tag, ref.Name)
		}
	}
	return nil
}

// pin sets the requirements of a saved state on a node, and the size of the virtual hardware in
// which it was saved.
func pin(ref *farm.TemplateRef, p *api.StateRequirements) {
	if !ref.Suspended || p == nil {
		return
	}
	ref.Needs = farm.StateRequirements{
		Driver: farm.Clip(p.Driver, maxField), Version: farm.Clip(p.Version, maxField), Machine: farm.Clip(p.Machine, maxField),
		Accelerator: farm.Clip(p.Accelerator, maxField), CPU: farm.Clip(p.CPU, maxField), HostCPU: farm.Clip(p.HostCPU, maxField),
	}
	if p.CPUs > 0 && p.MemoryMB > 0 {
		ref.CPUs, ref.MemoryMB = p.CPUs, p.MemoryMB
	}
}
