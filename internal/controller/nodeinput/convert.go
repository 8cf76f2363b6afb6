package nodeinput

import (
	"cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// maxOutput bounds stdout and stderr of a startup script, the last bytes of each.
const maxOutput = 64 << 10

// maxLiveOutput bounds the same of a script that runs. It is part of a record that is written again and again.
const maxLiveOutput = 16 << 10

// VMInfo converts a VM to the form of its instance's record; a field that the node leaves out stays as it
// was.
func VMInfo(in *api.NodeVM, old *farm.VMInfo) *farm.VMInfo {
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
		vm.IP, vm.HostIP = cmp.Or(vm.IP, old.IP), cmp.Or(vm.HostIP, old.HostIP)
		vm.Name, vm.UUID = cmp.Or(vm.Name, old.Name), cmp.Or(vm.UUID, old.UUID)
		if vm.Ports == nil {
			vm.Ports = old.Ports
		}
	}
	return vm
}

// ScriptOutput converts the output of a script that runs to the form of its record.
func ScriptOutput(in *api.ScriptOutput) *farm.ScriptOutput {
	if in == nil {
		return nil
	}
	return &farm.ScriptOutput{
		Stdout: farm.LastOutput([]byte(in.Stdout), maxLiveOutput, false),
		Stderr: farm.LastOutput([]byte(in.Stderr), maxLiveOutput, false),
	}
}

// ScriptResult converts the result of a script to the form of its record, with the end of its output.
func ScriptResult(in *api.ScriptStatus) *farm.ScriptResult {
	return &farm.ScriptResult{
		ExitCode: in.Code, TimedOut: in.TimedOut, Errors: in.Errors,
		Stdout: farm.LastOutput([]byte(in.Stdout), maxOutput, false),
		Stderr: farm.LastOutput([]byte(in.Stderr), maxOutput, false),
	}
}
