package main

import (
	"slices"
	"time"
)

// median gives the middle of the samples, or the mean of the two in the middle. There
// must be one at least.
func median(samples []float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	m := len(s) / 2
	if len(s)%2 == 1 {
		return s[m]
	}
	return (s[m-1] + s[m]) / 2
}

// ms gives a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
