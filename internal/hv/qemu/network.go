package qemu

import (
	"github.com/buildyard/buildyard/internal/hv"
)

// acceptNetwork refuses a bridge that this host does not have.
func (d *Driver) acceptNetwork(s hv.Spec) error {
	switch {
	case s.Network != hv.NetworkBridge:
		return nil
	case s.VLAN != 0:
		return d.acceptVLAN(s)
	case d.opts.Bridge == "":
		return hv.RefusedError(
			"network mode %q: no bridge is configured on this node; use %s, or have its administrator configure one",
			s.Network, hv.NetworkShared)
	case !isBridge(d.opts.Bridge):
		return hv.RefusedError(
			"network mode %q: the configured bridge %s does not exist on this node; create it, or use %s",
			s.Network, d.opts.Bridge, hv.NetworkShared)
	}
	return nil
}
