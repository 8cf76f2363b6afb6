package registry

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/api"
)

// rateLimiter bounds the rate of work on bytes and measures its progress. One goroutine uses it.
type rateLimiter struct {
	rate int64       // maximum bytes a second; 0: no limit
	busy func() bool // nil, or reports whether other work has priority
	// onFrame is called for each frame that has been read.
	onFrame func(frame int)

	startedAt time.Time
	nextAt    time.Time // when the next bytes may be worked on
	doneBytes int64
}

const (
	// maxBurst is how much unused time may be made up for.
	maxBurst = 100 * time.Millisecond
	// busySlowdown is the factor by which work slows down while other work has priority. It is bounded, so that the
	// work ends.
	busySlowdown = 10
)

// wait blocks until n more bytes fit the rate.
func (p *rateLimiter) wait(ctx context.Context, n int) error {
	now := time.Now()
	if p.startedAt.IsZero() {
		p.startedAt, p.nextAt = now, now
	}
	p.doneBytes += int64(n)
	if p.rate <= 0 {
		return context.Cause(ctx)
	}
	cost := time.Duration(float64(n) / float64(p.rate) * float64(time.Second))
	if p.busy != nil && p.busy() {
		cost *= busySlowdown
	}
	if early := now.Add(-maxBurst); p.nextAt.Before(early) {
		p.nextAt = early
	}
	p.nextAt = p.nextAt.Add(cost)
	return sleep(ctx, p.nextAt.Sub(now))
}

// sleep waits for a time or for the end of the context, whose cause it returns.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// progress returns how much of total is done, how fast, and how long the rest takes.
func (p *rateLimiter) progress(total int64) api.StorageJobProgress {
	out := api.StorageJobProgress{Done: p.doneBytes, Total: total}
	if took := time.Since(p.startedAt); p.doneBytes > 0 && took > 0 {
		out.Rate = int64(float64(p.doneBytes) / took.Seconds())
	}
	if out.Rate > 0 {
		out.Left = max(0, total-p.doneBytes) / out.Rate
	}
	return out
}
