package farm

import "cmp"

// The sentences, with the verbs of fmt, that controller and hypervisor drivers share for what a macOS
// guest cannot have. The comments name their arguments.
const (
	// RefusalMacOSUSB: no argument.
	RefusalMacOSUSB = "USB devices cannot be attached to macOS guests"
	// RefusalMacOSIdentity: no argument.
	RefusalMacOSIdentity = "hardware UUID and serial number of a macOS guest follow from its machine identifier; " +
		"leave them out"
	// RefusalMacOSVideo: the requested controller.
	RefusalMacOSVideo = `video controller %q: macOS guests have "pg"`
	// RefusalMacOSUDP: the name of the port rule.
	RefusalMacOSUDP = "port rule %q: udp cannot be forwarded"
	// RefusalAnkaScreen: no argument.
	RefusalAnkaScreen = "VNC: anka opens no screen on the host; add a port rule for port 5900 of the guest"
	// RefusalCPUs: the requested number and the number that the guest needs.
	RefusalCPUs = "%d virtual CPUs: this guest needs %d"
	// RefusalMemory: the requested MiB and those that the guest needs.
	RefusalMemory = "%d MiB of memory: this guest needs %d"
	// RefusalSuspend: the driver of macOS guests, or the node.
	RefusalSuspend = "%s cannot save a running guest: macOS ties its state to the Mac that made it; save without " +
		"suspend"
	// RefusalSuspendPC: the driver of other guests.
	RefusalSuspendPC = "%s cannot save a running guest on this host; save without suspend"
)

// CheckMacOS returns why a macOS guest cannot be started with the options; nil when it can.
func (r *TemplateRef) CheckMacOS(o *StartOptions) error {
	if r.OS != OSMacOS {
		return nil
	}
	cpus, memoryMB := cmp.Or(o.CPUs, r.CPUs), cmp.Or(o.MemoryMB, r.MemoryMB)
	switch {
	case o.USBDevice != "":
		return Refused(RefusalMacOSUSB)
	case o.HardwareUUID != "" || o.HardwareSerial != "":
		return Refused(RefusalMacOSIdentity)
	case o.Video == VideoVGA:
		return Refused(RefusalMacOSVideo, o.Video)
	case r.AnkaImage && o.VNCPassword != "":
		return Refused(RefusalAnkaScreen)
	case cpus > 0 && cpus < r.MinCPUs:
		return Refused(RefusalCPUs, cpus, r.MinCPUs)
	case memoryMB > 0 && memoryMB < r.MinMemoryMB:
		return Refused(RefusalMemory, memoryMB, r.MinMemoryMB)
	}
	for _, p := range o.Ports {
		if p.Protocol == "udp" {
			return Refused(RefusalMacOSUDP, p.Name)
		}
	}
	return nil
}
