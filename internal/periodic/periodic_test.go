package periodic

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// times records when a background job runs, in seconds since its test began.
type times struct {
	mu    sync.Mutex
	begun time.Time
	at    []int
}

func newTimes() *times { return &times{begun: time.Now()} }

func (n *times) note() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at = append(n.at, int(time.Since(n.begun).Seconds()))
}

// run runs background jobs for a time.
func run(t *testing.T, length time.Duration, list ...Job) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var log strings.Builder
	Run(ctx, list, slog.New(slog.NewTextHandler(&log, nil)))
	return log.String()
}

func TestJobsComeAtTheirPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		often, seldom := newTimes(), newTimes()
		log := run(t, 16*time.Second,
			Job{What: "often", Every: 5 * time.Second, Do: func(context.Context) error { often.note(); return nil }},
			Job{What: "seldom", Every: time.Hour, Do: func(context.Context) error { seldom.note(); return nil }})
		if !slices.Equal(often.at, []int{0, 5, 10, 15}) || !slices.Equal(seldom.at, []int{0}) || log != "" {
			t.Errorf("often %v, seldom %v, log %q", often.at, seldom.at, log)
		}
	})
}

// TestJobsThatFail: failing jobs are repeated after growing delays, and at their interval once
// they succeed.
func TestJobsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type attempt struct {
			at     time.Duration
			failed bool
		}
		var attempts []attempt
		successes, failures := 0, 0
		begun, others := time.Now(), newTimes()
		log := run(t, 340*time.Second,
			Job{What: "keys", Every: 30 * time.Second, Do: func(context.Context) error {
				a := attempt{at: time.Since(begun)}
				a.failed = a.at < 180*time.Second || successes == 1
				attempts = append(attempts, a)
				successes++
				if !a.failed {
					return nil
				}
				if failures++; a.at < 180*time.Second {
					successes = 0
				}
				return errors.New("no")
			}},
			Job{What: "others", Every: 100 * time.Second, Do: func(context.Context) error {
				others.note()
				return nil
			}})
		interval := firstPause
		for i, a := range attempts[1:] {
			gap := a.at - attempts[i].at
			switch {
			case !attempts[i].failed:
				if interval = firstPause; gap != 30*time.Second {
					t.Errorf("attempt %d came %v after a success", i+1, gap)
				}
			case gap < interval/2 || gap > interval:
				t.Errorf("attempt %d came %v after a failure, want %v to %v", i+1, gap, interval/2, interval)
			default:
				interval = min(2*interval, mostPause)
			}
		}
		if successes < 3 {
			t.Errorf("attempts %v", attempts)
		}
		if !slices.Equal(others.at, []int{0, 100, 200, 300}) {
			t.Errorf("another job came at %v", others.at)
		}
		if strings.Count(log, "what=keys") != failures || strings.Count(log, "error=no") != failures {
			t.Error(log)
		}
	})
}

// TestAJobThatHangs: the job is canceled after its time limit, and ends with the context.
func TestAJobThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs, beside := newTimes(), newTimes()
		log := run(t, 25*time.Second,
			Job{What: "keys", Every: time.Second, Do: func(ctx context.Context) error {
				hangs.note()
				<-ctx.Done()
				return context.Cause(ctx)
			}},
			Job{What: "others", Every: time.Second, Do: func(context.Context) error { beside.note(); return nil }})
		early, late := []int{0, 10, 21}, []int{0, 11, 23}
		if !between(hangs.at, early, late) || len(beside.at) < 2 || strings.Count(log, "deadline exceeded") != 2 {
			t.Errorf("tried at %v, beside %v\n%s", hangs.at, beside.at, log)
		}
	})
}

// between reports whether every value is within two bounds.
func between(at, low, high []int) bool {
	for i, v := range at {
		if i >= len(low) || v < low[i] || v > high[i] {
			return false
		}
	}
	return len(at) == len(low)
}

// TestNothingToDo: Run returns immediately; one that waits would be a deadlock here.
func TestNothingToDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		Run(t.Context(), nil, slog.New(slog.DiscardHandler))
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %s", took)
		}
	})
}
