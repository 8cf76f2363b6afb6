package row

import (
	"math"
	"slices"
)

// Median returns the middle of the samples, or the mean of the two in the middle. There
// must be one at least.
func Median(samples []float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	m := len(s) / 2
	if len(s)%2 == 1 {
		return s[m]
	}
	return (s[m-1] + s[m]) / 2
}

// Quantile returns the sample that the part q of all, 0 to 1, is not above: the nearest
// rank, so that it is one that was measured. There must be one at least.
func Quantile(samples []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(q * float64(len(s))))
	return s[min(max(rank-1, 0), len(s)-1)]
}
