package filter

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
)

// Order is an order of records by one of their fields. The zero value keeps their order.
type Order[T any] struct {
	name       string
	descending bool
	textOf     func(T) string  // of fields that are text; nil: number is set
	numberOf   func(T) float64 // of other fields; NaN for records without one, which come last
}

// ParseOrder parses the name of a field; with - before it the order is descending. The error is an
// *Error. "" returns the order that keeps records as they are.
func (t Table[T]) ParseOrder(text string) (o Order[T], err error) {
	if text == "" {
		return o, nil
	}
	name, down := strings.CutPrefix(text, "-")
	i := slices.IndexFunc(t, func(f Field[T]) bool { return strings.EqualFold(f.Name, name) })
	if i < 0 {
		return o, t.unknownField(0, name)
	}
	f := t[i]
	o.name, o.descending = f.Name, down
	switch {
	case f.Text != nil:
		o.textOf = f.Text
	case f.Texts != nil:
		o.textOf = func(v T) string {
			if list := f.Texts(v); len(list) > 0 {
				return list[0]
			}
			return ""
		}
	case f.Number != nil:
		o.numberOf = f.Number
	case f.Size != nil:
		o.numberOf = f.Size
	case f.Duration != nil:
		o.numberOf = func(v T) float64 {
			if n, has := f.Duration(v); has {
				return n
			}
			return math.NaN()
		}
	default:
		o.numberOf = func(v T) float64 { return ageOf(f.Age(v)) }
	}
	return o, nil
}

// String returns the text from which Order parses the same order.
func (o Order[T]) String() string {
	if o.descending {
		return "-" + o.name
	}
	return o.name
}

// ageOf orders by age: a later time is a lower age.
func ageOf(since time.Time) float64 {
	if since.IsZero() {
		return math.NaN()
	}
	return -float64(since.UnixNano())
}

// sortKey is a record's sort key.
type sortKey struct {
	text   string
	number float64
	index  int // index in the list, which keeps equal records in their order
}

func (o Order[T]) sortKeyOf(v T, at int) sortKey {
	if o.textOf != nil {
		return sortKey{text: strings.ToLower(o.textOf(v)), index: at}
	}
	return sortKey{number: o.numberOf(v), index: at}
}

// compare is less than 0 where a comes before b; never 0 for two records in a list.
func (o Order[T]) compare(a, b sortKey) int {
	first := cmp.Compare(a.index, b.index)
	switch none := math.IsNaN(a.number); {
	case none != math.IsNaN(b.number): // in either direction
		if none {
			return 1
		}
		return -1
	case none:
		return first
	}
	order := cmp.Or(strings.Compare(a.text, b.text), cmp.Compare(a.number, b.number))
	if o.descending {
		order = -order
	}
	return cmp.Or(order, first)
}

// First returns the first n records of a list in order; equal ones keep their order. It keeps no
// more than n keys, and does not change the list.
func (o Order[T]) First(list []T, n int) []T {
	n = max(min(n, len(list)), 0)
	if o.textOf == nil && o.numberOf == nil || n == 0 {
		return list[:n:n]
	}
	keys := make([]sortKey, 0, n) // the first n keys so far; once full, a heap with the greatest key in front
	for i, v := range list {
		k := o.sortKeyOf(v, i)
		switch {
		case len(keys) < n:
			if keys = append(keys, k); len(keys) == n && n < len(list) {
				for at := n/2 - 1; at >= 0; at-- {
					o.siftDown(keys, at)
				}
			}
		case o.compare(k, keys[0]) < 0:
			keys[0] = k
			o.siftDown(keys, 0)
		}
	}
	slices.SortFunc(keys, o.compare)
	first := make([]T, n)
	for i, k := range keys {
		first[i] = list[k.index]
	}
	return first
}

// siftDown restores a heap whose greatest key is first, where the key at an index may be too small.
func (o Order[T]) siftDown(heap []sortKey, at int) {
	for {
		great := 2*at + 1
		if great >= len(heap) {
			return
		}
		if great+1 < len(heap) && o.compare(heap[great+1], heap[great]) > 0 {
			great++
		}
		if o.compare(heap[great], heap[at]) <= 0 {
			return
		}
		heap[at], heap[great] = heap[great], heap[at]
		at = great
	}
}
