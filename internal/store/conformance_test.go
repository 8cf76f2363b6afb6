package store_test

import (
	"testing"

	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
	"github.com/buildyard/buildyard/internal/store/storetest"
)

func TestCommits(t *testing.T)  { conformance(t, storetest.Commits) }
func TestReads(t *testing.T)    { conformance(t, storetest.Reads) }
func TestFailures(t *testing.T) { conformance(t, storetest.Failures) }
func TestLeases(t *testing.T)   { conformance(t, storetest.Leases) }
func TestReplicas(t *testing.T) { conformance(t, storetest.Replicas) }

// conformance runs a part of the suite on the backend in memory, which passes the part about backends itself.
func conformance(t *testing.T, group storetest.Group) {
	t.Helper()
	b := mem.New()
	storetest.Run(t, storetest.Subject{
		Backend: b,
		Compact: func(rev int64) error { b.Compact(rev); return nil },
		Expire:  func(f store.Fence) error { b.ExpireLease(f); return nil },
	}, group)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
