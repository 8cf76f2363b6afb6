package api

import "time"

// The ranges of GET /api/v1/stats/series.
const (
	RangeHour    = "1h"
	RangeQuarter = "6h" // of a day
	RangeDay     = "24h"
	RangeWeek    = "7d"
)

// Series is the load of a cloud over a time range, in steps. Steps without data have no point.
type Series struct {
	Range  string        `json:"range"` // requested range
	Step   int           `json:"step"`  // seconds
	From   time.Time     `json:"from"`
	To     time.Time     `json:"to"`
	Points []SeriesPoint `json:"points"` // the oldest first; the last one may be of a step that continues
}

// SeriesPoint is one step of a series.
type SeriesPoint struct {
	Time      time.Time `json:"time"`                // when the step begins
	Running   float64   `json:"running"`             // instances in Started, mean
	Queue     float64   `json:"queue"`               // requests that waited for a node, mean
	QueuePeak int       `json:"queue_peak"`          // the most that waited at a time
	Starts    int       `json:"starts"`              // VMs that came up
	StartP50  *float64  `json:"start_p50,omitempty"` // median start time in seconds; absent without starts
	StartP95  *float64  `json:"start_p95,omitempty"` // 95th percentile of the start time in seconds
	Pulled    int64     `json:"pulled"`              // bytes of templates that nodes got from registries
}
