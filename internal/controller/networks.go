package controller

import (
	"slices"
	"strconv"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// VLANs returns the ids that every node offers which is not Offline and which the caller sees, in
// ascending order.
func (c *Controller) VLANs(sees func(node string) bool) []int {
	var ids []int
	first := true
	for id, node := range c.tables.Nodes.All() {
		if node.State == farm.NodeOffline || !sees(id) {
			continue
		}
		var offered []int
		if info, _, ok := c.tables.Infos.Get(id); ok {
			offered = info.VLANs
		}
		if first {
			ids, first = slices.Clone(offered), false
			continue
		}
		ids = slices.DeleteFunc(ids, func(id int) bool {
			_, has := slices.BinarySearch(offered, id)
			return !has
		})
	}
	return ids
}

// checkNetwork refuses impossible networks.
func (c *Controller) checkNetwork(ref farm.TemplateRef, o farm.StartOptions) error {
	mode := (&farm.Instance{Options: o, Template: ref}).NetworkMode()
	wired := mode == farm.NetworkBridge || mode == farm.NetworkDisconnected
	switch {
	case o.VLAN != "" && mode != farm.NetworkBridge:
		whose := "the template has " + mode
		if o.NetworkMode != "" {
			whose = "network_mode is " + mode
		}
		return farm.Refused("vlan_tag needs the network mode bridge, and %s: give network_mode bridge as well, or leave it out", whose)
	case o.VLAN != "" && !c.offersVLAN(o.VLAN):
		return farm.Refused("vlan_tag %s cannot be used: no node offers that VLAN; leave it out, or have a node offer it (buildnode run --vlan)", o.VLAN)
	case wired && len(o.Ports) > 0:
		return farm.Refused("port_forwarding_override cannot be used: the network mode %s has no port rules; leave it out, or use shared, nat or host", mode)
	case mode == farm.NetworkBridge && o.NetworkLocal == "forceOn":
		return farm.Refused("network_local forceOn cannot be used: a guest in the network mode bridge cannot be isolated; leave it out, or use host or disconnected")
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

// modes are the network modes of the kinds in saved states.
var modes = map[string]string{"tap": farm.NetworkBridge, "none": farm.NetworkDisconnected, "user": farm.NetworkShared}

// network sets how a version's guest is connected: as its saved state requires, else as its
// configuration describes.
func network(ref *farm.TemplateRef, config api.TemplateConfig) {
	if len(config.NetworkCards) > 0 {
		ref.Network = farm.Clip(config.NetworkCards[0].Mode, maxLabel)
	}
	if p := config.StatePin; ref.Suspended && p != nil {
		ref.Network = firstOf(modes[p.Network], ref.Network)
		if p.VLAN > 0 && p.VLAN <= farm.MaxVLAN {
			ref.VLAN = strconv.Itoa(p.VLAN)
		}
	}
}
