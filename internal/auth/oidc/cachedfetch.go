package oidc

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/retry"
)

const (
	callTimeout  = 10 * time.Second // of one call to the provider
	waitFor      = 4 * time.Second  // the maximum time that a request waits for such a call
	refreshAfter = 15 * time.Minute // age at which it is fetched again in the background
	keepFor      = 24 * time.Hour   // age at which it expires
	pause        = 10 * time.Second // minimum interval between two fetches
	firstBackoff = time.Second      // after a failure
	maxBackoff   = time.Minute
)

// away is the error for a caller while the provider is unavailable.
const away = "The identity provider cannot be reached; try again later"

// cachedFetch caches a value of the provider: it is fetched on first use, and again when it is old
// or lacks what is needed, never concurrently nor too often. While the provider is unavailable, the
// cached value stays valid for a day.
type cachedFetch[T any] struct {
	what  string
	fetch func(context.Context) (T, error)
	log   *slog.Logger
	now   func() time.Time

	mu      sync.Mutex // guards what follows
	value   T
	at      time.Time     // when it was fetched; zero: never
	tried   time.Time     // when the last fetch began
	failed  int           // fetches in a row
	gap     time.Duration // until the next fetch may begin
	backoff *retry.Backoff
	err     error // of the last one
	flight  chan struct{}
}

func newCachedFetch[T any](what string, fetch func(context.Context) (T, error), o Options) *cachedFetch[T] {
	return &cachedFetch[T]{what: what, fetch: fetch, log: o.Logger, now: o.Now, backoff: retry.New(firstBackoff,
		maxBackoff)}
}

// get returns the value, a newer one when the cached one is not good and may be fetched now. The
// result is not good when the provider has nothing better.
func (c *cachedFetch[T]) get(ctx context.Context, good func(T) bool) (T, error) {
	c.mu.Lock()
	switch now := c.now(); {
	case c.isFresh(now) && good(c.value):
		defer c.mu.Unlock()
		if now.Sub(c.at) > refreshAfter && c.mayRetry(now) {
			c.begin(ctx)
		}
		return c.value, nil
	case c.flight == nil && !c.mayRetry(now):
		defer c.mu.Unlock()
		return c.held()
	}
	c.begin(ctx)
	flight := c.flight
	c.mu.Unlock()
	wait := time.NewTimer(waitFor)
	defer wait.Stop()
	select {
	case <-flight:
	case <-wait.C:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held()
}

// acceptAny accepts any value.
func acceptAny[T any](T) bool { return true }

func (c *cachedFetch[T]) isFresh(now time.Time) bool {
	return !c.at.IsZero() && now.Sub(c.at) < keepFor
}

// mayRetry reports whether the provider may be called again; c.mu is held.
func (c *cachedFetch[T]) mayRetry(now time.Time) bool {
	return c.tried.IsZero() || now.Sub(c.tried) >= c.gap || now.Before(c.tried) // the clock was set back
}

// held returns the value while it is valid, else the reason why there is none; c.mu is held.
func (c *cachedFetch[T]) held() (T, error) {
	if c.isFresh(c.now()) {
		return c.value, nil
	}
	var none T
	cause := c.err
	if cause == nil {
		cause = context.DeadlineExceeded
	}
	return none, &farm.Error{Code: farm.CodeUnavailable, Message: away, Err: cause}
}

// begin starts a fetch unless one is running; c.mu is held. The fetch outlives the request that
// caused it, since others wait for it too.
func (c *cachedFetch[T]) begin(ctx context.Context) {
	if c.flight != nil {
		return
	}
	flight := make(chan struct{})
	c.flight, c.tried = flight, c.now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	go func() {
		defer cancel()
		value, err := c.fetch(ctx)
		c.end(ctx, value, err)
		close(flight)
	}()
}

// end stores the result of a fetch, and logs when the provider becomes available or unavailable.
func (c *cachedFetch[T]) end(ctx context.Context, value T, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flight, c.err = nil, err
	if err != nil {
		c.gap = c.backoff.Next()
		if c.failed++; c.failed == 1 {
			c.log.WarnContext(ctx, "identity provider cannot be reached; the next login retries",
				"asked for", c.what, "error", err)
		}
		return
	}
	if c.failed > 0 || c.at.IsZero() {
		c.log.InfoContext(ctx, "identity provider reached", "asked for", c.what, "failures", c.failed)
	}
	c.value, c.at, c.failed, c.gap = value, c.now(), 0, pause
	c.backoff.Reset()
}

// alarm returns the problem that an operator has to fix; "" for none.
func (c *cachedFetch[T]) alarm() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == 0 {
		return ""
	}
	return fmt.Sprintf("The identity provider does not give its %s: %v", c.what, c.err)
}
