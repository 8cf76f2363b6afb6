package metric

import (
	"math"
	"testing"
	"time"
)

func TestHistogramCountsEachOnce(t *testing.T) {
	h := NewHistogram([]float64{1, 2})
	for _, d := range []time.Duration{
		-time.Second, 0, time.Second, 1001 * time.Millisecond, 2 * time.Second, time.Hour,
	} {
		h.Observe(d)
	}
	d := h.Snapshot()
	if d.Count != 6 || d.Buckets[1] != 3 || d.Buckets[2] != 5 || len(d.Buckets) != 2 {
		t.Errorf("%+v", d)
	}
	if math.Abs(d.Sum-(1+1.001+2+3600)) > 1e-9 {
		t.Errorf("sum %v", d.Sum)
	}
}

func TestBoundsAscend(t *testing.T) {
	for _, bounds := range [][]float64{Short, Long} {
		for i := 1; i < len(bounds); i++ {
			if bounds[i] <= bounds[i-1] {
				t.Errorf("%v after %v", bounds[i], bounds[i-1])
			}
		}
	}
}

func TestWindowForgets(t *testing.T) {
	start := time.Unix(1_700_000_040, 0) // a whole minute
	w := NewWindow(start)
	at := func(m int) time.Time { return start.Add(time.Duration(m) * time.Minute) }
	w.Add(at(0), 2*time.Second)
	w.Add(at(0), 4*time.Second)
	w.Add(at(5), time.Second)
	for _, c := range []struct{ now, span, count int }{
		{5, 60, 3}, {5, 1, 1}, {5, 5, 1}, {5, 6, 3}, {59, 60, 3}, {60, 60, 1}, {64, 60, 1}, {65, 60, 0}, {1000, 60, 0},
	} {
		if got := w.Last(at(c.now), c.span).Count; got != c.count {
			t.Errorf("minute %d, last %d: %d, want %d", c.now, c.span, got, c.count)
		}
	}
}

// TestWindowSurvivesClocks: a clock that jumps is harmless.
func TestWindowSurvivesClocks(t *testing.T) {
	start := time.Unix(1_700_000_040, 0)
	w := NewWindow(start)
	w.Add(start, time.Second)
	w.Add(start.Add(-time.Hour), time.Second) // set back: counts for the newest minute
	if got := w.Last(start, 1).Count; got != 2 {
		t.Errorf("%d after the clock was set back", got)
	}
	w.Add(start.Add(100*365*24*time.Hour), time.Second) // far ahead: no loop over all minutes
	if got := w.Last(start.Add(100*365*24*time.Hour), 60).Count; got != 1 {
		t.Errorf("%d after the clock was set ahead", got)
	}
}

func TestWindowRateAndMean(t *testing.T) {
	start := time.Unix(1_700_000_040, 0)
	w := NewWindow(start)
	for range 120 {
		w.Add(start.Add(time.Second), 500*time.Millisecond)
	}
	if got := w.Rate(start.Add(30*time.Second), 5); got != 2 {
		t.Errorf("a young window: %v a second, want 2", got)
	}
	if got := w.Rate(start.Add(4*time.Minute), 5); got != 0.4 {
		t.Errorf("%v a second, want 0.4", got)
	}
	if got := w.Last(start, 5).Mean(); got != 0.5 {
		t.Errorf("mean %v", got)
	}
	if got := (WindowSum{}).Mean(); got != 0 {
		t.Errorf("mean of nothing %v", got)
	}
}

func TestCountingAllocatesNothing(t *testing.T) {
	h, w, now := NewHistogram(Long), NewWindow(time.Now()), time.Now()
	var c Counter
	if n := testing.AllocsPerRun(100, func() {
		c.Inc()
		h.Observe(time.Second)
		w.Add(now, time.Second)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestOldNamesStay(t *testing.T) {
	var c Counter
	c.Add(3)
	got := WithOldNames([]Family{CounterFamily("new_total", "Events", &c), CounterFamily("kept_total", "Others", &c)},
		map[string]string{"new_total": "old_total"})
	var old float64
	got[len(got)-1].Read(&Series{Value: func(v float64, _ ...string) { old = v }})
	if len(got) != 3 || got[2].Name != "old_total" || got[2].Help != "deprecated: use new_total" ||
		got[0].Help != "Events" || old != 3 {
		t.Errorf("%+v", got)
	}
}
