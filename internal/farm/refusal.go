package farm

import "cmp"

// The sentences, with the verbs of fmt, that controller and hypervisor drivers share for what a macOS
// guest cannot have. The comments name their arguments.
const (
	// RefusalMacUSB has none.
	RefusalMacUSB = "USB devices cannot be attached to macOS guests"
	// RefusalMacIdentity has none.
	RefusalMacIdentity = "hardware UUID and serial number of a macOS guest follow from its machine identifier; leave " +
		"them out"
	// RefusalMacVideo has the requested controller.
	RefusalMacVideo = `video controller %q: macOS guests have "pg"`
	// RefusalMacUDP has the name of the port rule.
	RefusalMacUDP = "port rule %q: udp cannot be forwarded"
	// RefusalAnkaScreen has none.
	RefusalAnkaScreen = "VNC: anka opens no screen on the host; add a port rule for port 5900 of the guest"
	// RefusalCPUs has the requested number and the number that the guest needs.
	RefusalCPUs = "%d virtual CPUs: this guest needs %d"
	// RefusalMemory has the requested MiB and those that the guest needs.
	RefusalMemory = "%d MiB of memory: this guest needs %d"
	// RefusalSuspend has the driver, or the node.
	RefusalSuspend = "%s cannot save a running guest: macOS ties its state to the Mac that made it; save without " +
		"suspend"
)

// CheckMacOS returns why a macOS guest cannot be started with the options; nil when it can.
func (r *TemplateRef) CheckMacOS(o *StartOptions) error {
	if r.OS != OSMacOS {
		return nil
	}
	cpus, memoryMB := cmp.Or(o.CPUs, r.CPUs), cmp.Or(o.MemoryMB, r.MemoryMB)
	switch {
	case o.USBDevice != "":
		return Refused(RefusalMacUSB)
	case o.HardwareUUID != "" || o.HardwareSerial != "":
		return Refused(RefusalMacIdentity)
	case o.Video == VideoVGA:
		return Refused(RefusalMacVideo, o.Video)
	case r.AnkaImage && o.VNCPassword != "":
		return Refused(RefusalAnkaScreen)
	case cpus > 0 && cpus < r.MinCPUs:
		return Refused(RefusalCPUs, cpus, r.MinCPUs)
	case memoryMB > 0 && memoryMB < r.MinMemoryMB:
		return Refused(RefusalMemory, memoryMB, r.MinMemoryMB)
	}
	for _, p := range o.Ports {
		if p.Protocol == "udp" {
			return Refused(RefusalMacUDP, p.Name)
		}
	}
	return nil
}
