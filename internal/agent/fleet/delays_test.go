package fleet

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// TestPull: a pull takes a time in its range, reports its progress, and fails with the configured
// share; with the same seed the same pulls fail.
func TestPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fates := func() (failed []int) {
			p := newTemplates(sim.DurationRange{Min: time.Second, Max: 3 * time.Second},
				seededRand{failureRate: 0.3, seed: 7})
			for i := range 100 {
				began, last := time.Now(), 0.0
				err := p.Fetch(t.Context(), cache.Ref{ContentID: string(rune('a' + i))}, func(f float64) { last = f })
				took := time.Since(began)
				switch {
				case err == nil && (took < 999*time.Millisecond || took > 3*time.Second || last != 1):
					t.Fatalf("pull %d took %s and got to %v", i, took, last)
				case err != nil:
					if farm.CodeOf(err) != farm.CodeUnavailable || last != 0.5 || p.Has(string(rune('a'+i))) {
						t.Fatalf("pull %d failed at %v: %v", i, last, err)
					}
					failed = append(failed, i)
				}
			}
			return failed
		}
		first, second := fates(), fates()
		if len(first) < 15 || len(first) > 45 || len(first) != len(second) || first[0] != second[0] {
			t.Errorf("of 100 pulls %d and %d failed, 30 were expected", len(first), len(second))
		}
	})
}

// TestPullBrokenOff: a pull ends with its context.
func TestPullBrokenOff(t *testing.T) {
	p := newTemplates(sim.DurationRange{Min: time.Hour}, seededRand{})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if err := p.Fetch(ctx, cache.Ref{ContentID: "c"}, func(float64) {}); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

// recorder records the times of reports.
type recorder struct {
	agent.ControllerAPI
	at time.Time
}

func (r *recorder) Report(context.Context, api.Report) (api.ReportAnswer, error) {
	r.at = time.Now()
	return api.ReportAnswer{}, nil
}

func TestSlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		l := &delayedAPI{ControllerAPI: r, reportDelay: sim.DurationRange{Min: time.Second, Max: 2 * time.Second}}
		began := time.Now()
		if _, err := l.Report(t.Context(), api.Report{}); err != nil {
			t.Fatal(err)
		}
		if d := r.at.Sub(began); d < time.Second || d > 2*time.Second {
			t.Errorf("the report came after %s", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := l.Report(ctx, api.Report{}); err == nil {
			t.Error("a report outlives its context")
		}
	})
}

// TestJoinWaits: the fleet waits for a controller that is unavailable at the start, but not with a
// wrong token.
func TestJoinWaits(t *testing.T) {
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"status":"FAIL","message":"no"}`))
	}))
	defer server.Close()
	err := Run(t.Context(), Options{NodeCount: 1, ControllerURL: server.URL, Logger: slog.New(slog.DiscardHandler)})
	if farm.CodeOf(err) != farm.CodeUnauthenticated || calls.Load() != 3 {
		t.Errorf("%d calls gave %v", calls.Load(), err)
	}
	server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := Run(ctx,
		Options{NodeCount: 3, ControllerURL: server.URL, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Errorf("an end while it waits gives %v", err)
	}
}
