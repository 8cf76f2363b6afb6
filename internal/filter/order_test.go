package filter_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/filter"
)

type thing struct {
	name string
	size float64
	made time.Time
}

var things = filter.Table[thing]{
	{Name: "name", Text: func(t thing) string { return t.name }},
	{Name: "size", Size: func(t thing) float64 { return t.size }},
	{Name: "age", Since: func(t thing) time.Time { return t.made }},
	{Name: "life", Length: func(t thing) (float64, bool) { return t.size, t.size > 1 }},
	{Name: "names", Texts: func(t thing) []string { return strings.Fields(t.name) }},
}

// TestOrder: by any field, either way round; what has no value comes last both ways, equal things
// stay in order.
func TestOrder(t *testing.T) {
	now := time.Unix(1000, 0)
	list := []thing{{"b", 1, now}, {"A", 3, time.Time{}}, {"c", 2, now.Add(-time.Hour)}, {"a", 2, now.Add(time.Hour)}}
	for order, want := range map[string]string{
		"":      "b A c a",
		"name":  "A a b c",
		"-name": "c b A a",
		"names": "A a b c",
		"size":  "b c a A",
		"-size": "A c a b",
		"age":   "a b c A",
		"-age":  "c b a A",
		"life":  "c a A b",
		"-life": "A c a b",
		"-Name": "c b A a",
	} {
		o, err := things.Order(order)
		if err != nil {
			t.Errorf("%s: %v", order, err)
			continue
		}
		sorted := slices.Clone(list)
		o.Sort(sorted)
		var got []string
		for _, v := range sorted {
			got = append(got, v.name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("by %q: %v, want %s", order, got, want)
		}
	}
	if _, err := things.Order("colour"); err == nil || !strings.Contains(err.Error(), "the fields are age, life, name") {
		t.Errorf("an unknown field: %v", err)
	}
}
