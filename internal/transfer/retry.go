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

// errIdle ends an attempt without activity.
var errIdle = errors.New("the transfer stalled")

// IsTemporary reports whether a later attempt may succeed: the registry cannot be reached, is busy or restarts,
// or a connection was cut.
func IsTemporary(err error) bool {
	if diskFull(err) != nil {
		return false
	}
	switch farm.CodeOf(err) {
	case farm.CodeUnavailable, farm.CodeBusy:
		return true
	default:
		return errors.Is(err, errTransient)
	}
}

// diskFull returns the registry's error that its disk is full, which a retry does not fix; nil for other
// errors.
func diskFull(err error) *farm.Error {
	if e, ok := errors.AsType[*farm.Error](err); ok && strings.HasPrefix(e.Message, blob.FullMessage) {
		return e
	}
	return nil
}

const (
	firstWait = 100 * time.Millisecond
	longWait  = 5 * time.Second
)

// retry runs try until it succeeds, fails permanently, or the attempts or ctx end.
func (c *Client) retry(ctx context.Context, what string, try func() error) error {
	return c.retryProgress(ctx, what, func() (bool, error) { return false, try() })
}

// retryProgress is retry for work that may make progress before it fails: then its attempts count from the
// start.
func (c *Client) retryProgress(ctx context.Context, what string, try func() (moved bool, err error)) error {
	wait := retry.New(firstWait, longWait)
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
		if n >= c.attempts || !IsTemporary(err) {
			return err
		}
		c.log.Debug("registry request failed; retrying", "request", what, "attempt", n, "error", err)
		if err := wait.Sleep(ctx); err != nil {
			return err
		}
	}
}

// watch ends a request without activity for the client's idle time.
type watch struct {
	timer *time.Timer
	idle  time.Duration
	stop  context.CancelCauseFunc
}

func (c *Client) watch(ctx context.Context) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{idle: c.idle, stop: cancel}
	w.timer = time.AfterFunc(c.idle, func() { cancel(errIdle) })
	return ctx, w
}

func (w *watch) close() {
	w.timer.Stop()
	w.stop(nil)
}

// reader counts its reads as activity.
func (w *watch) reader(r io.Reader) io.Reader { return watched{w, r} }

type watched struct {
	w *watch
	r io.Reader
}

func (r watched) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > 0 {
		r.w.timer.Reset(r.w.idle)
	}
	return n, err
}

// cut marks a network failure as transient, and returns the reason if the client ended the request.
func cut(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(cause, errIdle) {
		err = cause
	}
	return fmt.Errorf("%w: %w", errTransient, err)
}
