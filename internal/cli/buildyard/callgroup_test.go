package buildyard

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSharedCallsAreFresh lets many ask a slow registry whose answer grows all the time.
func TestSharedCallsAreFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s callGroup[time.Duration]
		var calls atomic.Int32
		began := time.Now()
		ask := func(ctx context.Context) (time.Duration, error) {
			calls.Add(1)
			now := time.Since(began)
			time.Sleep(10 * time.Millisecond)
			return now, ctx.Err()
		}
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				time.Sleep(time.Duration(i%50) * time.Millisecond)
				asked := time.Since(began)
				got, err := s.call(t.Context(), "x", time.Second, ask)
				if err != nil || got < asked {
					t.Errorf("asked at %s, the answer is of %s (%v)", asked, got, err)
				}
				if late := time.Since(began) - asked; late > 20*time.Millisecond {
					t.Errorf("an answer took %s", late)
				}
			})
		}
		wg.Wait()
		if n := calls.Load(); n > 5*maxSharedCalls+1 {
			t.Errorf("1000 questions took %d calls", n)
		}
		synctest.Wait() // the last call is noted after its answer
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.queries) > 0 {
			t.Errorf("%d questions are remembered", len(s.queries))
		}
	})
}

// TestSharedCallsEnd lets callers leave that began a call or wait for one, and a call hang.
func TestSharedCallsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s callGroup[int]
		hang := func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range maxSharedCalls {
			wg.Go(func() {
				if _, err := s.call(ctx, "x", time.Second, hang); !errors.Is(err, context.Canceled) {
					t.Errorf("a caller that left: %v", err)
				}
			})
		}
		synctest.Wait()
		gone, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			if _, err := s.call(gone, "x", time.Second, hang); !errors.Is(err, context.Canceled) {
				t.Errorf("a waiting caller that left: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if _, err := s.call(t.Context(), "x", time.Second, hang); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a round that hangs: %v", err)
			}
		})
		if n, err := s.call(t.Context(), "y", time.Second,
			func(context.Context) (int, error) { return 7, nil }); n != 7 || err != nil {
			t.Errorf("another question: %d, %v", n, err)
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		leave()
		wg.Wait()
		synctest.Wait()
		if len(s.queries) > 0 {
			t.Errorf("%d questions are remembered", len(s.queries))
		}
	})
}
