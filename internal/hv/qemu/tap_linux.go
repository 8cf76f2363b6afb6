package qemu

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
)

// isBridge reports whether the host has a bridge with that name, in the network namespace of this
// process; /sys may show another one.
func isBridge(name string) bool {
	link, err := netlink.LinkByName(name)
	return err == nil && link.Type() == "bridge"
}

// openTap creates a network device that ends with the last process that has it open, and adds it to
// a bridge. Guests of one bridge reach each other.
func openTap(bridge, mac string) (*os.File, error) {
	tap := &netlink.Tuntap{
		LinkAttrs: newLinkAttrs("byvm%d", 0), Mode: netlink.TUNTAP_MODE_TAP, NonPersist: true, Queues: 1,
		Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR,
	}
	if err := netlink.LinkAdd(tap); err != nil {
		return nil, fmt.Errorf("create a tap device (requires root and /dev/net/tun): %w", err)
	}
	disableIPv6(tap.Name)
	if err := addTapToBridge(tap, bridge, mac); err != nil {
		_ = tap.Fds[0].Close()
		return nil, fmt.Errorf("add a tap device to bridge %s: %w", bridge, err)
	}
	return tap.Fds[0], nil
}

// newLinkAttrs returns the attributes of a new network device; parent 0 is none.
func newLinkAttrs(name string, parent int) netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex = name, parent
	return attrs
}

// disableIPv6 keeps the host itself from communicating through a network device.
func disableIPv6(name string) {
	_ = os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", name, "disable_ipv6"), []byte("1"), 0)
}

// addTapToBridge sets the device's MTU to that of the bridge, which would otherwise lower its own, and a
// high MAC address, so that the bridge does not adopt it.
func addTapToBridge(tap netlink.Link, bridge, mac string) error {
	br, err := netlink.LinkByName(bridge)
	if err != nil {
		return err
	}
	address, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	if address[0] == 0xfe { // that is the guest's own
		address[0] = 0xfa
	} else {
		address[0] = 0xfe
	}

	if err := netlink.LinkSetHardwareAddr(tap, address); err != nil {
		return err
	}
	if err := netlink.LinkSetMTU(tap, br.Attrs().MTU); err != nil {
		return err
	}
	return addBridgePort(br, tap)
}

// addBridgePort adds a network device to a bridge and brings it up.
func addBridgePort(bridge, port netlink.Link) error {
	if err := netlink.LinkSetMaster(port, bridge); err != nil {
		return err
	}
	return netlink.LinkSetUp(port)
}
