package controllerrest_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/controller"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/controllerrest"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
)

// torn is a backend whose backup fails in the middle.
type torn struct{ store.Backend }

func (torn) Snapshot(context.Context) (io.ReadCloser, int64, error) {
	broken := iotest.ErrReader(errors.New("the disk is gone"))
	return io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("x", 100_000)), broken)), 200_000, nil
}

// whole is a backend whose backup is complete.
type whole struct{ store.Backend }

func (whole) Snapshot(context.Context) (io.ReadCloser, int64, error) {
	return io.NopCloser(strings.NewReader("whole")), 5, nil
}

// timed is an answer that notes the deadline of its connection.
type timed struct {
	*httptest.ResponseRecorder
	deadline time.Time
	set      int
}

func (t *timed) SetWriteDeadline(at time.Time) error {
	t.deadline = at
	t.set++
	return nil
}

// TestBackupFreesItsConnection: the limit for a slow reader is not left to the next call.
func TestBackupFreesItsConnection(t *testing.T) {
	w := &timed{ResponseRecorder: httptest.NewRecorder()}
	req := httptest.NewRequest(http.MethodGet, api.PathBackup, nil)
	req.RemoteAddr = "[::1]:4711"
	backups(t, whole{mem.New()}).ServeHTTP(w, req)
	if w.Body.String() != "whole" || w.set < 2 || !w.deadline.IsZero() {
		t.Errorf("answer %q, then a deadline of %s, set %d times", w.Body, w.deadline, w.set)
	}
}

// TestBackupIsTakenHere: without authentication the secrets do not leave the machine.
func TestBackupIsTakenHere(t *testing.T) {
	h := backups(t, whole{mem.New()})
	for peer, want := range map[string]int{
		"127.0.0.1:4711": http.StatusOK, "[::1]:4711": http.StatusOK, "[::ffff:127.0.0.1]:4711": http.StatusOK,
		"192.0.2.1:4711": http.StatusForbidden, "[2001:db8::1]:4711": http.StatusForbidden,
		"nobody": http.StatusForbidden,
	} {
		req := httptest.NewRequest(http.MethodGet, api.PathBackup, nil)
		req.RemoteAddr = peer
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, req); w.Code != want {
			t.Errorf("%s: %d %s, want %d", peer, w.Code, w.Body, want)
		}
	}
}

// TestBackupIsRoots: with authentication only the root user gets a backup, from any address: it contains the
// keys that sign all sessions.
func TestBackupIsRoots(t *testing.T) {
	root, err := auth.NewRootToken(guardToken)
	if err != nil {
		t.Fatal(err)
	}
	keys := auth.NewAPIKeys(
		auth.NewKeyTable([]farm.APIKey{{ID: "ci", Generation: "g", Expires: time.Now().Add(time.Hour)}}, nil))
	open := auth.NewSessions(keys, auth.NewSigner(auth.NewKeyRing(time.Now())), 0)
	ci, err := keys.Get("ci")
	if err != nil {
		t.Fatal(err)
	}
	session, err := json.Marshal(open.Issue(ci))
	if err != nil {
		t.Fatal(err)
	}
	guard, err := rest.NewGuard(rest.GuardOptions{
		Identifier: &auth.Authenticator{Root: root, Sessions: open}, Logger: slog.New(slog.DiscardHandler),
		Authorizer: auth.NewAuthorizer(auth.Policy{Service: farm.ServiceController, Tier: farm.TierBasic},
			auth.NewGrantTable(auth.Grants{}, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	h := backups(t, whole{mem.New()}, func(o *controllerrest.Options) { o.Guard = guard })
	for _, c := range []struct {
		peer, credential string
		want             int
	}{
		{"192.0.2.1:4711", "Basic " + base64.StdEncoding.EncodeToString([]byte("root:"+guardToken)), http.StatusOK},
		{"127.0.0.1:4711", "Basic " + base64.StdEncoding.EncodeToString([]byte("root:"+guardToken)), http.StatusOK},
		{"192.0.2.1:4711", "Bearer " + base64.StdEncoding.EncodeToString(session), http.StatusForbidden},
		{"127.0.0.1:4711", "Bearer " + base64.StdEncoding.EncodeToString(session), http.StatusForbidden},
		{"127.0.0.1:4711", "", http.StatusUnauthorized},
	} {
		req := httptest.NewRequest(http.MethodGet, api.PathBackup, nil)
		req.RemoteAddr = c.peer
		req.Header.Set("Authorization", c.credential)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, req); w.Code != c.want {
			t.Errorf("%s, %.6s: %d %s, want %d", c.peer, c.credential, w.Code, w.Body, c.want)
		}
	}
}

// backups serves a controller on a backend.
func backups(t *testing.T, b store.Backend, change ...func(*controllerrest.Options)) http.Handler {
	t.Helper()
	tables := record.NewTables(nil)
	st, err := store.Open(t.Context(), b, store.Options{Tables: tables.All()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	c, err := controller.New(t.Context(), st, tables,
		controller.Options{Registry: shelf{}, RegistryAddress: "http://registry"})
	if err != nil {
		t.Fatal(err)
	}
	o := controllerrest.Options{Controller: c, Backup: st.Snapshot, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&o)
	}
	return controllerrest.Handler(o)
}

// TestTornBackupLooksTorn: what breaks off must not end like an answer that is whole.
func TestTornBackupLooksTorn(t *testing.T) {
	srv := httptest.NewServer(backups(t, torn{mem.New()}))
	defer srv.Close()
	resp, err := http.Get(srv.URL + api.PathBackup)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err == nil || resp.Header.Get(api.HeaderBackupSize) != "200000" {
		t.Errorf("read %d bytes without an error, %s of %s foretold", len(got), resp.Header.Get(api.HeaderBackupSize),
			api.HeaderBackupSize)
	}
}
