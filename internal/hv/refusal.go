package hv

// Refusal is a sentence, with the verbs of fmt, for a request that some drivers cannot do.
type Refusal string

// The sentences that drivers share. The comments name their arguments.
const (
	// RefusalSuspend has the driver.
	RefusalSuspend Refusal = "%s cannot save a running guest: macOS ties its state to the Mac that made it; " +
		"save without suspend"
	// RefusalNotMac has the driver.
	RefusalNotMac Refusal = "%s runs macOS guests only: the template has no hardware model"
	// RefusalMac has the driver.
	RefusalMac Refusal = "%s does not run macOS guests: the template has a hardware model"
	// RefusalUSB has none.
	RefusalUSB Refusal = "USB devices cannot be attached to macOS guests"
	// RefusalVLAN has the ID and the driver.
	RefusalVLAN Refusal = "VLAN %d: %s has no VLANs"
	// RefusalNetwork has the network mode.
	RefusalNetwork Refusal = "network mode %q is not possible on this node"
	// RefusalIsolated has the driver.
	RefusalIsolated Refusal = "an isolated guest: %s leaves the host's gateway open"
	// RefusalIdentity has none.
	RefusalIdentity Refusal = "hardware UUID and serial number of a macOS guest follow from its machine " +
		"identifier; leave them out"
	// RefusalVideo has the requested controller.
	RefusalVideo Refusal = "video controller %q: macOS guests have \"" + VideoVirtIO + "\""
	// RefusalUDP has the name of the port rule.
	RefusalUDP Refusal = "port rule %q: udp cannot be forwarded"
	// RefusalCPUs has the requested number and the number that the guest needs.
	RefusalCPUs Refusal = "%d virtual CPUs: this guest needs %d"
	// RefusalMemory has the requested MiB and those that the guest needs.
	RefusalMemory Refusal = "%d MiB of memory: this guest needs %d"
	// RefusalMACInUse has the address and the other VM.
	RefusalMACInUse Refusal = "MAC address %s is in use by VM %s"
	// RefusalGrow has none.
	RefusalGrow Refusal = "the disk cannot grow: the recovery partition is behind the system's container"
)

// Error returns an ErrRefused with the sentence.
func (r Refusal) Error(args ...any) error { return RefusedError(string(r), args...) }
