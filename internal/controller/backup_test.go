package controller

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// upkept is a backend that supports backups and that may be busy.
type upkept struct {
	store.Backend
	busy string
	fail error
}

func (u *upkept) BlockedReason() string { return u.busy }
func (u *upkept) Snapshot(context.Context) (io.ReadCloser, int64, error) {
	return io.NopCloser(strings.NewReader("all")), 3, u.fail
}

func openUpkept(t *testing.T) (*Controller, *upkept) {
	t.Helper()
	b, tables := &upkept{Backend: mem.New()}, record.NewTables(nil)
	st, err := store.Open(t.Context(), b, store.Options{Tables: tables.All()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	c, err := New(t.Context(), st, tables, Options{Registry: &shelf{}, RegistryAddress: "http://registry"})
	if err != nil {
		t.Fatal(err)
	}
	return c, b
}

// TestOneBackupAtATime: one backup runs at a time, whatever the result of the one before.
func TestOneBackupAtATime(t *testing.T) {
	c, b := openUpkept(t)
	first, size, err := c.Backup(t.Context())
	if err != nil || size != 3 {
		t.Fatal(size, err)
	}
	if _, _, err := c.Backup(t.Context()); farm.CodeOf(err) != farm.CodeBusy {
		t.Errorf("a second backup beside the first: %v", err)
	}
	if err := errors.Join(first.Close(), first.Close()); err != nil {
		t.Error(err)
	}
	b.fail = errors.New("no snapshot")
	if _, _, err := c.Backup(t.Context()); !errors.Is(err, b.fail) {
		t.Error(err)
	}
	b.fail = nil
	again, _, err := c.Backup(t.Context())
	if err != nil {
		t.Fatalf("after one that ended and one that failed: %v", err)
	}
	_ = first.Close() // for the third time: it must not end the running backup
	if _, _, err := c.Backup(t.Context()); farm.CodeOf(err) != farm.CodeBusy {
		t.Errorf("a late close of an earlier backup let another one in: %v", err)
	}
	_ = again.Close()
}

// TestBusyStoreIsSaid: readiness fails with the sentence of the store.
func TestBusyStoreIsSaid(t *testing.T) {
	c, b := openUpkept(t)
	if err := c.Healthy(); err != nil {
		t.Fatal(err)
	}
	b.busy = "The store is full"
	var said *farm.Error
	if err := c.Healthy(); !errors.As(err, &said) || said.Message != b.busy || said.Code != farm.CodeUnavailable {
		t.Errorf("healthy: %v", err)
	}
}
