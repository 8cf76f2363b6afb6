package oidc

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// source returns numbers, one more each time, or an error.
type source struct {
	asked atomic.Int64
	takes atomic.Int64 // ns
	fails atomic.Bool
}

func (s *source) fetch(ctx context.Context) (int, error) {
	n := int(s.asked.Add(1))
	select {
	case <-time.After(time.Duration(s.takes.Load())):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if s.fails.Load() {
		return 0, errors.New("away")
	}
	return n, nil
}

func newTestCell() (*cachedFetch[int], *source) {
	s := &source{}
	return newCachedFetch("number", s.fetch, Options{Logger: slog.New(slog.DiscardHandler), Now: time.Now}), s
}

func TestCellFetchesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newTestCell()
		s.takes.Store(int64(time.Second))
		got := make(chan int)
		for range 10 {
			go func() {
				n, err := c.get(t.Context(), acceptAny)
				if err != nil {
					t.Error(err)
				}
				got <- n
			}()
		}
		for range 10 {
			if n := <-got; n != 1 {
				t.Errorf("got number %d", n)
			}
		}
	})
}

// TestCellWaits: no caller waits longer than its context, nor than the limit of a request.
func TestCellWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newTestCell()
		s.takes.Store(int64(time.Hour))
		begun := time.Now()
		if _, err := c.get(t.Context(), acceptAny); farm.CodeOf(err) != farm.CodeUnavailable ||
			time.Since(begun) != maxWait {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun = time.Now()
		if _, err := c.get(ctx, acceptAny); err == nil || time.Since(begun) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		time.Sleep(callTimeout)
		synctest.Wait()
		if c.running != nil {
			t.Error("the fetch has no end")
		}
	})
}

func TestCellBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newTestCell()
		s.fails.Store(true)
		var last time.Duration
		var at time.Time
		for seen := int64(0); seen < 12; {
			_, err := c.get(t.Context(), acceptAny)
			if farm.CodeOf(err) != farm.CodeUnavailable {
				t.Fatal(err)
			}
			if n := s.asked.Load(); n > seen {
				gap := time.Since(at)
				if seen > 1 && (gap < min(last, maxBackoff/2) || gap > maxBackoff+time.Second) {
					t.Errorf("try %d came %v after the one before, after %v", n, gap, last)
				}
				seen, last, at = n, gap, time.Now()
			}
			time.Sleep(time.Second)
		}
		s.fails.Store(false)
		time.Sleep(maxBackoff)
		if n, err := c.get(t.Context(), acceptAny); err != nil || n == 0 || c.alarm() != "" {
			t.Errorf("%d %v", n, err)
		}
	})
}

// TestCellRefreshes: what is old is fetched again while it still serves.
func TestCellRefreshes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newTestCell()
		get := func(want int) {
			t.Helper()
			begun := time.Now()
			if n, err := c.get(t.Context(), acceptAny); n != want || err != nil || time.Since(begun) > 0 {
				t.Errorf("got %d, %v after %v; want %d", n, err, time.Since(begun), want)
			}
		}
		get(1)
		s.takes.Store(int64(time.Second))
		time.Sleep(refreshAfter + time.Second)
		get(1)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		get(2)
		s.fails.Store(true)
		time.Sleep(refreshAfter + time.Second)
		get(2)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		get(2)
		time.Sleep(maxAge)
		if n, err := c.get(t.Context(), acceptAny); err == nil {
			t.Errorf("%d counts after %v", n, maxAge)
		}
	})
}

// TestCellLimits: what is missing is fetched, and not more often than every few seconds.
func TestCellLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newTestCell()
		missing := func(int) bool { return false }
		for range 100 {
			if _, err := c.get(t.Context(), missing); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if n := s.asked.Load(); n != 10 {
			t.Errorf("fetched %d times in 100 s", n)
		}
	})
}
