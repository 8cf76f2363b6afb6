package qemu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"

	"github.com/buildyard/buildyard/internal/hv"
)

// Prefixes of the devices that the driver creates for a VLAN over the uplink: a bridge, and the
// tagged device of the uplink on it. No other devices have such names.
const (
	vlanBridgePrefix = "by-vlan"
	vlanUplinkPrefix = "by-up"
)

func vlanBridge(id int) string { return vlanBridgePrefix + strconv.Itoa(id) }
func vlanUplink(id int) string { return vlanUplinkPrefix + strconv.Itoa(id) }

// vlanTagger returns a new uplink device that tags a bridge's frames with a VLAN.
type vlanTagger func(attrs netlink.LinkAttrs, id int) netlink.Link

// findVLANs returns the VLANs that this host has, in ascending order, and logs the requested ones
// that it lacks. It removes unused VLANs that an earlier agent created.
func (d *Driver) findVLANs(ctx context.Context) []int {
	d.pruneVLANs()
	over := fmt.Errorf("no uplink device is configured (--vlan-uplink)")
	if d.opts.Uplink != "" {
		over = checkTagging(d.opts.Uplink, d.opts.vlanTagger)
	}
	if os.Geteuid() != 0 {
		over = errors.New("bridges require root")
	}
	var ids []int
	for _, id := range slices.Sorted(maps.Keys(d.opts.VLANs)) {
		bridge, why := d.opts.VLANs[id], over
		if bridge != "" {
			why = nil
			switch {
			case os.Geteuid() != 0:
				why = errors.New("bridges require root")
			case !isBridge(bridge):
				why = fmt.Errorf("bridge %s not found", bridge)
			}
		}
		if why != nil {
			d.log.WarnContext(ctx, "a configured VLAN is not offered by this node", "vlan", id, "error", why)
			continue
		}
		ids = append(ids, id)
	}
	return ids
}

// acceptVLAN refuses a VLAN that this host does not have.
func (d *Driver) acceptVLAN(s hv.Spec) error {
	bridge, given := d.opts.VLANs[s.VLAN]
	switch {
	case !given:
		return hv.RefusedError("VLAN %d: it is not configured on this node", s.VLAN)
	case bridge != "" && !isBridge(bridge):
		return hv.RefusedError(
			"VLAN %d: its configured bridge %s does not exist on this node; create it, or use another VLAN",
			s.VLAN, bridge)
	case !slices.Contains(d.host.VLANs, s.VLAN):
		return hv.RefusedError(
			"VLAN %d: it was not available on this node when the agent started; see the log of the agent", s.VLAN)
	}
	return nil
}

// plugGuest creates a guest's network device on the bridge of its network.
func (d *Driver) plugGuest(s hv.Spec) (*os.File, error) {
	bridge := d.opts.Bridge
	if s.VLAN != 0 {
		bridge = d.opts.VLANs[s.VLAN]
	}
	if s.VLAN == 0 || bridge != "" {
		return openTap(bridge, s.MAC)
	}
	d.vlanMu.Lock()
	defer d.vlanMu.Unlock()
	for try := 1; ; try++ {
		err := makeVLAN(d.opts.Uplink, s.VLAN, d.opts.vlanTagger)
		if err != nil {
			return nil, fmt.Errorf("create VLAN %d on %s: %w", s.VLAN, d.opts.Uplink, err)
		}
		f, err := openTap(vlanBridge(s.VLAN), s.MAC)
		if err == nil || try == 3 || isBridge(vlanBridge(s.VLAN)) {
			return f, err
		}
		// An agent of another data directory found it unused in between.
	}
}

// pruneVLANs removes the bridges of VLANs that no guest is on.
func (d *Driver) pruneVLANs() {
	if os.Geteuid() != 0 {
		return
	}
	d.vlanMu.Lock()
	defer d.vlanMu.Unlock()
	if err := removeUnusedVLANs(); err != nil {
		d.log.Warn("removing unused VLAN devices failed", "error", err)
	}
}
