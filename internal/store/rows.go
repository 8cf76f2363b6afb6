package store

import (
	"fmt"
	"iter"
	"strings"
)

// Row is one record of a view together with its bytes of WithEncoded.
type Row[T any] struct {
	entry  *entry[T]
	render func(*T) []byte
}

// ID is the record's id.
func (r Row[T]) ID() string { return r.entry.id }

// Value is the record; it is shared and must not be changed.
func (r Row[T]) Value() *T { return r.entry.val }

// Encoded returns the bytes of WithEncoded, nil without one. They are shared.
func (r Row[T]) Encoded() []byte {
	if r.render == nil {
		return nil
	}
	r.entry.render.Do(func() { r.entry.bytes = r.render(r.entry.val) })
	return r.entry.bytes
}

// Row returns one record.
func (v *View[T]) Row(id string) (Row[T], bool) {
	e, ok := v.main.get(id)
	return Row[T]{e, v.table.render}, ok
}

// Rows yields the records whose id is greater than after, in order; all of them for "".
func (v *View[T]) Rows(after string) iter.Seq[Row[T]] {
	return func(yield func(Row[T]) bool) {
		for id, e := range v.main.from(after) {
			if id == after {
				continue
			}
			if !yield(Row[T]{e, v.table.render}) {
				return
			}
		}
	}
}

// RowsWhere yields the records that index name files under value and whose id is greater than after, in order.
func (v *View[T]) RowsWhere(name, value, after string) iter.Seq[Row[T]] {
	return func(yield func(Row[T]) bool) {
		for id, e := range v.filed(name, value) {
			if id > after && !yield(Row[T]{e, v.table.render}) {
				return
			}
		}
	}
}

// RowsBy yields the records in the order of their values in index name, those with equal values in
// the order of ids, without the first skip ones. The index has one value per record.
func (v *View[T]) RowsBy(name string, skip int) iter.Seq[Row[T]] {
	by := v.by[v.table.index(name)]
	return func(yield func(Row[T]) bool) {
		for key := range by.skip(skip) {
			_, id, _ := strings.Cut(key, "\x00")
			if e, ok := v.main.get(id); ok && !yield(Row[T]{e, v.table.render}) {
				return
			}
		}
	}
}

// Sum returns the totals of the records with a key.
func (v *View[T]) Sum(name, key string) Amounts {
	for i, sum := range v.table.sums {
		if sum.name == name {
			a, _ := v.sums[i].get(key)
			return a
		}
	}
	panic(fmt.Sprintf("store: table %q has no sums %q", v.table.kind, name))
}
