// Package recordtest opens the records of a controller in memory, for the tests of its parts.
//
// It does not run a controller: nothing but the test changes the records.
//
// Invariant: each database has a separate store, which ends with the test.
package recordtest

import (
	"log/slog"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// Open opens an empty database, which closes with the test. It logs nothing.
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
		Store: record.NewStore(st, nil), Tables: tables, Now: func() time.Time { return time.Now().UTC() },
		Log: slog.New(slog.DiscardHandler),
	}
}

// Commit writes changes.
func Commit(t testing.TB, db record.DB, changes ...store.Change) {
	t.Helper()
	if err := db.Store.Commit(t.Context(), changes...); err != nil {
		t.Fatal(err)
	}
}

// Term returns a leader term that does not end.
func Term(db record.DB) *record.Term {
	return record.NewTerm(db.Store, db.Now(), nil, func() {})
}
