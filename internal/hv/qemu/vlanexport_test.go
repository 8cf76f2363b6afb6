//go:build linux

package qemu

import "github.com/vishvananda/netlink"

// Untagged replaces the tagged devices of an uplink by another kind, for kernels without 802.1Q: it
// passes all frames unchanged, for one VLAN.
func (o *Options) Untagged() {
	o.vlanTagger = func(attrs netlink.LinkAttrs, _ int) netlink.Link {
		return &netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_PASSTHRU}
	}
}

// CanTag returns why this kernel cannot create tagged devices of an uplink.
func CanTag(uplink string) error { return checkTagging(uplink, newVLANLink) }

// Links returns the names of the host's network devices.
func Links() (map[string]bool, error) {
	list, err := hostLinks()
	names := map[string]bool{}
	for name := range list {
		names[name] = true
	}
	return names, err
}
