package controller

import (
	"errors"
	"testing"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// blockedBackend is a backend that reports why it refuses changes.
type blockedBackend struct {
	store.Backend
	reason string
}

func (b *blockedBackend) BlockedReason() string { return b.reason }

// openOn opens a controller on a backend, which does not run.
func openOn(t *testing.T, b store.Backend) *Controller {
	t.Helper()
	tables := record.NewTables(nil)
	st, err := store.Open(t.Context(), b, store.Options{Tables: tables.All()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	c, err := New(t.Context(), st, tables, Options{Registry: &shelf{}, RegistryAddress: "http://registry"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestHealthyHasTheReasonOfTheStore: readiness fails with the sentence of the store.
func TestHealthyHasTheReasonOfTheStore(t *testing.T) {
	b := &blockedBackend{Backend: mem.New()}
	c := openOn(t, b)
	if err := c.Healthy(); err != nil {
		t.Fatal(err)
	}
	b.reason = "The store is full"
	var unavailable *farm.Error
	if err := c.Healthy(); !errors.As(err, &unavailable) || unavailable.Message != b.reason ||
		unavailable.Code != farm.CodeUnavailable {
		t.Errorf("healthy: %v", err)
	}
}
