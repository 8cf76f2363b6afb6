package etcd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"go.etcd.io/etcd/server/v3/embed"
)

// TestStartThatFails: it returns the reason, and releases the directory.
func TestStartThatFails(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(dir string) error
		want    string
	}{
		"no directory": {
			func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
			"create store directory: mkdir DIR: not a directory",
		},
		"a lock that is none": {
			func(dir string) error { return os.MkdirAll(filepath.Join(dir, lockFile), 0o700) },
			"open lock file of the store: open DIR/lock: is a directory",
		},
		"files that cannot be written again": {func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, unsyncedFile), nil, 0o600))
		}, "write the store files again and sync them: lstat DIR/etcd: no such file or directory"},
		"a seal that cannot be removed": {
			func(dir string) error { return os.MkdirAll(filepath.Join(dir, checksumsFile, "x"), 0o700) },
			"remove DIR/sealed: directory not empty",
		},
		"a damaged log": {
			func(dir string) error {
				err := os.MkdirAll(filepath.Join(dir, MemberSubdir, "member", "wal"), 0o700)
				return errors.Join(err, os.WriteFile(filepath.Join(dir, MemberSubdir, "member", "wal", "x.wal"), nil,
					0o600))
			},
			"start the store in DIR: DIR/etcd/member/wal/x.wal is damaged: the file does not have the name of a log " +
				"file",
		},
		"a member that is a file": {func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, MemberSubdir), nil, 0o600))
		}, "start the store in DIR: database: open DIR/etcd/member/snap/db: not a directory"},
	} {
		dir := filepath.Join(t.TempDir(), "dir")
		if err := tc.prepare(dir); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the lock was released
			b, err := StartEmbedded(t.Context(), EmbeddedOptions{Dir: dir})
			if err == nil {
				t.Fatal(name, b.Close())
			}
			if got := strings.ReplaceAll(err.Error(), dir, "DIR"); got != tc.want {
				t.Errorf("%s: %s, want %s", name, got, tc.want)
			}
		}
	}
}

// TestStartIsDurable: the next start completes a restore that was killed and syncs files that were
// not, and a restored store has no seal of the former one.
func TestStartIsDurable(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	writeFiles(t, dir, map[string][]byte{unsyncedFile: nil})
	if err := os.Rename(filepath.Join(dir, MemberSubdir), filepath.Join(dir, RestoredSubdir)); err != nil {
		t.Fatal(err)
	}
	for n := range 2 { // the rename, and the first file
		_, err := syncsOf(t, dir, n, func() error {
			_, err := StartEmbedded(t.Context(), EmbeddedOptions{Dir: dir})
			return err
		})
		if !errors.Is(err, errSync) {
			t.Fatalf("sync %d failed: %v", n, err)
		}
	}
	b := open(t, dir)
	if _, err := os.Lstat(filepath.Join(dir, unsyncedFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the mark is still there: %v", err)
	}
	b.failure.mu.Lock()
	b.failure.err = errFake
	b.failure.mu.Unlock()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, checksumsFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a store that failed is sealed: %v", err)
	}
	if lock, err := lockDir(dir); err != nil || lock.release() != nil {
		t.Errorf("a closed store is locked: %v", err)
	}
	b = open(t, dir)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if readChecksums(dir) == nil {
		t.Error("a store that was stopped has no checksums file")
	}
}

// TestStartOfEtcdFails: a start returns an error, however etcd reports it.
func TestStartOfEtcdFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "etcd")
	writeFiles(t, dir, map[string][]byte{"member": nil}) // etcd panics at a file in place of its directory
	f := newMemberFailure()
	cfg := memberConfig(EmbeddedOptions{}, dir)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(memberLogger(nil, f, nil))
	if _, err := startEtcd(cfg, f); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("a member that is a file: %v", err)
	}
	if f.cause() != nil || f.startGoroutine != 0 {
		t.Errorf("a start that failed is the failure of a member: %v", f.cause())
	}
}

// TestAwaitReady ends with the first event: readiness, the end of etcd or of its caller, its
// failure, or a timeout.
func TestAwaitReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone, cancel := context.WithCancelCause(t.Context())
		cancel(errFake)
		failed := newMemberFailure()
		failed.err = errFake
		failed.cancel()
		ended, ready, stopped := make(chan error, 1), make(chan struct{}), make(chan struct{})
		ended <- errFake
		close(ready)
		close(stopped)
		for name, tc := range map[string]struct {
			ctx            context.Context
			ready, stopped chan struct{}
			ended          chan error
			f              *memberFailure
			want           string
		}{
			"ready":      {ready: ready, want: "<nil>"},
			"an error":   {ended: ended, want: "etcd ended: " + errFake.Error()},
			"a stop":     {stopped: stopped, want: "etcd stopped while starting"},
			"a failure":  {f: failed, want: errFake.Error()},
			"its caller": {ctx: gone, want: errFake.Error()},
			"too long":   {want: "etcd is not ready after 1m0s"},
		} {
			if tc.ctx == nil {
				tc.ctx = t.Context()
			}
			if tc.f == nil {
				tc.f = newMemberFailure()
			}
			if got := fmt.Sprint(awaitStart(tc.ctx, tc.ready, tc.stopped, tc.ended, tc.f)); got != tc.want {
				t.Errorf("%s: %s, want %s", name, got, tc.want)
			}
		}
	})
}
