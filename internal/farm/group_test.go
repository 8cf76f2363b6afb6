package farm_test

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestFallbackLoop: a group X has an ID x, a name X, and the fallback of its row.
func TestFallbackLoop(t *testing.T) {
	for fallbacks, want := range map[string]string{
		"a":               "",
		"a>a":             "A A",
		"a>b":             "", // b does not exist
		"a>b b":           "",
		"a>b b>a":         "A B A",
		"a>b b>c c>a":     "A B C A",
		"a>b b>c c>b":     "", // a loop that does not lead back to the group
		"a>b b>b":         "",
		"a>b b>c c>d d>e": "",
	} {
		groups := map[string]*farm.Group{}
		for row := range strings.FieldsSeq(fallbacks) {
			id, fallback, _ := strings.Cut(row, ">")
			groups[id] = &farm.Group{ID: id, Name: strings.ToUpper(id), Fallback: fallback}
		}
		asked := 0
		got := farm.FallbackCycle(groups["a"], func(id string) *farm.Group {
			if asked++; asked > len(groups)+1 {
				t.Fatalf("%s: it is followed without end", fallbacks)
			}
			return groups[id]
		})
		if strings.Join(got, " ") != want {
			t.Errorf("%s: the loop is %v, want %s", fallbacks, got, want)
		}
	}
}
