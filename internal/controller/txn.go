package controller

import (
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
