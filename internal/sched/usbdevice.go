package sched

import (
	"slices"

	"github.com/buildyard/buildyard/internal/farm"
)

// deviceUse is an instance's use of a node's USBDevices devices.
type deviceUse struct {
	requested    string // the requested claim name or location
	assigned     string // location of the assigned device; "" in records of older versions
	nextAssigned string // location of the device that a restart in progress will assign
}

// matchesDevice reports whether a claim name or a location names the device.
func matchesDevice(d farm.USBDevice, want string) bool { return d.Name == want || d.Location == want }

// markBusyDevices marks the devices that instances have as busy: their assigned ones. An instance without an
// assigned location gets the first free device that it requested; those that name a location come
// before those that name a kind.
func markBusyDevices(devices []farm.USBDevice, holds map[string]deviceUse) []farm.USBDevice {
	if len(holds) == 0 {
		return devices
	}
	out, left := slices.Clone(devices), sortedKeys(holds)
	given := map[string]bool{}
	for _, h := range holds {
		given[h.assigned], given[h.nextAssigned] = true, true
	}
	for i, d := range out {
		out[i].Busy = d.Busy || d.Location != "" && given[d.Location]
	}
	left = slices.DeleteFunc(left,
		func(id string) bool { return holds[id].assigned != "" || holds[id].requested == "" })
	take := func(match func(farm.USBDevice, string) bool) {
		left = slices.DeleteFunc(left, func(id string) bool {
			i := slices.IndexFunc(out, func(d farm.USBDevice) bool { return !d.Busy && match(d, holds[id].requested) })
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

// deviceAvailability reports whether the node has a wanted USBDevices device, and whether one is free.
func (n *node) deviceAvailability(d constraints) (has, free bool) {
	if d.usb == "" {
		return true, true
	}
	for _, dev := range n.devicesWithUse {
		if matchesDevice(dev, d.usb) {
			has, free = true, free || !dev.Busy
		}
	}
	return has, free
}

// chooseDevice returns the location of a free requested device; "" when there is none.
func (n *node) chooseDevice(want string) string {
	for _, dev := range n.devicesWithUse {
		if !dev.Busy && matchesDevice(dev, want) {
			return dev.Location
		}
	}
	return ""
}

// NodeDevices returns the USBDevices devices that a node offers; those that instances have or will get are
// busy.
func (x *Index) NodeDevices(node string) []farm.USBDevice {
	if n := x.nodes[node]; n != nil {
		return n.devicesWithUse
	}
	return nil
}

// RestartDevice returns the location of a device that an instance on a node may be assigned when it is
// restarted: its own one if it matches, else a free one. has reports whether the node offers such a
// device at all.
func (x *Index) RestartDevice(node, instance, want string) (location string, has bool) {
	n := x.nodes[node]
	if n == nil {
		return "", false
	}
	own := n.usage.usb[instance].assigned
	for _, dev := range n.devicesWithUse {
		if !matchesDevice(dev, want) {
			continue
		}
		has = true
		if dev.Location == own {
			return own, true
		}
	}
	return n.chooseDevice(want), has
}
