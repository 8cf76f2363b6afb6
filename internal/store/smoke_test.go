package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

type rec struct{ N int }

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	b := mem.New()
	tab := store.NewTable[rec]("i")
	s, err := store.Open(ctx, b, store.Options{Tables: []store.AnyTable{tab}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, store.Put(tab, "a", &rec{1}, store.IfAbsent)); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(ctx, store.Put(tab, "a", &rec{1}, store.IfAbsent)); !errors.Is(err, store.ErrConflict) {
		t.Fatal(err)
	}
	if _, err := store.Update(ctx, s, tab, "a", func(r *rec) (*rec, error) { return &rec{r.N + 1}, nil }); err != nil {
		t.Fatal(err)
	}
	if v, _, _ := tab.Get("a"); v.N != 2 {
		t.Fatal(v)
	}
	if err := s.Barrier(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
