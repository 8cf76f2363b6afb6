package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// spread lets callers make total calls, each taking the next when it has ended one.
func spread(ctx context.Context, callers, total int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range callers {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= total {
					return nil
				}
				if err := do(ctx, i); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// rate has callers make calls, one after the other, for a time, and returns how many were answered
// per second, with the IDs in the answers.
func rate(
	ctx context.Context, callers int, over time.Duration, do func(context.Context) ([]string, error),
) (float64, []string, error) {
	group, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex
	var all []string
	began := time.Now()
	for range callers {
		group.Go(func() error {
			var mine []string
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, mine...)
			}()
			for time.Since(began) < over {
				ids, err := do(ctx)
				if err != nil {
					return err
				}
				mine = append(mine, ids...)
			}
			return nil
		})
	}
	err := group.Wait()
	return float64(len(all)) / time.Since(began).Seconds(), all, err
}
