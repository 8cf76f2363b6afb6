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

// add takes changes that belong together and says whether they had room. The first
// ones always have.
func (t *txn) add(changes ...store.Change) bool {
	bytes := 0
	for _, c := range changes {
		bytes += c.Size()
	}
	if len(t.changes) > 0 && (len(t.changes)+len(changes) > txnChanges || t.bytes+bytes > txnBytes) {
		return false
	}
	t.changes = append(t.changes, changes...)
	t.bytes += bytes
	return true
}
