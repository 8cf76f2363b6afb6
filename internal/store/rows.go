package store

import (
	"fmt"
	"iter"
	"strings"
)

// Row is one record of a view together with its bytes of WithCachedEncoding.
type Row[T any] struct {
	entry  *tableEntry[T]
	encode func(*T) []byte
}

// ID is the record's id.
func (r Row[T]) ID() string { return r.entry.id }

// Value is the record; it is shared and must not be changed.
func (r Row[T]) Value() *T { return r.entry.record }

// Same reports whether both are the same state of the same record. It reads neither of them.
func (r Row[T]) Same(other Row[T]) bool { return r.entry == other.entry }

// Encoded returns the bytes of WithCachedEncoding, nil without one. They are shared.
func (r Row[T]) Encoded() []byte {
	if r.encode == nil {
		return nil
	}
	r.entry.encodeOnce.Do(func() { r.entry.encoded = r.encode(r.entry.record) })
	return r.entry.encoded
}

// Row returns one record.
func (v *View[T]) Row(id string) (Row[T], bool) {
	e, ok := v.entries.get(id)
	return Row[T]{e, v.table.encode}, ok
}

// Rows yields the records whose id is greater than after, in order; all of them for "".
func (v *View[T]) Rows(after string) iter.Seq[Row[T]] {
	return func(yield func(Row[T]) bool) {
		for id, e := range v.entries.rangeFrom(after) {
			if id == after {
				continue
			}
			if !yield(Row[T]{e, v.table.encode}) {
				return
			}
		}
	}
}

// RowsWhere yields the records that index name files under value and whose id is greater than after, in order.
func (v *View[T]) RowsWhere(name, value, after string) iter.Seq[Row[T]] {
	return func(yield func(Row[T]) bool) {
		for id, e := range v.entriesWhere(name, value) {
			if id > after && !yield(Row[T]{e, v.table.encode}) {
				return
			}
		}
	}
}

// RowsOrderedBy yields the records in the order of their values in index name, those with equal values in
// the order of ids, without the first skip ones. The index has one value per record.
func (v *View[T]) RowsOrderedBy(name string, skip int) iter.Seq[Row[T]] {
	by := v.indexes[v.table.indexNumber(name)]
	return func(yield func(Row[T]) bool) {
		for key := range by.keysAfterFirst(skip) {
			_, id, _ := strings.Cut(key, "\x00")
			if e, ok := v.entries.get(id); ok && !yield(Row[T]{e, v.table.encode}) {
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
