package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/buildyard/buildyard/internal/store"
)

// txnChanges is how many changes fit one transaction of any backend, with some to spare.
const txnChanges = 100

// txn gathers the changes of one transaction as long as they fit. The zero value is
// empty and has the limits that hold for any backend.
type txn struct {
	limits  store.Limits
	changes []store.Change
	bytes   int
}

// fits returns why changes that belong together fit no transaction at all; nil when they do.
func fits(changes []store.Change) error {
	bytes := 0
	for _, c := range changes {
		if err := c.Err(); err != nil {
			return err
		}
		bytes += c.Size()
	}
	if bytes > store.MaxBytes {
		return fmt.Errorf("%w: a change of %d bytes, limit %d", store.ErrInvalid, bytes, store.MaxBytes)
	}
	return nil
}

// add adds changes that belong together and reports whether they fit. The first ones always fit.
func (t *txn) add(changes ...store.Change) bool {
	if t.limits.Ops == 0 {
		t.limits = store.Limits{Ops: txnChanges, Bytes: store.MaxBytes}
	}
	bytes := 0
	for _, c := range changes {
		bytes += c.Size()
	}
	// Sizes are estimates: a quarter is reserved for the error.
	if len(t.changes) > 0 && (len(t.changes)+len(changes) > t.limits.Ops || t.bytes+bytes > t.limits.Bytes/4*3) {
		return false
	}
	t.changes = append(t.changes, changes...)
	t.bytes += bytes
	return true
}

// bulk changes many records by compare-and-swap, as many in one transaction as fit: each as
// store.Update does with change, except that none is deleted.
type bulk[T any] struct {
	w      store.Writer
	limits store.Limits
	table  *store.Table[T]
	change func(*T) (*T, error)
}

// update changes the records with these ids.
func (b *bulk[T]) update(ctx context.Context, ids []string) error {
	for len(ids) > 0 {
		t, done := txn{limits: b.limits}, 0
		for _, id := range ids {
			if old, rev, ok := b.table.Get(id); ok {
				next, err := b.change(old)
				if err != nil {
					return err
				}
				if next != old && !t.add(store.Put(b.table, id, next, store.IfRev(rev))) {
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
func (b *bulk[T]) write(ctx context.Context, t *txn, ids []string) error {
	if len(t.changes) == 0 {
		return nil
	}
	err := b.w.Commit(ctx, t.changes...)
	if !errors.Is(err, store.ErrConflict) {
		return err
	}
	for _, id := range ids {
		_, err := store.Update(ctx, b.w, b.table, id, func(v *T) (*T, error) {
			if v == nil {
				return nil, nil // it is deleted, and stays so
			}
			return b.change(v)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
