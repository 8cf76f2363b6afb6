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
	many := func(n int, first ...nodeShare) []nodeShare {
		for i := len(first); i < n; i++ {
			first = append(first, nodeShare{fmt.Sprintf("n%02d", i), 0, 10})
		}
		return first
	}
	for name, c := range map[string]struct {
		shares []nodeShare
		kept   string
		many   bool
	}{
		"no node":                 {nil, "", false},
		"nothing is held":         {many(1, nodeShare{"a", 0, 0}), "", false},
		"the only node":           {many(1, nodeShare{"a", 2, 7}), "a", false},
		"a leak on the only node": {many(1, nodeShare{"a", 1, 5}), "", false},
		"one of two":              {many(2, nodeShare{"a", 2, 4}, nodeShare{"b", 1, 10}), "a", false},
		"both of two":             {many(2, nodeShare{"a", 2, 2}, nodeShare{"b", 2, 2}), "ab", true},
		"a liar and a leak":       {many(3, nodeShare{"a", 5000, 5000}, nodeShare{"b", 1, 2}), "a", false},
		"a liar that lists much": {many(3, nodeShare{"a", 50, 1_000_000}, nodeShare{"b", 2, 2},
			nodeShare{"c", 2, 2}), "bc", true},
		"two liars of twenty": {many(20, nodeShare{"a", 900, 900}, nodeShare{"b", 900, 900},
			nodeShare{"c", 1, 2}), "ab", false},
		"small nodes of old records": {many(4, nodeShare{"a", 1, 2}, nodeShare{"b", 2, 2}, nodeShare{"c", 1, 2},
			nodeShare{"d", 2, 2}), "abcd", true},
		"a leak on each of many nodes": {many(3, nodeShare{"a", 1, 10}, nodeShare{"b", 1, 10},
			nodeShare{"c", 1, 10}), "", false},
	} {
		j := assessShares(c.shares)
		kept := strings.Join(slices.Sorted(maps.Keys(j.kept)), "")
		if kept != c.kept || j.many != c.many {
			t.Errorf("%s: kept on %q, many %v", name, kept, j.many)
		}
	}
}
