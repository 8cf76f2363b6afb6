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
	callTimeout      = 10 * time.Second // of one call to the provider
	maxWait          = 4 * time.Second  // the maximum time that a request waits for such a call
	refreshAfter     = 15 * time.Minute // age at which it is fetched again in the background
	maxAge           = 24 * time.Hour   // age at which it expires
	minFetchInterval = 10 * time.Second // minimum interval between two fetches
	firstBackoff     = time.Second      // after a failure
	maxBackoff       = time.Minute
)

// providerUnavailable is the error for a caller while the provider is unavailable.
const providerUnavailable = "The identity provider cannot be reached; try again later"

// cachedFetch caches a value of the provider: it is fetched on first use, and again when it is old
// or lacks what is needed, never concurrently nor too often. While the provider is unavailable, the
// cached value stays valid for a day.
type cachedFetch[T any] struct {
	description string
	fetch       func(context.Context) (T, error)
	log         *slog.Logger
	now         func() time.Time

	mu            sync.Mutex // guards the fields below
	value         T
	fetchedAt     time.Time     // when it was fetched; zero: never
	startedAt     time.Time     // when the last fetch began
	failedFetches int           // fetches in a row
	retryDelay    time.Duration // until the next fetch may begin
	backoff       *retry.Backoff
	err           error // of the last one
	running       chan struct{}
}

func newCachedFetch[T any](what string, fetch func(context.Context) (T, error), o Options) *cachedFetch[T] {
	return &cachedFetch[T]{description: what, fetch: fetch, log: o.Logger, now: o.Now, backoff: retry.New(firstBackoff,
		maxBackoff)}
}

// get returns the value, a newer one when the cached one is not good and may be fetched now. The
// result is not good when the provider has nothing better.
func (c *cachedFetch[T]) get(ctx context.Context, good func(T) bool) (T, error) {
	c.mu.Lock()
	switch now := c.now(); {
	case c.isFresh(now) && good(c.value):
		defer c.mu.Unlock()
		if now.Sub(c.fetchedAt) > refreshAfter && c.mayRetry(now) {
			c.startFetch(ctx)
		}
		return c.value, nil
	case c.running == nil && !c.mayRetry(now):
		defer c.mu.Unlock()
		return c.currentValue()
	}
	c.startFetch(ctx)
	flight := c.running
	c.mu.Unlock()
	wait := time.NewTimer(maxWait)
	defer wait.Stop()
	select {
	case <-flight:
	case <-wait.C:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.currentValue()
}

// acceptAny accepts any value.
func acceptAny[T any](T) bool { return true }

func (c *cachedFetch[T]) isFresh(now time.Time) bool {
	return !c.fetchedAt.IsZero() && now.Sub(c.fetchedAt) < maxAge
}

// mayRetry reports whether the provider may be called again; c.mu is held.
func (c *cachedFetch[T]) mayRetry(now time.Time) bool {
	// the clock was set back
	return c.startedAt.IsZero() || now.Sub(c.startedAt) >= c.retryDelay || now.Before(c.startedAt)
}

// currentValue returns the value while it is valid, else the reason why there is none; c.mu is held.
func (c *cachedFetch[T]) currentValue() (T, error) {
	if c.isFresh(c.now()) {
		return c.value, nil
	}
	var none T
	cause := c.err
	if cause == nil {
		cause = context.DeadlineExceeded
	}
	return none, &farm.Error{Code: farm.CodeUnavailable, Message: providerUnavailable, Err: cause}
}

// startFetch starts a fetch unless one is running; c.mu is held. The fetch outlives the request that
// caused it, since others wait for it too.
func (c *cachedFetch[T]) startFetch(ctx context.Context) {
	if c.running != nil {
		return
	}
	flight := make(chan struct{})
	c.running, c.startedAt = flight, c.now()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	go func() {
		defer cancel()
		value, err := c.fetch(ctx)
		c.endFetch(ctx, value, err)
		close(flight)
	}()
}

// endFetch stores the result of a fetch, and logs when the provider becomes available or unavailable.
func (c *cachedFetch[T]) endFetch(ctx context.Context, value T, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.err = nil, err
	if err != nil {
		c.retryDelay = c.backoff.Next()
		if c.failedFetches++; c.failedFetches == 1 {
			c.log.WarnContext(ctx, "identity provider cannot be reached; the next login retries",
				"asked for", c.description, "error", err)
		}
		return
	}
	if c.failedFetches > 0 || c.fetchedAt.IsZero() {
		c.log.InfoContext(ctx, "identity provider reached", "asked for", c.description, "failures", c.failedFetches)
	}
	c.value, c.fetchedAt, c.failedFetches, c.retryDelay = value, c.now(), 0, minFetchInterval
	c.backoff.Reset()
}

// alarm returns the problem that an operator has to fix; "" for none.
func (c *cachedFetch[T]) alarm() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failedFetches == 0 {
		return ""
	}
	return fmt.Sprintf("The identity provider does not give its %s: %v", c.description, c.err)
}
