package controller

import (
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
