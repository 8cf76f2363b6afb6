package etcd

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/buildyard/buildyard/internal/store"
)

// syncs returns how often members of this process have synced their logs to the disk.
func syncs(t *testing.T) (n uint64) {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "etcd_disk_wal_fsync_duration_seconds" {
			for _, m := range f.GetMetric() {
				n += m.GetHistogram().GetSampleCount()
			}
		}
	}
	return n
}

// TestCommitsAreSynced: each commit of a lone caller syncs the log before it is acknowledged.
func TestCommitsAreSynced(t *testing.T) {
	if cfg := memberConfig(EmbeddedOptions{}, t.TempDir()); cfg.UnsafeNoFsync {
		t.Fatal("the embedded member is told not to sync")
	}
	b := open(t, t.TempDir())
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	for range 50 {
		before := syncs(t)
		if _, err := b.Commit(t.Context(), store.Txn{Puts: []store.KV{{Key: "/x", Value: []byte("1")}}}); err != nil {
			t.Fatal(err)
		}
		if syncs(t) == before {
			t.Fatal("a commit was acknowledged that was not synced")
		}
	}
}
