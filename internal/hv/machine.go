package hv

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Limits of the machine that a guest sees.
const (
	MaxDiskBytes        = 64 << 40 // 64 TiB
	MaxSerialBytes      = 64       // bytes
	MaxVNCPasswordBytes = 8        // bytes; the protocol uses no more
	MaxUSBDevices       = 4        // devices of a VM
)

// emulatedPrefix begins the location of a USB device that the hypervisor emulates.
const emulatedPrefix = "emulated:"

var (
	macPattern      = regexp.MustCompile(`^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$`)
	usbPattern      = regexp.MustCompile(`^[1-9][0-9]{0,2}-[1-9][0-9]{0,2}(\.[1-9][0-9]{0,2}){0,6}$`)
	emulatedPattern = regexp.MustCompile(`^` + emulatedPrefix + `[a-z]{1,16}$`)
	asciiPattern    = regexp.MustCompile(`^[ -~]*$`)
)

// NetworkKind is the kind of network behind the card of a mode, which a state depends on: "user",
// "tap", "none"; "" for an unknown mode.
func (m NetworkMode) NetworkKind() string {
	switch m {
	case "", NetworkShared, NetworkNAT, NetworkHost:
		return "user"
	case NetworkBridge:
		return "tap"
	case NetworkDisconnected:
		return "none"
	}
	return ""
}

// validateMachine validates what the guest sees of its machine, and its screen, devices and
// network. The texts never contain a password.
func (s Spec) validateMachine() error {
	kind := s.Network.NetworkKind()
	switch {
	case s.DiskBytes < 0 || s.DiskBytes > MaxDiskBytes:
		return RefusedError("a disk of %d bytes: want 0 (the size of its image) to %d (64 TiB)", s.DiskBytes,
			int64(MaxDiskBytes))
	case kind == "":
		return RefusedError("network mode %q: %s, %s, %s, %s or %s", s.Network, NetworkShared, NetworkNAT, NetworkHost,
			NetworkBridge, NetworkDisconnected)
	case kind != "user" && len(s.Ports) > 0:
		return RefusedError("port rules do not go with network mode %q: they need shared, nat or host", s.Network)
	case s.VLAN < 0 || s.VLAN > MaxVLAN:
		return RefusedError("VLAN %d: want 1-%d", s.VLAN, MaxVLAN)
	case s.VLAN != 0 && kind != "tap" && s.State == nil:
		return RefusedError("VLAN %d needs the network mode %s", s.VLAN, NetworkBridge)
	case kind == "tap" && s.Isolated:
		return RefusedError("a guest in network mode %q cannot be isolated: use host or disconnected", s.Network)
	}
	if err := validateMAC(s.MAC); err != nil {
		return err
	}
	if err := s.VNC.validate(); err != nil {
		return err
	}
	if err := s.PC.validate(); err != nil {
		return err
	}
	return s.validateApple()
}

func validateMAC(mac string) error {
	var first byte
	switch _, err := fmt.Sscanf(mac, "%02x", &first); {
	case mac == "":
		return nil
	case err != nil || !macPattern.MatchString(mac):
		return RefusedError("MAC address %q: six bytes in hex such as 52:54:00:12:34:56", mac)
	case first&1 != 0:
		return RefusedError("MAC address %q is one of a group (its first byte is odd), a network card needs its own",
			mac)
	case strings.Trim(mac, "0:") == "":
		return RefusedError("MAC address %q is that of no card", mac)
	}
	return nil
}

func (v *VNC) validate() error {
	switch {
	case v == nil:
		return nil
	case v.Password == "" || len(v.Password) > MaxVNCPasswordBytes || !asciiPattern.MatchString(v.Password):
		return RefusedError("a VNC password has 1-%d printable ASCII characters, the maximum of the protocol",
			MaxVNCPasswordBytes)
	case v.Port < 0 || v.Port > 65535:
		return RefusedError("VNC port %d: want 0 (a free one) to 65535", v.Port)
	}
	return nil
}

// String hides the password when a Spec is printed.
func (v VNC) String() string { return fmt.Sprintf("{Password:(hidden) Port:%d}", v.Port) }

// GoString does the same for %#v.
func (v VNC) GoString() string { return "hv.VNC" + v.String() }

// DefaultMAC is the MAC address of a VM's card when none is requested: the same at each start, from
// the range that QEMU uses.
func DefaultMAC(uuid string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(uuid)))
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", sum[0], sum[1], sum[2])
}

