package blob

import (
	"slices"
	"testing"
)

// TestWindowsAreBounded: the oldest windows are evicted, and each remaining one is cached once.
func TestWindowsAreBounded(t *testing.T) {
	var w segmentCache
	for i := range int64(5) {
		w.keepLocked(i, make([]segment, keptSegments/2))
		w.keepLocked(i, make([]segment, 1))
	}
	if !slices.Equal(w.order, []int64{3, 4}) || len(w.at) != 2 || w.held != keptSegments {
		t.Errorf("it keeps %v, %d windows, %d segments", w.order, len(w.at), w.held)
	}
	w.keepLocked(9, make([]segment, 2*keptSegments)) // more than the limit is kept alone
	w.keepLocked(10, make([]segment, 1))
	if !slices.Equal(w.order, []int64{10}) || len(w.at) != 1 || w.held != 1 {
		t.Errorf("it keeps %v, %d windows, %d segments", w.order, len(w.at), w.held)
	}
}
