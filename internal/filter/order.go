package filter

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// Order is an order of things by one of their fields. The zero value leaves them as they are.
type Order[T any] struct {
	down bool
	text func(T) string  // of fields that are text; nil: number is set
	num  func(T) float64 // of others; NaN for things that have none, which come last
}

// Order reads the name of a field; with - before it the order is the other way round. The error is
// an *Error. "" gives the order that leaves things as they are.
func (t Table[T]) Order(text string) (o Order[T], err error) {
	if text == "" {
		return o, nil
	}
	name, down := strings.CutPrefix(text, "-")
	i := slices.IndexFunc(t, func(f Field[T]) bool { return strings.EqualFold(f.Name, name) })
	if i < 0 {
		return o, wrong(0, "there is no field %s; the fields are %s", shown(name), strings.Join(t.Names(), ", "))
	}
	f := t[i]
	o.down = down
	switch {
	case f.Text != nil:
		o.text = f.Text
	case f.Texts != nil:
		o.text = func(v T) string {
			if list := f.Texts(v); len(list) > 0 {
				return list[0]
			}
			return ""
		}
	case f.Number != nil:
		o.num = f.Number
	case f.Size != nil:
		o.num = f.Size
	case f.Length != nil:
		o.num = func(v T) float64 {
			if n, has := f.Length(v); has {
				return n
			}
			return math.NaN()
		}
	default:
		o.num = func(v T) float64 { return ageOf(f.Since(v)) }
	}
	return o, nil
}

// ageOf orders by age: what began later is younger.
func ageOf(since time.Time) float64 {
	if since.IsZero() {
		return math.NaN()
	}
	return -float64(since.UnixNano())
}

// Sort puts things in order. Those that are equal stay as they were to each other.
func (o Order[T]) Sort(list []T) {
	type keyed struct {
		v    T
		text string
		num  float64
	}
	if o.text == nil && o.num == nil {
		return
	}
	keys := make([]keyed, len(list))
	for i, v := range list {
		if keys[i].v = v; o.text != nil {
			keys[i].text = strings.ToLower(o.text(v))
		} else {
			keys[i].num = o.num(v)
		}
	}
	slices.SortStableFunc(keys, func(a, b keyed) int {
		switch none := math.IsNaN(a.num); {
		case none != math.IsNaN(b.num): // whatever the direction
			if none {
				return 1
			}
			return -1
		case none:
			return 0
		}
		order := cmp.Or(strings.Compare(a.text, b.text), cmp.Compare(a.num, b.num))
		if o.down {
			return -order
		}
		return order
	})
	for i := range keys {
		list[i] = keys[i].v
	}
}
