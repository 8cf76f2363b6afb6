package etcd

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/store"
)

type benchRecord struct{ Body string }

// BenchmarkCreate measures durable creates of 1.5 KB records by the group committer on an embedded member.
func BenchmarkCreate(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			backend := open(b, b.TempDir())
			table := store.NewTable[benchRecord]("b")
			s, err := store.Open(b.Context(), backend, store.Options{Tables: []store.AnyTable{table}})
			if err != nil {
				b.Fatal(err)
			}
			body := strings.Repeat("x", 1500)
			took := make([]time.Duration, b.N)
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for range callers {
				wg.Go(func() {
					for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
						began := time.Now()
						id := fmt.Sprintf("%012d", i)
						if err := s.Commit(b.Context(),
							store.Put(table, id, &benchRecord{body}, store.IfAbsent)); err != nil {
							b.Error(err)
							return
						}
						took[i] = time.Since(began)
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			slices.Sort(took)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "creates/s")
			b.ReportMetric(float64(took[b.N/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[b.N*99/100].Microseconds()), "p99-us")
			if err := s.Close(); err != nil {
				b.Error(err)
			}
			if err := backend.Close(); err != nil {
				b.Error(err)
			}
		})
	}
}

// BenchmarkGet measures a read of the in-memory table among 100,000 records.
func BenchmarkGet(b *testing.B) {
	backend := open(b, b.TempDir())
	table := store.NewTable[benchRecord]("b")
	s, err := store.Open(b.Context(), backend, store.Options{Tables: []store.AnyTable{table}})
	if err != nil {
		b.Fatal(err)
	}
	const n, part = 100_000, 100
	for at := 0; at < n; at += part {
		var changes []store.Change
		for i := range part {
			changes = append(changes, store.Put(table, fmt.Sprintf("%06d", at+i), &benchRecord{}, store.Any))
		}
		if err := s.Commit(b.Context(), changes...); err != nil {
			b.Fatal(err)
		}
	}
	ids := slices.Collect(func(yield func(string) bool) {
		for id := range table.All() {
			if !yield(id) {
				return
			}
		}
	})
	i := 0
	for b.Loop() {
		i = (i + 7919) % n
		if _, _, ok := table.Get(ids[i]); !ok {
			b.Fatal(ids[i])
		}
	}
	if err := s.Close(); err != nil {
		b.Error(err)
	}
	if err := backend.Close(); err != nil {
		b.Error(err)
	}
}
