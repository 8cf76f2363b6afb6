package hv

import "github.com/buildyard/buildyard/internal/farm"

// Refusal is a sentence, with the verbs of fmt, for a request that some drivers cannot do.
type Refusal string

// The sentences that drivers share; the controller has some of them as well. The comments name the
// arguments of Error.
const (
	// RefusalSuspend: the driver.
	RefusalSuspend Refusal = farm.RefusalSuspend
	// RefusalSuspendPC: the driver.
	RefusalSuspendPC Refusal = farm.RefusalSuspendPC
	// RefusalMacOSOnly: the driver.
	RefusalMacOSOnly Refusal = "%s runs macOS guests only: the template has no hardware model"
	// RefusalMacOS: the driver.
	RefusalMacOS Refusal = "%s does not run macOS guests: the template has a hardware model"
	// RefusalFormat: the format and the driver.
	RefusalFormat Refusal = "disk format %q: %s cannot use it"
	// RefusalUSB: no argument.
	RefusalUSB Refusal = farm.RefusalMacOSUSB
	// RefusalVLAN: the ID and the driver.
	RefusalVLAN Refusal = "VLAN %d: %s has no VLANs"
	// RefusalNetwork: the network mode.
	RefusalNetwork Refusal = "network mode %q is not possible on this node"
	// RefusalIsolated: the driver.
	RefusalIsolated Refusal = "isolation: %s cannot keep a guest off its host; start it without isolation"
	// RefusalIdentity: no argument.
	RefusalIdentity Refusal = farm.RefusalMacOSIdentity
	// RefusalVideo: the requested controller.
	RefusalVideo Refusal = farm.RefusalMacOSVideo
	// RefusalAnkaScreen: no argument.
	RefusalAnkaScreen Refusal = farm.RefusalAnkaScreen
	// RefusalUDP: the name of the port rule.
	RefusalUDP Refusal = farm.RefusalMacOSUDP
	// RefusalCPUs: the requested number and the number that the guest needs.
	RefusalCPUs Refusal = farm.RefusalCPUs
	// RefusalMemory: the requested MiB and those that the guest needs.
	RefusalMemory Refusal = farm.RefusalMemory
	// RefusalMACInUse: the address and the other VM.
	RefusalMACInUse Refusal = "MAC address %s is in use by VM %s"
	// RefusalGrow: no argument.
	RefusalGrow Refusal = "the disk cannot grow: the recovery partition is behind the system's container"
)

// Error returns an ErrRefused with the sentence.
func (r Refusal) Error(args ...any) error { return RefusedError(string(r), args...) }
