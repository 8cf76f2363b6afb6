package retry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestDelays: each delay is in the upper half of its interval, which doubles up to the maximum and starts again
// after a reset.
func TestDelays(t *testing.T) {
	for range 1000 {
		b := New(100*time.Millisecond, time.Second)
		for round := range 2 {
			for n, most := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
				most *= time.Millisecond
				if d := b.Next(); d < most/2 || d > most {
					t.Fatalf("round %d: delay %d is %v, want %v to %v", round, n, d, most/2, most)
				}
			}
			b.Reset()
		}
	}
}

func TestDelaysDiffer(t *testing.T) {
	seen := map[time.Duration]int{}
	for range 100 {
		seen[New(time.Second, time.Minute).Next()]++
	}
	if len(seen) < 90 {
		t.Errorf("%d delays in 100 draws", len(seen))
	}
}

func TestFirstAboveMaximum(t *testing.T) {
	b := New(time.Hour, time.Second)
	for range 3 {
		if d := b.Next(); d < time.Second/2 || d > time.Second {
			t.Errorf("delay %v", d)
		}
	}
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, began := New(time.Second, time.Minute), time.Now()
		if err := b.Sleep(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < time.Second/2 || took > time.Second {
			t.Errorf("slept %v", took)
		}

		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("left")
		time.AfterFunc(time.Millisecond, func() { cancel(cause) })
		began = time.Now()
		if err := b.Sleep(ctx); !errors.Is(err, cause) || time.Since(began) != time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestCanceled: an ended context ends a sleep also when its delay is over.
func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if err := Sleep(ctx, 0); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
}
