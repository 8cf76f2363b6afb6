package filter_test

import (
	"cmp"
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
	{Name: "age", Age: func(t thing) time.Time { return t.made }},
	{Name: "life", Duration: func(t thing) (float64, bool) { return t.size, t.size > 1 }},
	{Name: "names", Texts: func(t thing) []string { return strings.Fields(t.name) }},
}

// TestOrder: by any field, in either direction; records without a value come last in both, equal
// records keep their order.
func TestOrder(t *testing.T) {
	now := time.Unix(1000, 0)
	list := []thing{
		{"b", 1, now},
		{"A", 3, time.Time{}},
		{"c", 2, now.Add(-time.Hour)},
		{"a", 2, now.Add(time.Hour)},
		{"", 2, now.Add(2 * time.Hour)},
	}
	for order, want := range map[string]string{
		"":       "b A c a .",
		"name":   ". A a b c",
		"-name":  "c b A a .",
		"names":  ". A a b c",
		"-names": "c b A a .",
		"size":   "b c a . A",
		"-size":  "A c a . b",
		"age":    ". a b c A",
		"-age":   "c b a . A",
		"life":   "c a . A b",
		"-life":  "A c a . b",
		"-Name":  "c b A a .",
	} {
		o, err := things.ParseOrder(order)
		if err != nil {
			t.Errorf("%s: %v", order, err)
			continue
		}
		sorted := o.First(list, len(list))
		for n := range len(list) + 2 {
			if first := o.First(list, n); !slices.Equal(first, sorted[:min(n, len(list))]) {
				t.Errorf("the first %d by %q: %v, want those of %v", n, order, first, sorted)
			}
		}
		if o.String() != strings.ToLower(order) {
			t.Errorf("%q says that it is %q", order, o)
		}
		var got []string
		for _, v := range sorted {
			got = append(got, cmp.Or(v.name, "."))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("by %q: %v, want %s", order, got, want)
		}
	}
	if _, err := things.ParseOrder("colour"); err == nil ||
		!strings.Contains(err.Error(), "the fields are age, life, name") {
		t.Errorf("an unknown field: %v", err)
	}
}

// TestFirst: the first of many are those of the whole order, equal ones too.
func TestFirst(t *testing.T) {
	list := make([]thing, 500)
	for i := range list {
		list[i] = thing{name: strings.Repeat("x", i*7%13), size: float64(i * 31 % 97), made: time.Unix(int64(i), 0)}
	}
	for _, by := range []string{"name", "-name", "size", "-size", "age", "life", "-life"} {
		o, err := things.ParseOrder(by)
		if err != nil {
			t.Fatal(err)
		}
		sorted := o.First(list, len(list))
		for _, n := range []int{1, 2, 99, 100, 499, 500} {
			if !slices.Equal(o.First(list, n), sorted[:n]) {
				t.Errorf("the first %d by %s are not those of the whole order", n, by)
			}
		}
	}
}
