package authstore

import (
	"fmt"

	"github.com/buildyard/buildyard/internal/store"
)

// cachedRecord is a record in memory. A store leaves out what its codec refuses; here that would
// look as if it had never existed, so that it is kept with the reason.
type cachedRecord[T any] struct {
	Value  T
	Damage error // why the record cannot be read; nil: Value is the record
}

// newCachedRecord makes a row of a value.
func newCachedRecord[T any](v T) *cachedRecord[T] { return &cachedRecord[T]{Value: v} }

// newTable makes a table of rows.
func newTable[T any](
	kind store.Kind, encode func(T) ([]byte, error), decode func([]byte) (T, error),
) *store.Table[cachedRecord[T]] {
	return store.NewTable(kind, store.WithCodec(
		func(r *cachedRecord[T]) ([]byte, error) {
			if r.Damage != nil {
				return nil, r.Damage
			}
			return encode(r.Value)
		},
		func(raw []byte) (*cachedRecord[T], error) {
			v, err := decode(raw)
			return &cachedRecord[T]{v, err}, nil
		}))
}

// unreadable is the error of a damaged record. It contains nothing of the record.
func unreadable(kind store.Kind, id string, why error) error {
	return fmt.Errorf("the record %s/%s cannot be read: %w", kind, id, why)
}
