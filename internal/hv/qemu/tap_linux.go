package qemu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// isBridge reports whether the host has a bridge with that name, in the network namespace of this
// process; /sys may show another one.
func isBridge(name string) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
	return err == nil && unix.ByteSliceToString(info.Driver[:]) == "bridge"
}

// openTap creates a network device that ends with the last process that has it open, and adds it to
// a bridge. Guests of one bridge reach each other.
func openTap(bridge, mac string) (*os.File, error) {
	f, name, err := newTap()
	if err != nil {
		return nil, fmt.Errorf("create a tap device (requires root and /dev/net/tun): %w", err)
	}
	// The host itself must not communicate through it.
	_ = os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", name, "disable_ipv6"), []byte("1"), 0)
	if err := addTapToBridge(name, bridge, mac); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("add a tap device to bridge %s: %w", bridge, err)
	}
	return f, nil
}

func newTap() (*os.File, string, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", err
	}
	f := os.NewFile(uintptr(fd), "/dev/net/tun")
	ifr, err := unix.NewIfreq("byvm%d")
	if err == nil {
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	}
	if err != nil {
		_ = f.Close()
		return nil, "", err
	}
	return f, ifr.Name(), nil
}

// addTapToBridge sets the device's MTU to that of the bridge, which would otherwise lower its own, and a
// high MAC address, so that the bridge does not adopt it.
func addTapToBridge(name, bridge, mac string) error {
	tap, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	br, err := net.InterfaceByName(bridge)
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
	return setLinkUp(tap.Index, []linkAttribute{
		{unix.IFLA_ADDRESS, address},
		{unix.IFLA_MTU, binary.NativeEndian.AppendUint32(nil, uint32(br.MTU))},
		{unix.IFLA_MASTER, binary.NativeEndian.AppendUint32(nil, uint32(br.Index))},
	})
}

// setLinkUp changes a network device and brings it up.
func setLinkUp(index int, attributes []linkAttribute) error {
	return sendLinkMessage(unix.RTM_NEWLINK, 0, linkHeader{index: index, flags: unix.IFF_UP, changeMask: unix.IFF_UP},
		attributes)
}

// linkHeader is the header of a message about a network device.
type linkHeader struct {
	index             int // 0: a new one
	flags, changeMask uint32
}

// sendLinkMessage sends one message about a network device (rtnetlink(7)): a header of 16 bytes,
// one of the device of 16, the attributes.
func sendLinkMessage(kind, flags uint16, head linkHeader, attributes []linkAttribute) error {
	return sendNetlink(linkMessage(kind, flags, head, attributes))
}

func linkMessage(kind, flags uint16, head linkHeader, attributes []linkAttribute) []byte {
	ne := binary.NativeEndian
	body := []byte{unix.AF_UNSPEC, 0, 0, 0}
	for _, v := range []uint32{uint32(head.index), head.flags, head.changeMask} {
		body = ne.AppendUint32(body, v)
	}
	for _, a := range attributes {
		body = append(body, encodeAttribute(a.kind, a.value)...)
	}
	msg := ne.AppendUint32(nil, uint32(16+len(body)))
	msg = ne.AppendUint16(msg, kind)
	msg = ne.AppendUint16(msg, unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	msg = ne.AppendUint32(msg, 1) // sequence number
	msg = ne.AppendUint32(msg, 0)
	return append(msg, body...)
}

// encodeAttribute writes one attribute, filled up to a multiple of four bytes.
func encodeAttribute(kind uint16, value []byte) []byte {
	ne := binary.NativeEndian
	b := ne.AppendUint16(nil, uint16(4+len(value)))
	b = append(ne.AppendUint16(b, kind), value...)
	return append(b, make([]byte, -len(value)&3)...)
}

// sendNetlink sends one netlink message and waits for the kernel's response.
func sendNetlink(msg []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 8<<10)
	n, _, err := unix.Recvfrom(fd, buf, 0)
	if err != nil {
		return err
	}
	answers, err := syscall.ParseNetlinkMessage(buf[:n])
	if err != nil {
		return err
	}
	for _, a := range answers {
		if a.Header.Type != unix.NLMSG_ERROR || len(a.Data) < 4 {
			continue
		}
		if code := int32(binary.NativeEndian.Uint32(a.Data)); code != 0 {
			return unix.Errno(-code)
		}
		return nil
	}
	return errors.New("unexpected netlink response of the kernel")
}
