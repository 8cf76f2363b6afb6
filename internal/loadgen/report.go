package loadgen

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"sync"
	"time"
)

// Op is a kind of measured operation.
type Op string

// The measured operations: the calls, and the time from a create to Started as a client sees it.
const (
	OpCreate    Op = "create"
	OpGet       Op = "get"
	OpList      Op = "list"
	OpTerminate Op = "terminate"
	OpStart     Op = "start"
)

// Ops are the kinds in the order in which they are shown.
var Ops = []Op{OpCreate, OpGet, OpList, OpTerminate, OpStart}

// Percentiles are the percentiles of one kind, in milliseconds.
type Percentiles struct {
	Count int64   `json:"count"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

// Report is the result of a run.
type Report struct {
	Profile    string             `json:"profile"`
	Seconds    float64            `json:"seconds"` // in which jobs began
	Offered    int64              `json:"offered"` // jobs that were due
	Created    int64              `json:"created"` // instances that were acknowledged
	PerSecond  float64            `json:"created_per_second"`
	Started    int64              `json:"started"` // of them seen Started
	Failed     int64              `json:"failed"`  // of them seen in Error
	Terminated int64              `json:"terminated"`
	Late       int64              `json:"late"` // jobs that were due but not started: too many calls were in flight
	Remaining  int                `json:"left"` // instances of this run that exist at its end
	Times      map[Op]Percentiles `json:"times"`
	Errors     map[string]int64   `json:"errors"` // by kind
}

// histogram counts durations in buckets that grow by 5 % each, so that a run of any length uses the
// same memory and a percentile is off by 5 % at most.
type histogram struct {
	count   int64
	max     time.Duration
	buckets [440]int64
}

const (
	minBucket    = time.Microsecond
	bucketGrowth = 1.05
)

func (h *histogram) add(d time.Duration) {
	i := 0
	if d > minBucket {
		i = int(math.Log(float64(d)/float64(minBucket)) / math.Log(bucketGrowth))
	}
	h.buckets[min(i, len(h.buckets)-1)]++
	h.count++
	h.max = max(h.max, d)
}

// quantile returns the upper bound of the bucket that contains the quantile q.
func (h *histogram) quantile(q float64) time.Duration {
	rank, seen := int64(math.Ceil(q*float64(h.count))), int64(0)
	for i, n := range h.buckets {
		if seen += n; seen >= max(rank, 1) {
			return min(time.Duration(float64(minBucket)*math.Pow(bucketGrowth, float64(i+1))), h.max)
		}
	}
	return h.max
}

func (h *histogram) percentiles() Percentiles {
	ms := func(d time.Duration) float64 { return math.Round(float64(d)/float64(time.Microsecond)) / 1000 }
	return Percentiles{h.count, ms(h.quantile(0.5)), ms(h.quantile(0.9)), ms(h.quantile(0.99)), ms(h.max)}
}

// maxErrorKinds limits the number of distinct kinds of errors.
const maxErrorKinds = 50

// results collects the results of a run, from many goroutines.
type results struct {
	mu     sync.Mutex // guards the fields below
	report Report
	times  map[Op]*histogram
}

func newResults(profile string) *results {
	t := &results{report: Report{Profile: profile, Errors: map[string]int64{}}, times: map[Op]*histogram{}}
	for _, op := range Ops {
		t.times[op] = &histogram{}
	}
	return t
}

// update changes the report.
func (t *results) update(edit func(*Report)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	edit(&t.report)
}

// record records the duration of a successful operation, or the error of a failed one.
func (t *results) record(op Op, d time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.times[op].add(d)
		return
	}
	kind := string(op) + ": " + errorKind(err)
	if _, known := t.report.Errors[kind]; !known && len(t.report.Errors) >= maxErrorKinds {
		kind = "other"
	}
	t.report.Errors[kind]++
}

// snapshot returns the current report; offered is how long jobs have been started.
func (t *results) snapshot(offered time.Duration) Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.report
	r.Seconds = offered.Seconds()
	r.PerSecond = float64(r.Created) / max(r.Seconds, 1e-9)
	r.Times, r.Errors = map[Op]Percentiles{}, maps.Clone(t.report.Errors)
	for op, h := range t.times {
		if h.count > 0 {
			r.Times[op] = h.percentiles()
		}
	}
	return r
}

// errorKind returns the kind of an error, without what differs from call to call.
func errorKind(err error) string {
	const most = 80 // bytes of a controller's message
	if r, ok := errors.AsType[*APIError](err); ok {
		return fmt.Sprintf("HTTP %d %.*s", r.Code, most, r.Message)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "time-out"
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return "connection"
	}
	return "unreadable answer"
}
