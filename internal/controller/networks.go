package controller

import (
	"slices"

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
