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

// fits says why changes that belong together fit no transaction at all; nil when they do.
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

// add takes changes that belong together and says whether they had room. The first
// ones always have.
func (t *txn) add(changes ...store.Change) bool {
	if t.limits.Ops == 0 {
		t.limits = store.Limits{Ops: txnChanges, Bytes: store.MaxBytes}
	}
	bytes := 0
	for _, c := range changes {
		bytes += c.Size()
	}
	// Sizes are estimated: a quarter is kept for what they miss.
	if len(t.changes) > 0 && (len(t.changes)+len(changes) > t.limits.Ops || t.bytes+bytes > t.limits.Bytes/4*3) {
		return false
	}
	t.changes = append(t.changes, changes...)
	t.bytes += bytes
	return true
}

// updateAll changes many records by compare-and-swap, as many in one transaction as fit:
// each as store.Update does, but that none is deleted.
func updateAll[T any](ctx context.Context, w store.Writer, limits store.Limits, table *store.Table[T], ids []string, fn func(*T) (*T, error)) error {
	for len(ids) > 0 {
		t, done := txn{limits: limits}, 0
		for _, id := range ids {
			if old, rev, ok := table.Get(id); ok {
				next, err := fn(old)
				if err != nil {
					return err
				}
				if next != old && !t.add(store.Put(table, id, next, store.IfRev(rev))) {
					break
				}
			}
			done++
		}
		if err := commitOrEach(ctx, w, &t, table, ids[:done], fn); err != nil {
			return err
		}
		ids = ids[done:]
	}
	return nil
}

// commitOrEach writes what updateAll gathered; where some of it lost a race, each record by itself.
func commitOrEach[T any](ctx context.Context, w store.Writer, t *txn, table *store.Table[T], ids []string, fn func(*T) (*T, error)) error {
	if len(t.changes) == 0 {
		return nil
	}
	err := w.Commit(ctx, t.changes...)
	if !errors.Is(err, store.ErrConflict) {
		return err
	}
	for _, id := range ids {
		_, err := store.Update(ctx, w, table, id, func(v *T) (*T, error) {
			if v == nil {
				return nil, nil //nolint:nilnil // it is gone, and stays so
			}
			return fn(v)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
