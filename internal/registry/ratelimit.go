package registry

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/api"
)

// rateLimiter bounds the rate of work on bytes and measures its progress. One goroutine uses it.
type rateLimiter struct {
	rate int64       // bytes a second at the most; 0: no bound
	busy func() bool // nil, or whether others have work that comes first
	// passed is called for each frame that has been read.
	passed func(frame int)

	begun time.Time
	next  time.Time // when the next bytes may be worked on
	done  int64
}

const (
	// burst is how much time that was not used may be made good.
	burst = 100 * time.Millisecond
	// yield is how much slower work goes that others wait for: never so slow that it does not end.
	yield = 10
)

// wait lets n bytes pass in their time.
func (p *rateLimiter) wait(ctx context.Context, n int) error {
	now := time.Now()
	if p.begun.IsZero() {
		p.begun, p.next = now, now
	}
	p.done += int64(n)
	if p.rate <= 0 {
		return context.Cause(ctx)
	}
	cost := time.Duration(float64(n) / float64(p.rate) * float64(time.Second))
	if p.busy != nil && p.busy() {
		cost *= yield
	}
	if early := now.Add(-burst); p.next.Before(early) {
		p.next = early
	}
	p.next = p.next.Add(cost)
	return sleep(ctx, p.next.Sub(now))
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
	out := api.StorageJobProgress{Done: p.done, Total: total}
	if took := time.Since(p.begun); p.done > 0 && took > 0 {
		out.Rate = int64(float64(p.done) / took.Seconds())
	}
	if out.Rate > 0 {
		out.Left = max(0, total-p.done) / out.Rate
	}
	return out
}
