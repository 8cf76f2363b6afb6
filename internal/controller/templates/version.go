package templates

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// Limits of the texts of a version, in bytes.
const (
	maxField = 1 << 10
	maxName  = 255
)

// refOf returns the reference of a template's version; see configure for the rest.
func refOf(d api.TemplateDetail, v api.TemplateVersion) farm.TemplateRef {
	return farm.TemplateRef{
		ID: d.ID, Name: d.Name, Tag: v.Tag, Version: v.Number, ContentID: v.ContentID,
		Arch: cmp.Or(v.Arch, d.Arch, "amd64"), Size: v.Size, Suspended: len(v.StateFiles) > 0, CPUs: 1,
	}
}

// configure sets the fields of a version's VMs from its configuration.
func configure(ref *farm.TemplateRef, config api.TemplateConfig) {
	ref.MemoryMB = memoryMB(config.RAM)
	if config.CPU != nil && config.CPU.Cores > 0 {
		ref.CPUs = config.CPU.Cores
	}
	setGuest(ref, config)
	setRequirements(ref, config.StatePin)
	setNetwork(ref, config)
}

// setGuest sets the guest's operating system and what it needs of a node. The apple block is that of a
// Mac with Apple silicon, whatever architecture was set.
func setGuest(ref *farm.TemplateRef, config api.TemplateConfig) {
	if slices.Contains(farm.GuestOSes, config.OS) {
		ref.OS = config.OS
	}
	if a := config.Apple; a != nil {
		ref.OS, ref.Arch = farm.OSMacOS, "arm64"
		ref.AnkaImage = slices.ContainsFunc(config.HardDrives,
			func(d api.ConfigDrive) bool { return d.Format == api.FormatAnka })
		ref.MinCPUs, ref.MinMemoryMB = max(0, a.MinCPUs), max(0, a.MinMemoryMB)
	}
	if config.Display != nil {
		ref.Video = farm.Clip(config.Display.Video, maxName)
	}
	ref.SetsMAC = len(config.NetworkCards) > 0 && config.NetworkCards[0].MACAddress != ""
}

// memoryMB parses a template's memory size ("4G", "512M"); 0 when it is not usable.
func memoryMB(text string) int {
	text = strings.TrimSuffix(strings.TrimSpace(text), "B")
	factor := 1
	switch {
	case strings.HasSuffix(text, "G"):
		factor = 1024
		fallthrough
	case strings.HasSuffix(text, "M"):
		text = text[:len(text)-1]
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > 1<<24 {
		return 0
	}
	return n * factor
}

// setRequirements sets the requirements of a saved state on a node, and the size of the virtual hardware in
// which it was saved.
func setRequirements(ref *farm.TemplateRef, p *api.StateRequirements) {
	if !ref.Suspended || p == nil {
		return
	}
	ref.Needs = farm.StateRequirements{
		Driver: farm.Clip(p.Driver, maxField), Version: farm.Clip(p.Version, maxField),
		Machine:     farm.Clip(p.Machine, maxField),
		Accelerator: farm.Clip(p.Accelerator, maxField), CPU: farm.Clip(p.CPU, maxField),
		HostCPU: farm.Clip(p.HostCPU, maxField),
	}
	if p.CPUs > 0 && p.MemoryMB > 0 {
		ref.CPUs, ref.MemoryMB = p.CPUs, p.MemoryMB
	}
}

// networkModes are the network networkModes of the kinds in saved states.
var networkModes = map[string]string{
	"tap": farm.NetworkBridge, "none": farm.NetworkDisconnected, "user": farm.NetworkShared,
}

// setNetwork sets how a version's guest is connected: as its saved state requires, else as its
// configuration describes.
func setNetwork(ref *farm.TemplateRef, config api.TemplateConfig) {
	if len(config.NetworkCards) > 0 {
		ref.Network = farm.Clip(config.NetworkCards[0].Mode, maxName)
	}
	if p := config.StatePin; ref.Suspended && p != nil {
		ref.Network = cmp.Or(networkModes[p.Network], ref.Network)
		if p.VLAN > 0 && p.VLAN <= farm.MaxVLAN {
			ref.VLAN = strconv.Itoa(p.VLAN)
		}
	}
}