// WithDefaults returns the spec with all omitted settings filled in: from its State, whose guest
// continues seeing the machine that it was saved on, otherwise with the defaults. It returns an
// ErrRefused when spec and State contradict each other. Drivers work with such a spec only: exactly
// one of its PC and Apple is set.
func (s Spec) WithDefaults() (Spec, error) {
	s.MAC = strings.ToLower(s.MAC)
	if s.Apple != nil {
		if err := s.PC.checkAbsent(); err != nil {
			return s, err
		}
		s.PC = nil
	} else {
		pc := s.EditPC()
		pc.HardwareUUID = strings.ToLower(pc.HardwareUUID)
	}
	if s.State != nil {
		if err := s.applySavedState(s.State.Requirements); err != nil {
			return s, err
		}
	}
	if s.MAC == "" {
		s.MAC = DefaultMAC(s.UUID)
	}
	if s.PC != nil && s.PC.Video == "" {
		s.PC.Video = VideoVGA
	}
	if s.Network == "" {
		s.Network = NetworkShared
	}
	return s, nil
}

// savedSettingHint ends a refusal of a setting that a suspended state fixes.
const savedSettingHint = "leave it out, or start a version that was saved stopped"

func (s *Spec) applySavedState(pin StateRequirements) error {
	if s.Apple != nil {
		return RefusedError("a macOS guest cannot resume from a saved state: macOS ties it to the Mac that made it")
	}
	pc := s.EditPC()
	for _, row := range []struct {
		what string
		want *string
		pins string
	}{
		{"MAC address", &s.MAC, pin.MAC},
		{"hardware UUID", &pc.HardwareUUID, pin.HardwareUUID},
		{"serial number", &pc.Serial, pin.Serial},
		{"video controller", &pc.Video, pin.Video},
	} {
		if *row.want != "" && *row.want != row.pins {
			return RefusedError("%s %q cannot be set: the suspended state pins %q; %s", row.what, *row.want, row.pins,
				savedSettingHint)
		}
		*row.want = row.pins
	}
	if s.Network != "" && s.Network.NetworkKind() != pin.Network {
		return RefusedError("network mode %q cannot be set: the suspended state pins %q; %s", s.Network,
			modeOfNetworkKind[pin.Network],
			savedSettingHint)
	}
	if s.Network == "" {
		s.Network = modeOfNetworkKind[pin.Network]
	}
	if s.VLAN != 0 && s.VLAN != pin.VLAN {
		return RefusedError("VLAN %d cannot be set: the suspended state pins %d (0 is none); %s", s.VLAN, pin.VLAN,
			savedSettingHint)
	}
	s.VLAN = pin.VLAN
	return s.validateMachine()
}

// modeOfNetworkKind maps a kind of network to its plainest mode.
var modeOfNetworkKind = map[string]NetworkMode{"user": NetworkShared, "tap": NetworkBridge, "none": NetworkDisconnected}

// Requirements returns what a state of such a VM depends on, as far as the spec with defaults
// defines it; the driver adds the rest.
func (s Spec) Requirements() StateRequirements {
	pc := s.PCSettings()
	c := StateRequirements{
		Network: s.Network.NetworkKind(), VLAN: s.VLAN, CPUs: s.CPUs, MemoryMB: s.MemoryMB, Disks: len(s.Disks),
		Video: pc.Video, MAC: s.MAC, HardwareUUID: pc.HardwareUUID, Serial: pc.Serial,
	}
	if c.HardwareUUID == "" {
		c.HardwareUUID = strings.ToLower(s.UUID)
	}
	return c
}

// CheckRestart returns an ErrRefused when a restart would change more of a VM than it may: see
// Restarter.
func CheckRestart(before, after Spec) error {
	if err := after.Validate(); err != nil {
		return err
	}
	for _, s := range []*Spec{&before, &after} {
		s.VNC, s.NeedNetwork, s.BootTimeout = nil, false, 0
		s.EditPC().USB = nil
	}
	if !reflect.DeepEqual(before, after) {
		return RefusedError(
			"a restart changes nothing but VNC, USB, NeedNetwork and BootTimeout; start another VM for the rest")
	}
	return nil
}

// Clone returns a spec that shares nothing with s.
func (s Spec) Clone() Spec {
	s.Disks = slices.Clone(s.Disks)
	for i := range s.Disks {
		s.Disks[i].Deltas = slices.Clone(s.Disks[i].Deltas)
	}
	s.Ports, s.Labels, s.Apple = slices.Clone(s.Ports), maps.Clone(s.Labels), s.Apple.clone()
	if s.PC != nil {
		s.EditPC()
	}
	if s.VNC != nil {
		v := *s.VNC
		s.VNC = &v
	}
	if s.State != nil {
		v := *s.State
		s.State = &v
	}
	return s
}
