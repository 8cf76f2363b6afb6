package etcd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/storetest"
)

// testLogger logs to the output of a test. What a server logs after the end of the test is dropped: etcd still
// finishes requests then.
func testLogger(t testing.TB) *slog.Logger {
	out := &testOutput{to: t.Output()}
	t.Cleanup(out.end)
	return slog.New(slog.NewTextHandler(out, nil))
}

// testOutput is the output of a test until its end.
type testOutput struct {
	mu sync.Mutex
	to io.Writer
}

func (o *testOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.to.Write(p)
}

func (o *testOutput) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.to = io.Discard
}

func open(t testing.TB, dir string) *Backend {
	t.Helper()
	b, err := StartEmbedded(t.Context(), EmbeddedOptions{Dir: dir, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func subject(b *Backend) storetest.Subject {
	ctx := context.Background()
	return storetest.Subject{
		Backend: b,
		Compact: func(rev int64) error {
			_, err := b.client.Compact(ctx, rev, clientv3.WithCompactPhysical())
			if errors.Is(err, rpctypes.ErrCompacted) {
				return nil // by another test before
			}
			return err
		},
		Expire: func(f store.Fence) error {
			resp, err := b.client.Get(ctx, f.Key)
			if err != nil || len(resp.Kvs) == 0 {
				return err
			}
			return revokeLease(ctx, b.client, clientv3.LeaseID(resp.Kvs[0].Lease))
		},
	}
}

func TestConformance(t *testing.T) {
	b := open(t, t.TempDir())
	storetest.Run(t, subject(b))
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestDirectoryIsLocked(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	_, err := StartEmbedded(t.Context(), EmbeddedOptions{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("got %v, want an error naming the directory and this process", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
}

func TestLongDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
	b := open(t, dir)
	if _, err := b.Commit(t.Context(), store.Txn{Puts: []store.KV{{Key: "/x", Value: []byte("1")}}}); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, MemberSubdir))
	if err != nil || info.Mode().Perm() != storeDirMode {
		t.Errorf("mode of the data: %v, %v", info.Mode(), err)
	}
}

func TestLeaseOfTheLastRunIsRemoved(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	l, err := b.Campaign(t.Context(), "/lock")
	if err != nil {
		t.Fatal(err)
	}
	// A process that is killed resigns nothing: end the renewals only.
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	<-l.Lost()
	b = open(t, dir)
	kv, err := b.Get(t.Context(), "/lock")
	if err != nil || kv.ModRev != 0 {
		t.Errorf("the lock of the last run: %v, %v", kv, err)
	}
	began := time.Now()
	if _, err := b.Campaign(t.Context(), "/lock"); err != nil || time.Since(began) > time.Second {
		t.Errorf("campaign: %v after %s", err, time.Since(began))
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedDataIsAnError(t *testing.T) {
	for _, damaged := range []string{"snap/db", "wal/*.wal"} {
		t.Run(damaged, func(t *testing.T) {
			dir := t.TempDir()
			if err := open(t, dir).Close(); err != nil {
				t.Fatal(err)
			}
			files, err := filepath.Glob(filepath.Join(dir, MemberSubdir, "member", filepath.FromSlash(damaged)))
			if err != nil || len(files) != 1 {
				t.Fatal(files, err)
			}
			if err := os.WriteFile(files[0], []byte(strings.Repeat("damaged ", 8192)), 0o600); err != nil {
				t.Fatal(err)
			}
			b, err := StartEmbedded(t.Context(), EmbeddedOptions{Dir: dir, Logger: testLogger(t)})
			if err == nil {
				t.Fatal("damaged data was opened", b.Close())
			}
			if !strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), "\n") {
				t.Errorf("want one line that names the directory, got %q", err)
			}
			t.Log(err)
		})
	}
}

func TestClosedBackend(t *testing.T) {
	b := open(t, t.TempDir())
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := b.Get(ctx, "/x"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("read: %v", err)
	}
	if _, err := b.Commit(ctx, store.Txn{Puts: []store.KV{{Key: "/x"}}}); err == nil {
		t.Error("a closed backend wrote")
	}
	if _, err := b.Campaign(ctx, "/lock"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("campaign: %v", err)
	}
}
