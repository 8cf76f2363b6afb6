// Package recordtest opens databases for tests of the parts of the controller.
//
// It has no records: a test writes those that it needs.
//
// Invariant: a database is in memory alone, and is closed at the end of its test.
package recordtest

import (
	"log/slog"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// Open returns an empty database whose clock is time.Now.
func Open(t testing.TB) record.DB {
	t.Helper()
	tables := record.NewTables(nil)
	st, err := store.Open(t.Context(), mem.New(), store.Options{Tables: tables.All()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return record.DB{
		Store: record.NewStore(st, nil), Tables: tables,
		Now: func() time.Time { return time.Now().UTC() }, Log: slog.New(slog.DiscardHandler),
	}
}

// Term returns a leader term that does not end.
func Term(db record.DB) *record.Term {
	return record.NewTerm(db.Store, db.Now(), make(chan struct{}), func() {})
}
