package controllerrest_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// torn is a backend whose backup breaks off in the middle.
type torn struct{ store.Backend }

func (torn) Snapshot(context.Context) (io.ReadCloser, int64, error) {
	broken := iotest.ErrReader(errors.New("the disk is gone"))
	return io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("x", 100_000)), broken)), 200_000, nil
}

// TestTornBackupLooksTorn: what breaks off must not end like an answer that is whole.
func TestTornBackupLooksTorn(t *testing.T) {
	tables := controller.NewTables(nil)
	st, err := store.Open(t.Context(), torn{mem.New()}, store.Options{Tables: tables.All()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	c, err := controller.New(t.Context(), st, tables, controller.Options{Registry: shelf{}, RegistryAddress: "http://registry"})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(controllerrest.Handler(controllerrest.Options{Controller: c, Logger: slog.New(slog.DiscardHandler)}))
	defer srv.Close()
	resp, err := http.Get(srv.URL + api.PathBackup)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err == nil || resp.Header.Get(api.HeaderBackupSize) != "200000" {
		t.Errorf("read %d bytes without an error, %s of %s foretold", len(got), resp.Header.Get(api.HeaderBackupSize), api.HeaderBackupSize)
	}
}
