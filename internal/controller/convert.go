package controller

import (
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// Limits of texts. nodeinput bounds the input from nodes before it reaches this package.
const (
	maxOutput = 64 << 10
	maxField  = 1 << 10
	maxLabel  = 255 // bytes of a name
)

// vmOf converts a node's VM to the domain's; a field that the node leaves out stays as it was.
func vmOf(in *api.NodeVM, old *farm.VMInfo) *farm.VMInfo {
	vm := &farm.VMInfo{
		UUID: in.UUID, Name: in.Name, Status: farm.VMStatus(in.Status), Version: in.Version,
		CPUs: in.CPUs, MemoryMB: in.MemoryMB,
		IP: in.IP, HostIP: in.HostIP, MAC: in.MAC, VNCPort: in.VNCPort, PID: in.PID, Accel: in.Accel,
		Created: in.Created, Accessed: in.Started, Started: in.Started, Stopped: in.Stopped,
	}
	for _, p := range in.Ports {
		vm.Ports = append(vm.Ports, farm.Port(p))
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
	return &farm.ScriptResult{
		Code: in.Code, TimedOut: in.TimedOut, Errors: in.Errors,
		Stdout: farm.LastOutput([]byte(in.Stdout), maxOutput, false),
		Stderr: farm.LastOutput([]byte(in.Stderr), maxOutput, false),
	}
}

func infoOf(node string, in *api.NodeInfo) *farm.NodeInfo {
	info := &farm.NodeInfo{
		NodeID: node, Arch: in.Arch, OS: in.OS, CPUs: in.CPUs, MemoryMB: in.MemoryMB,
		DiskSize: in.DiskSize, FreeDisk: in.FreeDisk, CacheUsage: in.CacheUsage, AgentVersion: in.AgentVersion,
		Hypervisor: farm.Hypervisor{
			Driver: in.Driver, Version: in.Hypervisor, Accelerator: in.Accelerator, Machine: in.Machine,
			CPUModel: in.CPUModel, HostCPU: in.HostCPU, License: in.License, Expires: in.Expires,
		},
		Abilities: in.Abilities, VLANs: vlansOf(in.VLANs),
	}
	for _, t := range in.Templates {
		info.Templates = append(info.Templates, farm.NodeTemplate(t))
	}
	for _, u := range in.USB {
		info.USB = append(info.USB, farm.USBDevice(u))
	}
	return info
}

// vlansOf returns the valid VLAN ids, in ascending order.
func vlansOf(ids []int) []int {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id int) bool { return id < 1 || id > farm.MaxVLAN })
	slices.Sort(ids)
	return slices.Compact(ids)
}

// sameInfo reports whether two descriptions have no difference that justifies a write: the disk
// numbers change all the time and are written along with other changes, or when they changed by
// more than a hundredth of the disk.
func sameInfo(a, b *farm.NodeInfo) bool {
	return a.Arch == b.Arch && a.OS == b.OS && a.CPUs == b.CPUs &&
		a.MemoryMB == b.MemoryMB && a.DiskSize == b.DiskSize && a.AgentVersion == b.AgentVersion &&
		a.Hypervisor == b.Hypervisor && slices.Equal(a.Templates, b.Templates) && slices.Equal(a.USB, b.USB) &&
		slices.Equal(a.Abilities, b.Abilities) && slices.Equal(a.VLANs, b.VLANs) &&
		near(a.FreeDisk, b.FreeDisk, a.DiskSize) && near(a.CacheUsage, b.CacheUsage, a.DiskSize)
}

func near(a, b, whole int64) bool { return max(a-b, b-a) <= whole/100 }
