package hv

import (
	"slices"
	"strings"
)

// Slots on the PCI bus of PCs. Saved states depend on them.
const (
	PCISlotVideo     = 0x1
	PCISlotNetwork   = 0x4
	PCISlotUSB       = 0x5
	PCISlotFirstDisk = 0x8 // the slots from here on suffice for MaxDisks
)

// PC is the part of a Spec that only PCs have. Its fields keep the names that they have in stored
// records, where they are next to those of Spec.
//
// Copies of a Spec share it: read it with Spec.PCSettings, and change it through Spec.EditPC.
type PC struct {
	// What the guest sees of its machine. With a State, "" is what the state requires and anything
	// else is refused; see WithDefaults.
	HardwareUUID string `json:",omitempty"` // machine UUID; "" = UUID. Two VMs of a host may have the same
	Serial       string `json:",omitempty"` // serial number, at most MaxSerialBytes bytes; "" = none
	Video        string `json:",omitempty"` // "" = VideoVGA

	USB      []USBDevice `json:",omitempty"` // attached once the guest is ready; at most MaxUSBDevices
	Firmware string      // "" = FirmwareBIOS
}

// PCSettings returns the part of a PC, which is empty for a VM of another kind.
func (s Spec) PCSettings() PC {
	if s.PC == nil {
		return PC{}
	}
	return *s.PC
}

// EditPC returns the part of a PC for changing it. Other copies of the spec do not change with it.
func (s *Spec) EditPC() *PC {
	own := s.PCSettings()
	own.USB = slices.Clone(own.USB)
	s.PC = &own
	return s.PC
}

// isEmpty reports whether nothing was asked for.
func (p *PC) isEmpty() bool {
	return p == nil || (p.HardwareUUID == "" && p.Serial == "" && p.Video == "" && len(p.USB) == 0 && p.Firmware == "")
}

// validate validates what the guest sees of a PC, and its devices.
func (p *PC) validate() error {
	switch {
	case p == nil:
		return nil
	case p.HardwareUUID != "" && !uuidPattern.MatchString(p.HardwareUUID):
		return RefusedError("hardware UUID %q is not a UUID", p.HardwareUUID)
	case len(p.Serial) > MaxSerialBytes || !asciiPattern.MatchString(p.Serial):
		return RefusedError("serial number %q: at most %d printable ASCII characters", p.Serial, MaxSerialBytes)
	case p.Video != "" && p.Video != VideoVGA && p.Video != VideoVirtIO:
		return RefusedError("video controller %q: %s (standard VGA) or %s (virtio-gpu)", p.Video, VideoVGA, VideoVirtIO)
	}
	return validateUSB(p.USB)
}

func validateUSB(devices []USBDevice) error {
	if len(devices) > MaxUSBDevices {
		return RefusedError("%d USB devices: want at most %d", len(devices), MaxUSBDevices)
	}
	seen := map[string]bool{}
	for _, d := range devices {
		_, emulated := d.Emulated()
		switch {
		case emulated && emulatedPattern.MatchString(d.Location):
		case emulated || !usbPattern.MatchString(d.Location):
			return RefusedError("USB device %q: a location such as 1-2.3 (bus 1, port 2, port 3 of the hub there)",
				d.Location)
		case seen[d.Location]:
			return RefusedError("USB device %s is requested twice", d.Location)
		}
		seen[d.Location] = true
	}
	return nil
}

// USBDevice is a device of the host to attach to a VM.
type USBDevice struct {
	// Location is "<bus>-<port>[.<port>...]" of a device of the host, in the kernel's notation, or
	// "emulated:<kind>" for one that the hypervisor emulates, for tests.
	Location string
}

// Emulated returns the kind of a device that the hypervisor emulates.
func (d USBDevice) Emulated() (kind string, ok bool) {
	return strings.CutPrefix(d.Location, emulatedPrefix)
}
