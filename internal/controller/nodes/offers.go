package nodes

import (
	"cmp"
	"slices"

	"github.com/buildyard/buildyard/internal/farm"
)

// VLANs returns the ids that every node offers which is not Offline and which the caller sees, in
// ascending order.
func (n *Nodes) VLANs(sees func(node string) bool) []int {
	var ids []int
	for i, node := range n.online(sees) {
		offered := n.db.Tables.NodeInfo(node).VLANs
		if i == 0 {
			ids = slices.Clone(offered)
			continue
		}
		ids = slices.DeleteFunc(ids, func(id int) bool {
			_, has := slices.BinarySearch(offered, id)
			return !has
		})
	}
	return ids
}

// USB returns the number of devices of each claim name, or location where a claim has no name, on
// all nodes that are not Offline and that the caller sees, and the number that instances use.
func (n *Nodes) USB(sees func(node string) bool) map[string]farm.USBCount {
	counts := map[string]farm.USBCount{}
	for _, list := range n.opts.Devices(n.online(sees)...) {
		for _, d := range list {
			name := cmp.Or(d.Name, d.Location)
			count := counts[name]
			if d.Busy {
				count.Busy++
			} else {
				count.Available++
			}
			counts[name] = count
		}
	}
	return counts
}

// online returns the ids of the nodes that are not Offline and that the caller sees.
func (n *Nodes) online(sees func(node string) bool) (ids []string) {
	for id, node := range n.db.Tables.Nodes.All() {
		if node.State != farm.NodeOffline && sees(id) {
			ids = append(ids, id)
		}
	}
	return ids
}
