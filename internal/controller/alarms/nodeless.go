package alarms

import (
	"cmp"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
)

// NodelessGroups returns the groups with pending instances of which neither they nor their fallbacks have an Active
// node, those with the most instances first.
func NodelessGroups(tables *record.Tables) []NodelessGroup {
	served := map[string]bool{} // IDs of groups with an Active node
	for _, node := range tables.Nodes.All() {
		if node.VisibleState() == farm.NodeActive {
			for _, id := range node.Groups {
				served[id] = true
			}
		}
	}
	pending := map[string]int{} // ID of a group -> instances
	for _, inst := range tables.Instances.All() {
		if inst.GroupID != "" && inst.AwaitsPlacement() {
			pending[inst.GroupID]++
		}
	}
	var list []NodelessGroup
	for id, n := range pending {
		if group, _, ok := tables.Groups.Get(id); ok && !isServed(tables, id, served) {
			list = append(list, NodelessGroup{id, group.Name, n})
		}
	}
	slices.SortFunc(list, func(a, b NodelessGroup) int {
		return cmp.Or(cmp.Compare(b.Pending, a.Pending), strings.Compare(a.Name, b.Name))
	})
	return list
}

// isServed reports whether a group or one of its fallbacks is served.
func isServed(tables *record.Tables, id string, served map[string]bool) bool {
	for seen := map[string]bool{}; id != "" && !seen[id]; {
		if served[id] {
			return true
		}
		seen[id] = true
		group, _, ok := tables.Groups.Get(id)
		if !ok {
			return false
		}
		id = group.Fallback
	}
	return false
}
