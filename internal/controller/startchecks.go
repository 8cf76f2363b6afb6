package controller

import (
	"context"
	"slices"
	"strconv"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// checkedStart is a start request with the result of its checks.
type checkedStart struct {
	StartRequest
	ref  farm.TemplateRef
	note string // for the message of the instances
}

// startCheck is a row of the table of checks that a start request passes before anything is written.
type startCheck struct {
	about string // in a few words
	// run returns why the request is refused; nil when it is not. It may note in the request what the
	// later checks, and the use case, need.
	run func(ctx context.Context, c *Controller, s *checkedStart) error
}

// startChecks are the checks of a start request, in their order. Those of types and ranges come before them, those of
// the caller's limits after.
var startChecks = []startCheck{
	{"template and version", checkTemplate},
	{"pinned node", checkPinnedNode},
	{"group", checkGroup},
	{"parameters of a suspended version", checkSuspended},
	{"macOS guest", checkMacOS},
	{"USB device", checkDevice},
	{"network", checkNetwork},
	{"MAC address", checkMAC},
}

// maxID is how much of an id an error repeats, in bytes.
const maxID = 255

// checkTemplate resolves the version.
func checkTemplate(ctx context.Context, c *Controller, s *checkedStart) (err error) {
	s.ref, s.note, err = c.Templates.Resolve(ctx, s.TemplateID, s.Tag, s.Version)
	return err
}

// checkPinnedNode refuses a start on a node that does not exist, by name.
func checkPinnedNode(ctx context.Context, c *Controller, s *checkedStart) error {
	id := s.Options.PinnedNode
	if id == "" {
		return nil
	}
	_, _, err := record.Lookup(ctx, c.tables.Nodes, id)
	return NodeNotFound(id, err)
}

// NodeNotFound returns an error that names the node of a start when err means that it does not
// exist, and every other error as it is.
func NodeNotFound(id string, err error) error {
	if farm.CodeOf(err) == farm.CodeNotFound {
		return farm.Refused("Node %s not found", farm.Clip(id, maxID))
	}
	return err
}

// checkGroup refuses a start in a group that does not exist, by name.
func checkGroup(ctx context.Context, c *Controller, s *checkedStart) error {
	if s.GroupID == "" {
		return nil
	}
	_, _, err := c.Groups.Get(ctx, s.GroupID)
	if farm.CodeOf(err) == farm.CodeNotFound {
		return farm.Refused("Group %s not found", farm.Clip(s.GroupID, maxID))
	}
	return err
}

// pinned are the parameters of a start that a saved state fixes: it can be loaded only into the
// same virtual hardware.
var pinned = []struct {
	name  string
	given func(o farm.StartOptions) bool
}{
	{"vcpu", func(o farm.StartOptions) bool { return o.CPUs != 0 }},
	{"vram", func(o farm.StartOptions) bool { return o.MemoryMB != 0 }},
	{"mac_address", func(o farm.StartOptions) bool { return o.MACAddress != "" }},
	{"vlan_tag", func(o farm.StartOptions) bool { return o.VLAN != "" }},
	{"network_mode", func(o farm.StartOptions) bool { return o.NetworkMode != "" }},
	{"video_controller", func(o farm.StartOptions) bool { return o.Video != "" }},
	{"hw_serial", func(o farm.StartOptions) bool { return o.HardwareSerial != "" }},
	{"hw_uuid", func(o farm.StartOptions) bool { return o.HardwareUUID != "" }},
}

// checkSuspended refuses changes by a start that a suspended version does not allow.
func checkSuspended(_ context.Context, _ *Controller, s *checkedStart) error {
	if !s.ref.Suspended {
		return nil
	}
	for _, p := range pinned {
		if p.given(s.Options) {
			return farm.Refused(
				"%s cannot be set: version %s of template %s is suspended, which pins it; leave it out, or start "+
					"a version that was saved stopped",
				p.name, s.ref.Tag, s.ref.Name)
		}
	}
	return nil
}

// checkMacOS refuses what no macOS guest can have.
func checkMacOS(_ context.Context, _ *Controller, s *checkedStart) error {
	return s.ref.CheckMacOS(&s.Options)
}

// checkDevice refuses a USB device that no node offers.
func checkDevice(_ context.Context, c *Controller, s *checkedStart) error {
	device := s.Options.USBDevice
	if device == "" {
		return nil
	}
	for _, info := range c.tables.Infos.All() {
		if slices.ContainsFunc(info.USBDevices,
			func(u farm.USBDevice) bool { return u.Name == device || u.Location == device }) {
			return nil
		}
	}
	return farm.Refused(
		"usb_device %s cannot be attached: no node offers such a device; leave it out, or claim the device on a node "+
			"(buildnode usb claim)", device)
}

// checkNetwork refuses impossible networks.
func checkNetwork(_ context.Context, c *Controller, s *checkedStart) error {
	o := s.Options
	mode := (&farm.Instance{Options: o, Template: s.ref}).NetworkMode()
	wired := mode == farm.NetworkBridge || mode == farm.NetworkDisconnected
	switch {
	case o.VLAN != "" && mode != farm.NetworkBridge:
		whose := "the template has " + mode
		if o.NetworkMode != "" {
			whose = "network_mode is " + mode
		}
		return farm.Refused(
			"vlan_tag requires the network mode bridge, but %s: set network_mode to bridge, or leave vlan_tag out",
			whose)
	case o.VLAN != "" && !c.offersVLAN(o.VLAN):
		return farm.Refused(
			"vlan_tag %s cannot be used: no node offers that VLAN; leave it out, or have a node offer it (buildnode "+
				"run --vlan)", o.VLAN)
	case wired && len(o.Ports) > 0:
		return farm.Refused(
			"port_forwarding_override cannot be used: the network mode %s has no port rules; leave it out, or use "+
				"shared, nat or host", mode)
	case mode == farm.NetworkBridge && o.NetworkLocal == "forceOn":
		return farm.Refused(
			"network_local forceOn cannot be used: a guest in the network mode bridge cannot be isolated; leave it " +
				"out, or use host or disconnected")
	}
	return nil
}

// offersVLAN reports whether some node offers a VLAN.
func (c *Controller) offersVLAN(text string) bool {
	id, _ := strconv.Atoi(text)
	for _, info := range c.tables.Infos.All() {
		if _, has := slices.BinarySearch(info.VLANs, id); has {
			return true
		}
	}
	return false
}

// checkMAC refuses a MAC address that cannot be assigned.
func checkMAC(_ context.Context, c *Controller, s *checkedStart) error {
	return c.MACs.Check(s.Options)
}
