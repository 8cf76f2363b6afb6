package controller

import "github.com/buildyard/buildyard/internal/store"

// Limits of one transaction, below the store's own: records differ much in size.
const (
	txnChanges = 100
	txnBytes   = store.MaxBytes / 4 * 3
)

// txn gathers the changes of one transaction as long as they fit. The zero value is empty.
type txn struct {
	changes []store.Change
	bytes   int
}

// add takes a change and says whether it had room. The first one always has.
func (t *txn) add(c store.Change) bool {
	if len(t.changes) > 0 && (len(t.changes) == txnChanges || t.bytes+c.Size() > txnBytes) {
		return false
	}
	t.changes = append(t.changes, c)
	t.bytes += c.Size()
	return true
}
