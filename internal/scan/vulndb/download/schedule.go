package download

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/buildyard/buildyard/internal/retry"
)

// schedule decides about further attempts of one download.
type schedule struct {
	backoff  *retry.Backoff
	attempts int
	failures int // in a row, without new data
}

func (c *Client) newSchedule() *schedule {
	first := c.FirstDelay
	if first == 0 {
		first = defaultFirstDelay
	}
	return &schedule{backoff: retry.New(first, maxDelay)}
}

// busyCodes are the statuses of servers that may answer later.
var busyCodes = []int{
	http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
	http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// next waits until the next attempt, or returns the error of the last one.
func (s *schedule) next(ctx context.Context, q Request, err error, received bool) error {
	s.attempts++
	s.failures++
	if received {
		s.failures = 1
		s.backoff.Reset()
	}
	if _, ok := errors.AsType[*permanentError](err); ok {
		return err
	}
	delay := s.backoff.Next()
	if status, ok := errors.AsType[*StatusError](err); ok {
		if !slices.Contains(busyCodes, status.Code) && !(q.ForbiddenIsBusy && status.Code == http.StatusForbidden) {
			return err
		}
		if status.retryAfter > maxRetryAfter {
			return fmt.Errorf("%w, and asks to wait for %s", err, status.retryAfter.Round(time.Second))
		}
		delay = max(delay, status.retryAfter)
	}
	if s.failures >= maxFailures || s.attempts >= maxAttempts {
		return fmt.Errorf("%w (after %d attempts)", err, s.attempts)
	}
	return retry.Sleep(ctx, delay)
}
