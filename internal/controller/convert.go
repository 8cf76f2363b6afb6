package controller

import (
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// Limits of texts that a node sends, so that no record outgrows the store.
const (
	maxOutput  = 64 << 10
	maxMessage = 4 << 10
	maxField   = 1 << 10
	maxVMPorts = 64
	maxLabel   = 255  // bytes of a name that a node gives something
	maxHave    = 1000 // versions that a node has, and devices

	maxAbilities = 64

	maxCores    = 1 << 16 // of a node or a VM: more is no machine, and sums must not overflow
	maxMemoryMB = 1 << 30
	maxPort     = 1<<16 - 1
)

// within keeps a number between 0 and most, whatever a node says.
func within(n, most int) int { return min(max(n, 0), most) }

// vmOf makes the domain's VM of a node's; what the node leaves out stays as it was.
func vmOf(in *api.LinkVM, old *farm.VMInfo) *farm.VMInfo {
	vm := &farm.VMInfo{
		UUID: tail(in.UUID, maxField), Name: tail(in.Name, maxField), Status: farm.VMStatus(tail(in.Status, maxField)),
		Version: tail(in.Version, maxField), CPUs: within(in.CPUs, maxCores), MemoryMB: within(in.MemoryMB, maxMemoryMB),
		IP: tail(in.IP, maxField), HostIP: tail(in.HostIP, maxField), MAC: tail(in.MAC, maxField),
		VNCPort: within(in.VNCPort, maxPort),
		PID:     in.PID, Accel: tail(in.Accel, maxField), Created: in.Created, Accessed: in.Started, Started: in.Started, Stopped: in.Stopped,
	}
	for _, p := range in.Ports[:min(len(in.Ports), maxVMPorts)] {
		port := farm.Port(p)
		port.Name, port.Protocol, port.HostIP = clip(p.Name, maxLabel), clip(p.Protocol, maxLabel), clip(p.HostIP, maxLabel)
		port.GuestPort, port.HostPort = within(p.GuestPort, maxPort), within(p.HostPort, maxPort)
		vm.Ports = append(vm.Ports, port)
	}
	if old != nil {
		vm.IP, vm.HostIP = firstOf(vm.IP, old.IP), firstOf(vm.HostIP, old.HostIP)
		vm.Name, vm.UUID = firstOf(vm.Name, old.Name), firstOf(vm.UUID, old.UUID)
		if vm.Ports == nil {
			vm.Ports = old.Ports
		}
	}
	return vm
}

func scriptOf(in *api.ScriptStatus) *farm.ScriptResult {
	r := &farm.ScriptResult{
		Code: in.Code, TimedOut: in.TimedOut, Stdout: farm.LastOutput([]byte(in.Stdout), maxOutput, false), Stderr: farm.LastOutput([]byte(in.Stderr), maxOutput, false),
	}
	for _, e := range in.Errors[:min(len(in.Errors), 10)] {
		r.Errors = append(r.Errors, tail(e, maxField))
	}
	return r
}

// tail keeps the last n bytes of a text: of an output the end says what went wrong.
func tail(s string, n int) string { return s[max(0, len(s)-n):] }

func infoOf(node string, in *api.NodeInfo) *farm.NodeInfo {
	info := &farm.NodeInfo{
		NodeID: node, Arch: in.Arch, OS: clip(in.OS, maxLabel), CPUs: within(in.CPUs, maxCores), MemoryMB: within(in.MemoryMB, maxMemoryMB),
		DiskSize: max(in.DiskSize, 0), FreeDisk: max(in.FreeDisk, 0), CacheUsage: max(in.CacheUsage, 0),
		AgentVersion: clip(in.AgentVersion, maxLabel),
		Hypervisor: farm.Hypervisor{
			Driver: clip(in.Driver, maxField), Version: clip(in.Hypervisor, maxField), Accelerator: clip(in.Accelerator, maxField),
			Machine: clip(in.Machine, maxField), CPUModel: clip(in.CPUModel, maxField), HostCPU: clip(in.HostCPU, maxField),
			License: clip(in.License, maxLabel), Expires: clip(in.Expires, maxLabel),
		},
	}
	for _, t := range in.Templates[:min(len(in.Templates), maxHave)] {
		have := farm.NodeTemplate(t)
		have.ID, have.ContentID = clip(t.ID, maxLabel), clip(t.ContentID, maxLabel)
		have.Name, have.Tag = clip(t.Name, maxLabel), clip(t.Tag, maxField)
		info.Templates = append(info.Templates, have)
	}
	for _, u := range in.USB[:min(len(in.USB), maxHave)] {
		device := farm.USBDevice(u)
		device.Name, device.Location = clip(u.Name, maxLabel), clip(u.Location, maxLabel)
		info.USB = append(info.USB, device)
	}
	for _, a := range in.Abilities[:min(len(in.Abilities), maxAbilities)] {
		info.Abilities = append(info.Abilities, clip(a, maxLabel))
	}
	info.VLANs = vlansOf(in.VLANs)
	return info
}

// vlansOf gives the ids of VLANs that there can be, rising.
func vlansOf(ids []int) []int {
	ids = slices.DeleteFunc(slices.Clone(ids[:min(len(ids), farm.MaxVLAN)]), func(id int) bool { return id < 1 || id > farm.MaxVLAN })
	slices.Sort(ids)
	return slices.Compact(ids)
}

// sameInfo says whether two descriptions differ in nothing that is worth a write:
// the disk figures move all the time and are written along with other changes, or
// when they moved by more than a hundredth of the disk.
func sameInfo(a, b *farm.NodeInfo) bool {
	return a.Arch == b.Arch && a.OS == b.OS && a.CPUs == b.CPUs &&
		a.MemoryMB == b.MemoryMB && a.DiskSize == b.DiskSize && a.AgentVersion == b.AgentVersion &&
		a.Hypervisor == b.Hypervisor && slices.Equal(a.Templates, b.Templates) && slices.Equal(a.USB, b.USB) &&
		slices.Equal(a.Abilities, b.Abilities) && slices.Equal(a.VLANs, b.VLANs) &&
		near(a.FreeDisk, b.FreeDisk, a.DiskSize) && near(a.CacheUsage, b.CacheUsage, a.DiskSize)
}

func near(a, b, whole int64) bool { return max(a-b, b-a) <= whole/100 }
