package election

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
)

// TestOneLeader runs two candidates: one leads, and the other one follows when the first one ends.
func TestOneLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := recordtest.Open(t)
		var leaders, terms atomic.Int32
		lead := func(ctx context.Context, _ *record.Term) {
			leaders.Add(1)
			terms.Add(1)
			<-ctx.Done()
			leaders.Add(-1)
		}
		var wg sync.WaitGroup
		var stop []context.CancelFunc
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			stop = append(stop, cancel)
			wg.Go(func() { Run(ctx, db, lead) })
			synctest.Wait()
		}
		if leaders.Load() != 1 || terms.Load() != 1 {
			t.Errorf("%d leaders, %d terms", leaders.Load(), terms.Load())
		}
		stop[0]()
		time.Sleep(time.Minute) // longer than a lease
		synctest.Wait()
		if leaders.Load() != 1 || terms.Load() != 2 {
			t.Errorf("after the end of the first one: %d leaders, %d terms", leaders.Load(), terms.Load())
		}
		stop[1]()
		wg.Wait()
		if leaders.Load() != 0 {
			t.Errorf("%d leaders at the end", leaders.Load())
		}
	})
}

// TestTermEnds: a term that ends itself is followed by another one.
func TestTermEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := recordtest.Open(t)
		ctx, cancel := context.WithCancel(t.Context())
		terms := 0
		Run(ctx, db, func(ctx context.Context, term *record.Term) {
			if terms++; terms == 3 {
				cancel()
			}
			term.End()
			<-ctx.Done()
		})
		if terms != 3 {
			t.Errorf("%d terms", terms)
		}
	})
}
