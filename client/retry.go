package client

import (
	"context"
	crand "crypto/rand"
	"errors"
	"math/rand/v2"
	"net"
	"time"
)

// Pauses between tries: the first, the growth factor, and the longest.
const (
	firstPause = 100 * time.Millisecond
	pauseGrows = 3
	longPause  = 5 * time.Second
)

// NewKey returns a unique IdempotencyKey. Calls with one key take effect once, however many are made within 24
// hours, and are retried when the response is lost.
func NewKey() string { return crand.Text() }

// repeat tries a call until it has a response that another try would not change.
func (s *service) repeat(ctx context.Context, c call, try func() error) error {
	wait := firstPause
	for n := 0; ; n++ {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ended(ctx, err)
		}
		if n >= s.retries || !transient(err) || (!c.repeatable() && !unsent(err)) {
			return err
		}
		if pause(ctx, wait) != nil {
			return ended(ctx, err)
		}
		wait = min(wait*pauseGrows, longPause)
	}
}

// unsent reports whether no byte of a call can have reached the service.
func unsent(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok && e.unsent {
		return true
	}
	var op *net.OpError
	return errors.Is(err, ErrUnreachable) && errors.As(err, &op) && op.Op == "dial"
}

// pause waits for about d, so that clients that failed together do not retry together.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d/2 + rand.N(d)) //nolint:gosec // a jitter need not be secret
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
