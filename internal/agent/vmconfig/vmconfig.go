// Package vmconfig translates between the configuration object of a template's version and the VM
// of a driver: which VM a version starts, and which configuration a version saved from a VM has.
//
// It is pure: it opens no file, starts nothing and does not know the journal.
//
// Invariant: configurations are pushed by untrusted users, so none of their file names ever points
// out of the version's directory, and unknown fields are never lost.
package vmconfig

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

const (
	defaultCPUs     = 1
	defaultMemoryMB = 1024

	forceOn = "forceOn" // value of Machine.NetworkLocal
)

// Files describe where the files of a version are on a node.
type Files struct {
	Dir string // absolute; a file is in it under its name
	// Disks describes those of which more is known: the path and format of their lowest file, and
	// its overlays. Format "" means that of the configuration.
	Disks map[string]hv.Disk
}

// VMSpec returns the VM that a version describes, with the changes of the order. The caller sets
// identity, labels and timeouts.
func VMSpec(config api.TemplateConfig, at Files, o *api.StartOrder) (hv.Spec, error) {
	var m api.Machine
	if o.Machine != nil {
		m = *o.Machine
	}
	s := hv.Spec{
		CPUs: defaultCPUs, MemoryMB: defaultMemoryMB, DiskBytes: m.DiskBytes,
		VLAN: m.VLAN, Isolated: m.NetworkLocal == forceOn,
	}
	var err error
	if s.Disks, err = Disks(config.HardDrives, at); err != nil {
		return hv.Spec{}, err
	}
	if s.State, err = suspendedState(config, at.Dir); err != nil {
		return hv.Spec{}, err
	}
	if config.CPU != nil && config.CPU.Cores > 0 {
		s.CPUs = config.CPU.Cores
	}
	if config.RAM != "" {
		ram, err := bytesize.Parse("ram", config.RAM, bytesize.MB)
		if err != nil {
			return hv.Spec{}, err
		}
		s.MemoryMB = int(ram / bytesize.MB)
	}
	s.CPUs, s.MemoryMB = cmp.Or(m.CPUs, s.CPUs), cmp.Or(m.MemoryMB, s.MemoryMB)
	s.Apple = appleOf(config.Apple)
	s.PC = &hv.PC{HardwareUUID: m.HardwareUUID, Serial: m.Serial}
	if config.Firmware != nil {
		s.PC.Firmware = config.Firmware.Type
	}
	s.PC.Video, s.VNC = screenOf(config.Display, m)
	s.Network, s.MAC, s.Ports = networkOf(config, o, m)
	if m.USB != "" {
		s.PC.USB = []hv.USBDevice{{Location: cmp.Or(m.USBDevice, m.USB)}}
	}
	return s, nil
}

// appleOf returns the part of a Mac, nil for another machine.
func appleOf(a *api.ConfigApple) *hv.Apple {
	if a == nil {
		return nil
	}
	return &hv.Apple{
		HardwareModel: a.HardwareModel, MachineID: a.MachineID, MinCPUs: a.MinCPUs, MinMemoryMiB: a.MinMemoryMB,
	}
}

func checkName(what, name string) error {
	if name == "" || name != filepath.Base(name) || !filepath.IsLocal(name) {
		return farm.Refused("The template has a %s %q, which is a path and not a file name", what, name)
	}
	return nil
}

// Disks returns the disks of a version whose files are at the given paths.
func Disks(drives []api.ConfigDrive, at Files) ([]hv.Disk, error) {
	list := make([]hv.Disk, len(drives))
	for i, d := range drives {
		if err := checkName("disk", d.File); err != nil {
			return nil, err
		}
		disk, known := at.Disks[d.File]
		if !known {
			disk.Path = filepath.Join(at.Dir, d.File)
		}
		disk.Format = cmp.Or(disk.Format, DiskFormat(d))
		disk.Deltas = slices.Clone(disk.Deltas) // a caller may append to it
		list[i] = disk
	}
	return list, nil
}

// DiskFormat returns the format of a drive. It uses configuration and name only: a guest can write any
// header to its disk.
func DiskFormat(d api.ConfigDrive) string {
	switch {
	case d.Format != "":
		return d.Format
	case strings.HasSuffix(d.File, ".qcow2"):
		return "qcow2"
	default:
		return "raw"
	}
}

// suspendedState returns the suspended guest of a version, nil for a version without one.
func suspendedState(config api.TemplateConfig, dir string) (*hv.State, error) {
	if config.StateFile == "" {
		return nil, nil
	}
	if err := checkName("state", config.StateFile); err != nil {
		return nil, err
	}
	if config.StatePin == nil {
		return nil,
			farm.Refused(
				"The template has a saved memory state without the QEMU version and machine type that can load it")
	}
	return &hv.State{Path: filepath.Join(dir, config.StateFile), Requirements: hv.StateRequirements(*config.StatePin)},
		nil
}

// screenOf returns the video controller and the access to the screen.
func screenOf(display *api.ConfigScreen, m api.Machine) (video string, vnc *hv.VNC) {
	video, password := m.Video, m.VNCPassword
	if display != nil {
		video = cmp.Or(video, display.Video)
		if display.FrameBuffer != nil {
			password = cmp.Or(password, display.FrameBuffer.Password)
		}
	}
	if password != "" {
		vnc = &hv.VNC{Password: password}
	}
	return video, vnc
}

// networkOf returns the mode, the MAC address of the card and the port rules: the template's, unless
// the order has others. A suspended guest has the MAC address in its state. In a mode without port
// rules, the template's rules for other modes are left out.
func networkOf(
	config api.TemplateConfig, o *api.StartOrder, m api.Machine,
) (mode hv.NetworkMode, mac string, ports []hv.PortRule) {
	mode, mac = hv.NetworkMode(m.Network), m.MAC
	for i, card := range config.NetworkCards {
		if i == 0 {
			mode = cmp.Or(mode, hv.NetworkMode(card.Mode))
			if config.StateFile == "" {
				mac = cmp.Or(mac, card.MACAddress)
			}
		}
		for _, p := range card.PortRules {
			ports = append(ports, hv.PortRule{
				Name: p.RuleName, GuestPort: p.GuestPort, HostPort: p.HostPort, HostIP: p.HostIP, Protocol: p.Protocol,
			})
		}
	}
	if mode == "" || mode == hv.NetworkNAT {
		mode = hv.NetworkShared
	}
	if mode == hv.NetworkBridge || mode == hv.NetworkDisconnected {
		ports = nil
	}
	if !o.PortOverride {
		return mode, mac, ports
	}
	ports = make([]hv.PortRule, len(o.Ports))
	for i, p := range o.Ports {
		ports[i] = hv.PortRule(p)
	}
	return mode, mac, ports
}
