package datadir_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/farm"
)

func at(t *testing.T) datadir.Dir {
	t.Helper()
	h, err := datadir.At(filepath.Join(t.TempDir(), "node"))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestIdentityIsKept(t *testing.T) {
	h := at(t)
	if _, err := h.Identity(); farm.CodeOf(err) != farm.CodeNotFound ||
		!strings.Contains(err.Error(), "buildnode join") {
		t.Errorf("before joining: %v, want what to do", err)
	}
	want := datadir.Identity{
		Format: datadir.Format,
		NodeID: "n", Credential: "secret", ControllerURL: "http://c", Name: "mac", Host: "h",
		Groups: []string{"a", "b"}, DiskReserve: bytesize.DiskReserve{Bytes: 20 << 30},
		TLS: datadir.TLSFiles{CAFile: "/ca.pem"},
	}
	if err := h.SetIdentity(want); err != nil {
		t.Fatal(err)
	}
	got, err := h.Identity()
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	info, err := os.Stat(filepath.Join(h.Path(), "node.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("node.json has mode %v, %v: it holds a credential", info.Mode(), err)
	}
	left, err := os.ReadDir(h.Path())
	if err != nil || len(left) != 1 {
		t.Errorf("%d files after writing one, %v", len(left), err)
	}
	for range 2 {
		if err := h.ClearIdentity(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Identity(); farm.CodeOf(err) != farm.CodeNotFound {
		t.Errorf("after clearing: %v", err)
	}
}

// TestOtherFormat: a data directory of another release is refused, and that of a release that wrote no number is not.
func TestOtherFormat(t *testing.T) {
	h := at(t)
	if err := h.Create(); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{"node_id":"n"}`: "",
		`{"node_id":"n","format":2}`: "Node data format version 2 is not supported: this agent supports version 1; " +
			"start the release of buildnode that ran here last",
	} {
		if err := os.WriteFile(filepath.Join(h.Path(), "node.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		id, err := h.Identity()
		if want == "" && (err != nil || id.NodeID != "n") || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %+v, %v, want %q", text, id, err, want)
		}
	}
}

func TestDamagedIdentity(t *testing.T) {
	h := at(t)
	if err := h.Create(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.Path(), "node.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Identity(); err == nil || farm.CodeOf(err) == farm.CodeNotFound {
		t.Errorf("got %v: a damaged identity is not a missing one", err)
	}
}

func TestOneAgentOnly(t *testing.T) {
	h := at(t)
	first, err := h.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Lock(); farm.CodeOf(err) != farm.CodeConflict {
		t.Errorf("second lock: %v, want a conflict", err)
	}
	if !h.IsLocked() {
		t.Error("an agent has the lock")
	}
	first.Release()
	again, err := h.Lock()
	if err != nil {
		t.Fatal(err)
	}
	again.Release()
	if h.IsLocked() {
		t.Error("no agent has the lock")
	}
}

// TestLookAtTheLock: who looks whether an agent runs does not keep one from its start.
func TestLookAtTheLock(t *testing.T) {
	h := at(t)
	synctest.Test(t, func(t *testing.T) {
		looks, err := h.Lock()
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(30*time.Millisecond, looks.Release)
		l, err := h.Lock()
		if err != nil {
			t.Fatal(err)
		}
		l.Release()
	})
}

// TestDiscardedLocksExclude: only one has the lock at a time, also while lock files are removed and
// created again.
func TestDiscardedLocksExclude(t *testing.T) {
	name, busy := filepath.Join(t.TempDir(), "lock"), errors.New("busy")
	var holders atomic.Int32
	var group errgroup.Group
	for range 8 {
		group.Go(func() error {
			for range 4000 {
				lock, err := datadir.LockFile(name, busy)
				if errors.Is(err, busy) {
					continue
				}
				if err != nil {
					return err
				}
				if n := holders.Add(1); n != 1 {
					return fmt.Errorf("%d hold the lock", n)
				}
				runtime.Gosched()
				holders.Add(-1)
				lock.Discard()
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Dir(name)); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestTLSFilesWith: what is not given stays, and a given CA ends SkipVerify.
func TestTLSFilesWith(t *testing.T) {
	type files = datadir.TLSFiles
	stored := files{CAFile: "ca", CertFile: "cert", KeyFile: "key"}
	for _, tt := range []struct{ stored, given, want files }{
		{stored, files{}, stored},
		{stored, files{CAFile: "new"}, files{CAFile: "new", CertFile: "cert", KeyFile: "key"}},
		{stored, files{CertFile: "c2", KeyFile: "k2"}, files{CAFile: "ca", CertFile: "c2", KeyFile: "k2"}},
		{files{SkipVerify: true}, files{CAFile: "new"}, files{CAFile: "new"}},
		{stored, files{SkipVerify: true}, files{SkipVerify: true, CertFile: "cert", KeyFile: "key"}},
	} {
		if got := tt.stored.With(tt.given); got != tt.want {
			t.Errorf("%+v with %+v: %+v, want %+v", tt.stored, tt.given, got, tt.want)
		}
	}
}
