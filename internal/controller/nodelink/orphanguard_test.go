package nodelink

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestAssessShares: one node, or a tenth of the nodes, has no effect on the others.
func TestAssessShares(t *testing.T) {
	many := func(n int, first ...nodeOrphanCount) []nodeOrphanCount {
		for i := len(first); i < n; i++ {
			first = append(first, nodeOrphanCount{fmt.Sprintf("n%02d", i), 0, 10})
		}
		return first
	}
	for name, c := range map[string]struct {
		shares []nodeOrphanCount
		kept   string
		many   bool
	}{
		"no node":                 {nil, "", false},
		"nothing is held":         {many(1, nodeOrphanCount{"a", 0, 0}), "", false},
		"the only node":           {many(1, nodeOrphanCount{"a", 2, 7}), "a", false},
		"a leak on the only node": {many(1, nodeOrphanCount{"a", 1, 5}), "", false},
		"one of two":              {many(2, nodeOrphanCount{"a", 2, 4}, nodeOrphanCount{"b", 1, 10}), "a", false},
		"both of two":             {many(2, nodeOrphanCount{"a", 2, 2}, nodeOrphanCount{"b", 2, 2}), "ab", true},
		"a liar and a leak":       {many(3, nodeOrphanCount{"a", 5000, 5000}, nodeOrphanCount{"b", 1, 2}), "a", false},
		"a liar that lists much": {many(3, nodeOrphanCount{"a", 50, 1_000_000}, nodeOrphanCount{"b", 2, 2},
			nodeOrphanCount{"c", 2, 2}), "bc", true},
		"two liars of twenty": {many(20, nodeOrphanCount{"a", 900, 900}, nodeOrphanCount{"b", 900, 900},
			nodeOrphanCount{"c", 1, 2}), "ab", false},
		"small nodes of old records": {many(4, nodeOrphanCount{"a", 1, 2}, nodeOrphanCount{"b", 2, 2},
			nodeOrphanCount{"c", 1, 2}, nodeOrphanCount{"d", 2, 2}), "abcd", true},
		"a leak on each of many nodes": {many(3, nodeOrphanCount{"a", 1, 10}, nodeOrphanCount{"b", 1, 10},
			nodeOrphanCount{"c", 1, 10}), "", false},
	} {
		j := assessOrphanRatios(c.shares)
		kept := strings.Join(slices.Sorted(maps.Keys(j.kept)), "")
		if kept != c.kept || j.many != c.many {
			t.Errorf("%s: kept on %q, many %v", name, kept, j.many)
		}
	}
}
