package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxLinkLists bounds how often the list of network devices is read when devices change concurrently.
const maxLinkLists = 10

// newVLANLink returns the kernel's 802.1Q device.
func newVLANLink(attrs netlink.LinkAttrs, id int) netlink.Link {
	return &netlink.Vlan{LinkAttrs: attrs, VlanId: id}
}

// hostLinks returns the network devices of this process's network namespace, by name.
func hostLinks() (map[string]netlink.Link, error) {
	list, err := netlink.LinkList()
	for try := 1; errors.Is(err, netlink.ErrDumpInterrupted) && try < maxLinkLists; try++ {
		list, err = netlink.LinkList()
	}
	if err != nil {
		return nil, fmt.Errorf("list network devices: %w", err)
	}
	byName := make(map[string]netlink.Link, len(list))
	for _, link := range list {
		byName[link.Attrs().Name] = link
	}
	return byName, nil
}

// checkTagging returns why VLANs cannot be created over an uplink; nil when they can. It requests a
// device of the kind without an uplink: a kernel that supports the kind reports the missing uplink,
// another one the kind.
func checkTagging(uplink string, tag vlanTagger) error {
	list, err := hostLinks()
	if err != nil {
		return err
	}
	if _, ok := list[uplink]; !ok {
		return fmt.Errorf("network device %s not found", uplink)
	}
	err = netlink.LinkAdd(tag(newLinkAttrs(vlanUplink(1)+"-try", 0), 1))
	switch {
	case err == nil:
		return errors.New("the kernel created a VLAN device without an uplink")
	case errors.Is(err, unix.EOPNOTSUPP):
		return errors.New("the kernel does not support VLANs (module 8021q)")
	case errors.Is(err, unix.EPERM):
		return errors.New("creating network devices requires root")
	}
	return nil
}

// makeVLAN creates the bridge of a VLAN, unless it exists.
func makeVLAN(uplink string, id int, tag vlanTagger) error {
	list, err := hostLinks()
	if err != nil {
		return err
	}
	over, bridge, port := list[uplink], list[vlanBridge(id)], list[vlanUplink(id)]
	switch {
	case over == nil:
		return fmt.Errorf("network device %s not found", uplink)
	case over.Attrs().Flags&net.FlagUp == 0:
		return fmt.Errorf("network device %s is down", uplink)
	case bridge != nil && bridge.Type() != "bridge":
		return fmt.Errorf("network device %s exists, but is not a bridge; remove it", vlanBridge(id))
	case port != nil && port.Attrs().ParentIndex != over.Attrs().Index:
		return fmt.Errorf("network device %s exists with another uplink; remove it", vlanUplink(id))
	}

	if bridge == nil {
		if bridge, err = addLink(&netlink.Bridge{LinkAttrs: newLinkAttrs(vlanBridge(id), 0)}); err != nil {
			return err
		}
	}
	if port == nil {
		if port, err = addLink(tag(newLinkAttrs(vlanUplink(id), over.Attrs().Index), id)); err != nil {
			return err
		}
	}
	if err := addBridgePort(bridge, port); err != nil {
		return err
	}
	return netlink.LinkSetUp(bridge)
}

// addLink creates a network device that the host itself does not communicate through. Another agent
// may create it at the same time.
func addLink(link netlink.Link) (netlink.Link, error) {
	name := link.Attrs().Name
	if err := netlink.LinkAdd(link); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make %s (%s): %w", name, link.Type(), err)
	}
	disableIPv6(name)
	return netlink.LinkByName(name)
}

// removeUnusedVLANs removes the bridges and tagged devices of VLANs that have no other port.
func removeUnusedVLANs() error {
	list, err := hostLinks()
	if err != nil {
		return err
	}
	ports := map[int]int{} // bridge -> devices on it
	for _, link := range list {
		ports[link.Attrs().MasterIndex]++
	}
	var failed []error
	for name, link := range list {
		id, made := vlanOfDevice(name)
		if !made {
			continue
		}
		bridge, own := list[vlanBridge(id)], 0
		if up := list[vlanUplink(id)]; up != nil && bridge != nil && up.Attrs().MasterIndex == bridge.Attrs().Index {
			own = 1
		}
		if bridge == nil || ports[bridge.Attrs().Index] <= own {
			failed = append(failed, netlink.LinkDel(link))
		}
	}
	return errors.Join(failed...)
}

// vlanOfDevice returns the VLAN that a network device was made for.
func vlanOfDevice(name string) (id int, made bool) {
	text, bridge := strings.CutPrefix(name, vlanBridgePrefix)
	if !bridge {
		if text, made = strings.CutPrefix(name, vlanUplinkPrefix); !made {
			return 0, false
		}
	}
	id, err := strconv.Atoi(text)
	return id, err == nil && (name == vlanBridge(id) || name == vlanUplink(id))
}
