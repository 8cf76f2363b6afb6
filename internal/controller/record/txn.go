package record

import (
	"context"
	"errors"
	"fmt"

	"github.com/buildyard/buildyard/internal/store"
)

// TxnChanges is how many changes fit one transaction of any backend, with some to spare.
const TxnChanges = 100

// Txn gathers the changes of one transaction as long as they fit. The zero value is
// empty and has the limits that hold for any backend.
type Txn struct {
	Limits  store.Limits
	Changes []store.Change
	bytes   int
}

// Fits returns why changes that belong together fit no transaction at all; nil when they do.
func Fits(changes []store.Change) error {
	bytes := 0
	for _, c := range changes {
		if err := c.Err(); err != nil {
			return err
		}
		bytes += c.Size()
	}
	if bytes > store.MaxBytes {
		return fmt.Errorf("%w: change of %d bytes: limit %d", store.ErrInvalid, bytes, store.MaxBytes)
	}
	return nil
}

// Add adds changes that belong together and reports whether they fit. The first ones always fit.
func (t *Txn) Add(changes ...store.Change) bool {
	if t.Limits.MaxOps == 0 {
		t.Limits = store.Limits{MaxOps: TxnChanges, MaxBytes: store.MaxBytes}
	}
	bytes := 0
	for _, c := range changes {
		bytes += c.Size()
	}
	// Sizes are estimates: a quarter is reserved for the error.
	if len(t.Changes) > 0 && (len(t.Changes)+len(changes) > t.Limits.MaxOps || t.bytes+bytes > t.Limits.MaxBytes/4*3) {
		return false
	}
	t.Changes = append(t.Changes, changes...)
	t.bytes += bytes
	return true
}

// Update changes one record as store.Update does.
func Update[T any](
	ctx context.Context, w store.Writer, table *store.Table[T], id string, change func(*T) (*T, error),
) (*T, error) {
	return store.Update(ctx, w, table, id, change)
}

// Bulk changes many records by compare-and-swap, as many in one transaction as fit: each as
// store.Update does with Change, except that none is deleted.
type Bulk[T any] struct {
	Writer store.Writer
	Limits store.Limits
	Table  *store.Table[T]
	Change func(*T) (*T, error) // returns its argument where nothing is to be written
}

// Update changes the records with these ids.
func (b *Bulk[T]) Update(ctx context.Context, ids []string) error {
	for len(ids) > 0 {
		t, done := Txn{Limits: b.Limits}, 0
		for _, id := range ids {
			if old, rev, ok := b.Table.Get(id); ok {
				next, err := b.Change(old)
				if err != nil {
					return err
				}
				if next != old && !t.Add(store.Put(b.Table, id, next, store.IfRev(rev))) {
					break
				}
			}
			done++
		}
		if err := b.write(ctx, &t, ids[:done]); err != nil {
			return err
		}
		ids = ids[done:]
	}
	return nil
}

// write commits the gathered changes of some records together; if one of them lost a race, each
// separately.
func (b *Bulk[T]) write(ctx context.Context, t *Txn, ids []string) error {
	if len(t.Changes) == 0 {
		return nil
	}
	err := b.Writer.Commit(ctx, t.Changes...)
	if !errors.Is(err, store.ErrConflict) {
		return err
	}
	for _, id := range ids {
		_, err := store.Update(ctx, b.Writer, b.Table, id, func(v *T) (*T, error) {
			if v == nil {
				return nil, nil // it is deleted, and stays so
			}
			return b.Change(v)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
