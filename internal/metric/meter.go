// Package metric has counters, histograms and sums of the last minutes, and the families in which
// they are exposed.
//
// It is not the exposition (internal/obs makes that of families) and has no clock: callers pass the
// time.
//
// Invariant: counting takes no lock that a reader holds for long and never allocates; the size of a
// metric is fixed when it is made, whatever is counted.
package metric

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Counter only grows. The zero value is ready; it may be used from many goroutines.
type Counter struct{ n atomic.Int64 }

// Add counts n more; n must not be negative.
func (c *Counter) Add(n int64) { c.n.Add(n) }

// Inc counts one more.
func (c *Counter) Inc() { c.n.Add(1) }

// Value returns the count so far.
func (c *Counter) Value() float64 { return float64(c.n.Load()) }

// Histogram counts durations by their length. Create it with NewHistogram.
type Histogram struct {
	bounds   []float64 // seconds, upper and inclusive, ascending
	counts   []atomic.Uint64
	sumNanos atomic.Int64
}

// Bounds of histograms, in seconds.
var (
	// Short are for what takes no longer than a request: 0.5 ms to 10 s.
	Short = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	// Long are for what CI jobs wait for: 0.1 s to an hour.
	Long = []float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600}
)

// NewHistogram returns a histogram with these upper bounds, which must ascend.
func NewHistogram(bounds []float64) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

// Observe counts one duration; a negative one, after a clock was set back, counts as 0.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	seconds, i := d.Seconds(), 0
	for i < len(h.bounds) && seconds > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sumNanos.Add(int64(d))
}

// Distribution is a histogram at one moment.
type Distribution struct {
	Count   uint64
	Sum     float64            // seconds
	Buckets map[float64]uint64 // upper bound -> observations up to it
}

// Snapshot returns what was counted so far.
func (h *Histogram) Snapshot() Distribution {
	d := Distribution{Sum: time.Duration(h.sumNanos.Load()).Seconds(), Buckets: make(map[float64]uint64, len(h.bounds))}
	for i := range h.counts {
		d.Count += h.counts[i].Load()
		if i < len(h.bounds) {
			d.Buckets[h.bounds[i]] = d.Count
		}
	}
	return d
}

// minutes is the length of a Window, including the current minute.
const minutes = 60

// Window sums up the last hour, minute by minute. Create it with NewWindow; it may be used from
// many goroutines.
type Window struct {
	startMinute int64 // minute

	mu           sync.Mutex // guards the fields below
	newestMinute int64      // newest minute
	slots        [minutes]WindowSum
}

// WindowSum is a number of events, and the sum of their durations.
type WindowSum struct {
	Count int
	Sum   time.Duration
}

// NewWindow returns a window that begins now.
func NewWindow(now time.Time) *Window {
	at := minuteOf(now)
	return &Window{startMinute: at, newestMinute: at}
}

func minuteOf(t time.Time) int64 { return max(t.Unix(), 0) / 60 }

// Add counts one more that took d.
func (w *Window) Add(now time.Time, d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moveLocked(now)
	s := &w.slots[w.newestMinute%minutes] // a late one counts for the newest minute
	s.Count++
	s.Sum += max(d, 0)
}

// moveLocked drops the minutes that are over. A clock that was set back moves nothing.
func (w *Window) moveLocked(now time.Time) {
	at := minuteOf(now)
	for i := max(w.newestMinute, at-minutes) + 1; i <= at; i++ {
		w.slots[i%minutes] = WindowSum{}
	}
	w.newestMinute = max(w.newestMinute, at)
}

// Last sums up the newest minutes, at most 60: the current one and those before it.
func (w *Window) Last(now time.Time, span int) WindowSum {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moveLocked(now)
	var sum WindowSum
	for i := range int64(min(span, minutes)) {
		s := w.slots[(w.newestMinute+minutes-i)%minutes]
		sum.Count += s.Count
		sum.Sum += s.Sum
	}
	return sum
}

// Rate returns the events per second in the newest minutes. For a younger window it uses the
// window's age, in whole minutes.
func (w *Window) Rate(now time.Time, span int) float64 {
	count := w.Last(now, span).Count
	whole := min(int64(span), minuteOf(now)-w.startMinute+1)
	return float64(count) / (60 * float64(max(whole, 1)))
}

// Mean returns the mean duration of the events, in seconds; 0 for none.
func (t WindowSum) Mean() float64 {
	if t.Count == 0 {
		return 0
	}
	mean := t.Sum.Seconds() / float64(t.Count)
	return math.Round(mean*1e6) / 1e6
}
