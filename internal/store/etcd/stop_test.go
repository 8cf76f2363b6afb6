package etcd

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/internal/store"
)

// safeBuffer may be written to by several goroutines.
type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestCleanStopLogsNoWarnings: also where the holder of a lease releases it and the store does so
// once more.
func TestCleanStopLogsNoWarnings(t *testing.T) {
	var warnings safeBuffer
	log := slog.New(slog.NewTextHandler(&warnings, &slog.HandlerOptions{Level: slog.LevelWarn}))
	b, err := StartEmbedded(t.Context(), EmbeddedOptions{Dir: t.TempDir(), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	table := store.NewTable[blob]("live")
	s, err := store.Open(t.Context(), b, store.Options{Tables: []store.AnyTable{table}, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := s.Campaign(t.Context(), "schedule")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.WithFence(lease.Fence()).Commit(t.Context(),
		store.Put(table, "x", &blob{N: 1}, store.Any)); err != nil {
		t.Fatal(err)
	}
	for _, stop := range []func() error{
		func() error { return lease.Resign(context.Background()) }, s.Close, b.Close,
	} {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	for line := range strings.Lines(warnings.String()) {
		if !strings.Contains(line, "slow fdatasync") && !strings.Contains(line, "took too long") { // on a busy machine
			t.Errorf("a clean stop says: %s", line)
		}
	}
}
