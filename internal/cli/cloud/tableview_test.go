package cloud

import (
	"slices"
	"testing"
)

// TestFitColumns: wide columns become narrower, but not the first one, and none narrower than is of use.
func TestFitColumns(t *testing.T) {
	for name, c := range map[string]struct {
		width   []int
		columns int
		want    []int
	}{
		"no terminal":      {[]int{36, 60, 10}, 0, []int{36, 60, 10}},
		"it fits":          {[]int{36, 20, 10}, 80, []int{36, 20, 10}},
		"one is too wide":  {[]int{36, 60, 10}, 80, []int{36, 30, 10}},
		"two are too wide": {[]int{36, 60, 10, 40}, 100, []int{36, 24, 10, 24}},
		"too many":         {[]int{36, 30, 30, 30}, 60, []int{36, 12, 12, 12}},
		"nothing":          {nil, 80, nil},
	} {
		if got := fitColumns(c.width, c.columns); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
