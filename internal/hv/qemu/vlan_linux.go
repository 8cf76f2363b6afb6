package qemu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Attributes of a network device's kind (rtnetlink(7), linux/if_link.h).
const (
	attrInfoKind = 1 // IFLA_INFO_KIND
	attrInfoData = 2 // IFLA_INFO_DATA
	attrVLANID   = 1 // IFLA_VLAN_ID
)

// vlanLinkKind is the kernel's 802.1Q device.
func vlanLinkKind(id int) linkKind {
	return linkKind{"vlan", []linkAttribute{{attrVLANID, binary.NativeEndian.AppendUint16(nil, uint16(id))}}}
}

// hostLink is a network device of the host.
type hostLink struct {
	index, master, parent int // of itself, of its bridge, of its uplink; 0: none
	up                    bool
	kind                  string
}

// hostLinks returns the network devices of this process's network namespace, by name.
func hostLinks() (map[string]hostLink, error) {
	raw, err := syscall.NetlinkRIB(syscall.RTM_GETLINK, syscall.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("list network devices: %w", err)
	}
	messages, err := syscall.ParseNetlinkMessage(raw)
	if err != nil {
		return nil, fmt.Errorf("list network devices: %w", err)
	}
	list := map[string]hostLink{}
	for i := range messages {
		m := &messages[i]
		if m.Header.Type != syscall.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg {
			continue
		}
		attributes, err := syscall.ParseNetlinkRouteAttr(m)
		if err != nil {
			return nil, fmt.Errorf("list network devices: %w", err)
		}
		name, l := readLink(m.Data, attributes)
		list[name] = l
	}
	return list, nil
}

func readLink(head []byte, attributes []syscall.NetlinkRouteAttr) (name string, l hostLink) {
	ne := binary.NativeEndian
	l.index = int(ne.Uint32(head[4:]))
	l.up = ne.Uint32(head[8:])&unix.IFF_UP != 0
	number := func(b []byte) int {
		if len(b) < 4 {
			return 0
		}
		return int(ne.Uint32(b))
	}
	for _, a := range attributes {
		switch a.Attr.Type {
		case unix.IFLA_IFNAME:
			name = unix.ByteSliceToString(a.Value)
		case unix.IFLA_MASTER:
			l.master = number(a.Value)
		case unix.IFLA_LINK:
			l.parent = number(a.Value)
		case unix.IFLA_LINKINFO:
			l.kind = kindOf(a.Value)
		}
	}
	return name, l
}

// kindOf reads the kind of a device from the attributes within one.
func kindOf(b []byte) string {
	ne := binary.NativeEndian
	for len(b) >= 4 {
		size := int(ne.Uint16(b))
		if size < 4 || size > len(b) {
			return ""
		}
		if ne.Uint16(b[2:]) == attrInfoKind {
			return unix.ByteSliceToString(b[4:size])
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return ""
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
	err = newLink(vlanUplink(1)+"-try", tag(1), 0)
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
func makeVLAN(uplink string, id int, kind linkKind) error {
	list, err := hostLinks()
	if err != nil {
		return err
	}
	over, ok := list[uplink]
	switch {
	case !ok:
		return fmt.Errorf("network device %s not found", uplink)
	case !over.up:
		return fmt.Errorf("network device %s is down", uplink)
	}
	bridge, port := list[vlanBridge(id)], list[vlanUplink(id)]
	switch {
	case bridge.index != 0 && bridge.kind != "bridge":
		return fmt.Errorf("network device %s exists, but is not a bridge; remove it", vlanBridge(id))
	case port.index != 0 && port.parent != over.index:
		return fmt.Errorf("network device %s exists with another uplink; remove it", vlanUplink(id))
	}
	if bridge.index == 0 {
		if bridge.index, err = addLink(vlanBridge(id), linkKind{name: "bridge"}, 0); err != nil {
			return err
		}
	}
	if port.index == 0 {
		if port.index, err = addLink(vlanUplink(id), kind, over.index); err != nil {
			return err
		}
	}
	master := linkAttribute{unix.IFLA_MASTER, binary.NativeEndian.AppendUint32(nil, uint32(bridge.index))}
	if err := setLinkUp(port.index, []linkAttribute{master}); err != nil {
		return err
	}
	return setLinkUp(bridge.index, nil)
}

// addLink creates a network device that the host itself does not communicate through, and returns
// its index. Another agent may create it at the same time.
func addLink(name string, kind linkKind, parent int) (int, error) {
	if err := newLink(name, kind, parent); err != nil && !errors.Is(err, unix.EEXIST) {
		return 0, fmt.Errorf("make %s (%s): %w", name, kind.name, err)
	}
	_ = os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", name, "disable_ipv6"), []byte("1"), 0)
	list, err := hostLinks()
	if err != nil {
		return 0, err
	}
	if list[name].index == 0 {
		return 0, fmt.Errorf("network device %s disappeared after its creation", name)
	}
	return list[name].index, nil
}

// newLink creates a network device; parent 0 is none.
func newLink(name string, kind linkKind, parent int) error {
	return sendLinkMessage(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, linkHeader{},
		newLinkAttributes(name, kind, parent))
}

// newLinkAttributes returns the attributes of a new network device.
func newLinkAttributes(name string, kind linkKind, parent int) (attributes []linkAttribute) {
	info := encodeAttribute(attrInfoKind, []byte(kind.name))
	if len(kind.data) > 0 {
		var data []byte
		for _, a := range kind.data {
			data = append(data, encodeAttribute(a.kind, a.value)...)
		}
		info = append(info, encodeAttribute(attrInfoData, data)...)
	}
	if parent != 0 {
		attributes = append(attributes,
			linkAttribute{unix.IFLA_LINK, binary.NativeEndian.AppendUint32(nil, uint32(parent))})
	}
	return append(attributes, linkAttribute{unix.IFLA_IFNAME, append([]byte(name), 0)},
		linkAttribute{unix.IFLA_LINKINFO, info})
}

// removeUnusedVLANs removes the bridges and tagged devices of VLANs that have no other port.
func removeUnusedVLANs() error {
	list, err := hostLinks()
	if err != nil {
		return err
	}
	ports := map[int]int{} // bridge -> devices on it
	for _, l := range list {
		ports[l.master]++
	}
	var failed []error
	for name, l := range list {
		id, made := vlanOfDevice(name)
		if !made {
			continue
		}
		bridge := list[vlanBridge(id)]
		own := 0
		if up := list[vlanUplink(id)]; up.index != 0 && up.master == bridge.index {
			own = 1
		}
		if bridge.index == 0 || ports[bridge.index] <= own {
			failed = append(failed, sendLinkMessage(unix.RTM_DELLINK, 0, linkHeader{index: l.index}, nil))
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
