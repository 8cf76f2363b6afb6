package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/retry"
)

// errTransient marks failures that another attempt may fix: cut connections, and bytes that were damaged on the
// way, since every attempt verifies them again.
var errTransient = errors.New("the transfer was interrupted or damaged")

// errNoProgress ends an attempt without activity.
var errNoProgress = errors.New("the transfer stalled")

// IsTemporary reports whether a later attempt may succeed: the registry cannot be reached, is busy or restarts,
// or a connection was cut.
func IsTemporary(err error) bool {
	if registryDiskFull(err) != nil {
		return false
	}
	switch farm.CodeOf(err) {
	case farm.CodeUnavailable, farm.CodeBusy:
		return true
	default:
		return errors.Is(err, errTransient)
	}
}

// registryDiskFull returns the registry's error that its disk is full, which a retry does not fix; nil for other
// errors.
func registryDiskFull(err error) *farm.Error {
	if e, ok := errors.AsType[*farm.Error](err); ok && strings.HasPrefix(e.Message, blob.DiskFullMessage) {
		return e
	}
	return nil
}

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// retry runs try until it succeeds, fails permanently, or the attempts or ctx end.
func (c *Client) retry(ctx context.Context, what string, try func() error) error {
	return c.retryWithProgress(ctx, what, func() (bool, error) { return false, try() })
}

// retryWithProgress is retry for work that may make progress before it fails: then its attempts count from the
// start.
func (c *Client) retryWithProgress(ctx context.Context, what string, try func() (moved bool, err error)) error {
	wait := retry.New(minBackoff, maxBackoff)
	for n := 1; ; n++ {
		moved, err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if moved {
			n = 1
			wait.Reset()
		}
		if n >= c.maxAttempts || !IsTemporary(err) {
			return err
		}
		c.log.Debug("registry request failed; retrying", "request", what, "attempt", n, "error", err)
		if err := wait.Sleep(ctx); err != nil {
			return err
		}
	}
}

// idleWatchdog ends a request without activity for the client's idle time.
type idleWatchdog struct {
	timer   *time.Timer
	timeout time.Duration
	cancel  context.CancelCauseFunc
}

func (c *Client) watchIdle(ctx context.Context) (context.Context, *idleWatchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &idleWatchdog{timeout: c.idleTimeout, cancel: cancel}
	w.timer = time.AfterFunc(c.idleTimeout, func() { cancel(errNoProgress) })
	return ctx, w
}

func (w *idleWatchdog) close() {
	w.timer.Stop()
	w.cancel(nil)
}

// wrapReader counts its reads as activity.
func (w *idleWatchdog) wrapReader(r io.Reader) io.Reader { return watchedReader{w, r} }

type watchedReader struct {
	watchdog *idleWatchdog
	src      io.Reader
}

func (r watchedReader) Read(p []byte) (int, error) {
	n, err := r.src.Read(p)
	if n > 0 {
		r.watchdog.timer.Reset(r.watchdog.timeout)
	}
	return n, err
}

// markTransient marks a network failure as transient. Its cause is errNoProgress where the watchdog ended the request.
func markTransient(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(cause, errNoProgress) {
		err = cause
	}
	return fmt.Errorf("%w: %w", errTransient, err)
}
