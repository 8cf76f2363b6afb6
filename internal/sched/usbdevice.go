package sched

import (
	"slices"

	"github.com/buildyard/buildyard/internal/farm"
)

// deviceHold is an instance's use of a node's USB devices.
type deviceHold struct {
	want   string // the requested claim name or location
	device string // location of the assigned device; "" in records of older versions
	next   string // location of the device that a restart in progress will assign
}

// matches reports whether a claim name or a location names the device.
func matches(d farm.USBDevice, want string) bool { return d.Name == want || d.Location == want }

// attach marks the devices that instances have as busy: their assigned ones. An instance without an
// assigned location gets the first free device that it requested; those that name a location come
// before those that name a kind.
func attach(devices []farm.USBDevice, holds map[string]deviceHold) []farm.USBDevice {
	if len(holds) == 0 {
		return devices
	}
	out, left := slices.Clone(devices), sortedKeys(holds)
	given := map[string]bool{}
	for _, h := range holds {
		given[h.device], given[h.next] = true, true
	}
	for i, d := range out {
		out[i].Busy = d.Busy || d.Location != "" && given[d.Location]
	}
	left = slices.DeleteFunc(left, func(id string) bool { return holds[id].device != "" || holds[id].want == "" })
	take := func(match func(farm.USBDevice, string) bool) {
		left = slices.DeleteFunc(left, func(id string) bool {
			i := slices.IndexFunc(out, func(d farm.USBDevice) bool { return !d.Busy && match(d, holds[id].want) })
			if i >= 0 {
				out[i].Busy = true
			}
			return i >= 0
		})
	}
	take(func(d farm.USBDevice, want string) bool { return d.Location == want })
	take(func(d farm.USBDevice, want string) bool { return d.Name == want })
	return out
}

// device reports whether the node has a wanted USB device, and whether one is free.
func (n *node) device(d constraints) (has, free bool) {
	if d.usb == "" {
		return true, true
	}
	for _, dev := range n.devices {
		if matches(dev, d.usb) {
			has, free = true, free || !dev.Busy
		}
	}
	return has, free
}

// choose returns the location of a free requested device; "" when there is none.
func (n *node) choose(want string) string {
	for _, dev := range n.devices {
		if !dev.Busy && matches(dev, want) {
			return dev.Location
		}
	}
	return ""
}

// Devices returns the USB devices that a node offers; those that instances have or will get are
// busy.
func (x *Index) Devices(node string) []farm.USBDevice {
	if n := x.nodes[node]; n != nil {
		return n.devices
	}
	return nil
}

// Device returns the location of a device that an instance on a node may be assigned when it is
// restarted: its own one if it matches, else a free one. has reports whether the node offers such a
// device at all.
func (x *Index) Device(node, instance, want string) (location string, has bool) {
	n := x.nodes[node]
	if n == nil {
		return "", false
	}
	own := n.room.usb[instance].device
	for _, dev := range n.devices {
		if !matches(dev, want) {
			continue
		}
		has = true
		if dev.Location == own {
			return own, true
		}
	}
	return n.choose(want), has
}
