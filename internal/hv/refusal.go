package hv

import "github.com/buildyard/buildyard/internal/farm"

// Refusal is a sentence, with the verbs of fmt, for a request that some drivers cannot do.
type Refusal string

// The sentences that drivers share; the controller has some of them as well. The comments name their
// arguments.
const (
	// RefusalSuspend has the driver.
	RefusalSuspend Refusal = farm.RefusalSuspend
	// RefusalNotMac has the driver.
	RefusalNotMac Refusal = "%s runs macOS guests only: the template has no hardware model"
	// RefusalMac has the driver.
	RefusalMac Refusal = "%s does not run macOS guests: the template has a hardware model"
	// RefusalFormat has the format and the driver.
	RefusalFormat Refusal = "disk format %q: %s cannot use it"
	// RefusalUSB has none.
	RefusalUSB Refusal = farm.RefusalMacUSB
	// RefusalVLAN has the ID and the driver.
	RefusalVLAN Refusal = "VLAN %d: %s has no VLANs"
	// RefusalNetwork has the network mode.
	RefusalNetwork Refusal = "network mode %q is not possible on this node"
	// RefusalIsolated has the driver.
	RefusalIsolated Refusal = "an isolated guest: %s leaves the host's gateway open"
	// RefusalIdentity has none.
	RefusalIdentity Refusal = farm.RefusalMacIdentity
	// RefusalVideo has the requested controller.
	RefusalVideo Refusal = farm.RefusalMacVideo
	// RefusalAnkaScreen has none.
	RefusalAnkaScreen Refusal = farm.RefusalAnkaScreen
	// RefusalUDP has the name of the port rule.
	RefusalUDP Refusal = farm.RefusalMacUDP
	// RefusalCPUs has the requested number and the number that the guest needs.
	RefusalCPUs Refusal = farm.RefusalCPUs
	// RefusalMemory has the requested MiB and those that the guest needs.
	RefusalMemory Refusal = farm.RefusalMemory
	// RefusalMACInUse has the address and the other VM.
	RefusalMACInUse Refusal = "MAC address %s is in use by VM %s"
	// RefusalGrow has none.
	RefusalGrow Refusal = "the disk cannot grow: the recovery partition is behind the system's container"
)

// Error returns an ErrRefused with the sentence.
func (r Refusal) Error(args ...any) error { return RefusedError(string(r), args...) }
