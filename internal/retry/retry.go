// Package retry spaces the attempts of work that failed. Each delay is drawn from the upper half of an interval that
// doubles up to a maximum, so callers that failed together do not retry together.
//
// It does not decide what is tried again or how often: that is the caller's loop.
//
// Invariant: no delay is longer than the maximum, and none is shorter than half its interval.
package retry

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Backoff returns the delays between attempts. It is created with New, and one goroutine uses it.
type Backoff struct {
	exp backoff.ExponentialBackOff
	max time.Duration
}

// New returns a backoff whose first delay is drawn from first/2 to first. The maximum must be positive; a longer
// first counts as the maximum.
func New(first, maximum time.Duration) *Backoff {
	// The library draws from both sides of an interval: a third around three quarters is a half to the whole.
	return &Backoff{max: maximum, exp: backoff.ExponentialBackOff{
		InitialInterval: min(first, maximum) * 3 / 4, MaxInterval: maximum * 3 / 4,
		RandomizationFactor: 1. / 3, Multiplier: 2,
	}}
}

// Next returns the delay before the next attempt.
func (b *Backoff) Next() time.Duration { return min(b.exp.NextBackOff(), b.max) }

// Reset makes the next delay the first one again. It is called after a success.
func (b *Backoff) Reset() { b.exp.Reset() }

// Sleep waits for the next delay. When ctx has ended, it returns the cause.
func (b *Backoff) Sleep(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Sleep waits for d. When ctx has ended, it returns the cause.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()

	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}
