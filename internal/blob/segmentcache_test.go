package blob

import (
	"slices"
	"testing"
)

// TestWindowsAreBounded: the oldest windows are evicted, and each remaining one is cached once.
func TestWindowsAreBounded(t *testing.T) {
	var w segmentCache
	for i := range int64(5) {
		w.addLocked(i, make([]segment, maxCachedSegments/2))
		w.addLocked(i, make([]segment, 1))
	}
	if !slices.Equal(w.windows, []int64{3, 4}) || len(w.byWindow) != 2 || w.segmentCount != maxCachedSegments {
		t.Errorf("it keeps %v, %d windows, %d segments", w.windows, len(w.byWindow), w.segmentCount)
	}
	w.addLocked(9, make([]segment, 2*maxCachedSegments)) // more than the limit is kept alone
	w.addLocked(10, make([]segment, 1))
	if !slices.Equal(w.windows, []int64{10}) || len(w.byWindow) != 1 || w.segmentCount != 1 {
		t.Errorf("it keeps %v, %d windows, %d segments", w.windows, len(w.byWindow), w.segmentCount)
	}
}
