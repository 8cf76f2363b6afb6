package controller

import (
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// refOf returns the reference of a template's version; see configure for the rest.
func refOf(d api.TemplateDetail, v api.TemplateVersion) farm.TemplateRef {
	return farm.TemplateRef{
		ID: d.ID, Name: d.Name, Tag: v.Tag, Version: v.Number, ContentID: v.ContentID,
		Arch: firstOf(v.Arch, d.Arch, "amd64"), Size: v.Size, Suspended: len(v.StateFiles) > 0, CPUs: 1,
	}
}

// configure sets the fields of a version's VMs from its configuration.
func configure(ref *farm.TemplateRef, config api.TemplateConfig) {
	ref.MemoryMB = megabytes(config.RAM)
	if config.CPU != nil && config.CPU.Cores > 0 {
		ref.CPUs = config.CPU.Cores
	}
	pin(ref, config.StatePin)
	network(ref, config)
}

func pickVersion(detail api.TemplateDetail, tag string, number *int) (api.TemplateVersion, error) {
	var none api.TemplateVersion
	if len(detail.Versions) == 0 {
		return none, farm.Refused("Template %s has no versions", detail.Name)
	}
	if tag == "" && number == nil {
		return detail.Versions[len(detail.Versions)-1], nil
	}
	for _, v := range detail.Versions {
		switch {
		case tag != "" && v.Tag == tag:
			if number != nil && v.Number != *number {
				return none, farm.Refused("tag %s is version %d, not %d: use only one of tag and version", tag,
					v.Number, *number)
			}
			return v, nil
		case tag == "" && v.Number == *number:
			return v, nil
		}
	}
	if tag == "" {
		tag = strconv.Itoa(*number)
	}
	return none, farm.Refused("No such tag %s", tag)
}

// megabytes parses a template's memory size ("4G", "512M"); 0 when it is not usable.
func megabytes(text string) int {
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

// pin sets the requirements of a saved state on a node, and the size of the virtual hardware in
// which it was saved.
func pin(ref *farm.TemplateRef, p *api.StateRequirements) {
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

// modes are the network modes of the kinds in saved states.
var modes = map[string]string{"tap": farm.NetworkBridge, "none": farm.NetworkDisconnected, "user": farm.NetworkShared}

// network sets how a version's guest is connected: as its saved state requires, else as its
// configuration describes.
func network(ref *farm.TemplateRef, config api.TemplateConfig) {
	if len(config.NetworkCards) > 0 {
		ref.Network = farm.Clip(config.NetworkCards[0].Mode, maxLabel)
	}
	if p := config.StatePin; ref.Suspended && p != nil {
		ref.Network = firstOf(modes[p.Network], ref.Network)
		if p.VLAN > 0 && p.VLAN <= farm.MaxVLAN {
			ref.VLAN = strconv.Itoa(p.VLAN)
		}
	}
}
