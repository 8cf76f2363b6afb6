//go:build linux

package qemu

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Untagged replaces the tagged devices of an uplink by another kind, for kernels without 802.1Q: it
// passes all frames unchanged, for one VLAN.
func (o *Options) Untagged() {
	const passThrough = 8 // MACVLAN_MODE_PASSTHRU
	o.vlanTagger = func(int) linkKind {
		return linkKind{"macvlan", []linkAttribute{{1, binary.NativeEndian.AppendUint32(nil, passThrough)}}}
	}
}

// CanTag returns why this kernel cannot create tagged devices of an uplink.
func CanTag(uplink string) error { return checkTagging(uplink, vlanLinkKind) }

// TaggedMessage is the request to the kernel for a tagged device.
func TaggedMessage(name string, id, parent int) []byte {
	return linkMessage(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, linkHeader{},
		newLinkAttributes(name, vlanLinkKind(id), parent))
}

// Links returns the names of the host's network devices.
func Links() (map[string]bool, error) {
	list, err := hostLinks()
	names := map[string]bool{}
	for name := range list {
		names[name] = true
	}
	return names, err
}
