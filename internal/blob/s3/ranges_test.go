package s3

import (
	"math/rand/v2"
	"testing"
)

// TestRanges compares the ranges with a set of bytes.
func TestRanges(t *testing.T) {
	const size = 64
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var ranges byteRanges
		var bytes [size]bool
		for range 20 {
			start := rnd.Int64N(size)
			r := byteRange{start, start + rnd.Int64N(size-start+1)}
			add := rnd.IntN(3) > 0
			if add {
				ranges = ranges.add(r)
			} else {
				ranges = ranges.remove(r)
			}
			for i := r.start; i < r.end; i++ {
				bytes[i] = add
			}
			checkRanges(t, ranges, bytes[:])
		}
	}
}

func checkRanges(t *testing.T, ranges byteRanges, bytes []bool) {
	t.Helper()
	prefix := 0
	for prefix < len(bytes) && bytes[prefix] {
		prefix++
	}
	if got := ranges.prefix(); got != int64(prefix) {
		t.Fatalf("prefix %d of %v, want %d", got, ranges, prefix)
	}
	for i := range bytes {
		in := 0
		for _, r := range ranges {
			if r.start <= int64(i) && int64(i) < r.end {
				in++
			}
		}
		if in > 1 || (in == 1) != bytes[i] {
			t.Fatalf("byte %d is in %d of %v", i, in, ranges)
		}
	}
}
