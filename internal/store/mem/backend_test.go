package mem_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/mem"
	"github.com/buildyard/buildyard/internal/store/storetest"
)

// TestConformance checks the guarantees of a backend; package store runs the rest of the suite on
// this one.
func TestConformance(t *testing.T) {
	b := mem.New()
	storetest.Run(t, storetest.Subject{
		Backend: b,
		Compact: func(rev int64) error { b.Compact(rev); return nil },
		Expire:  func(f store.Fence) error { b.ExpireLease(f); return nil },
	}, storetest.Backend)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
