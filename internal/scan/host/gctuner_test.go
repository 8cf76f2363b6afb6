package host

import (
	"runtime/debug"
	"testing"
)

// TestGCTuner: at rest the collector waits until memory is needed; with the first worker it
// runs, and does so until the last one is done.
func TestGCTuner(t *testing.T) {
	now := func() (percent int, limit int64) {
		percent = debug.SetGCPercent(100)
		debug.SetGCPercent(percent)
		return percent, debug.SetMemoryLimit(-1)
	}
	percent, limit := now()
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
	expect := func(when string, wantPercent int, rests bool) {
		t.Helper()
		p, l := now()
		if p != wantPercent || (l == limit) == rests {
			t.Errorf("%s: %d %%, a limit of %d", when, p, l)
		}
	}
	var c GCTuner
	c.begin()
	done := c.hold()
	expect("at work", workGCPercent, false)
	c.done()
	expect("one is left", workGCPercent, false)
	done()
	expect("at rest", -1, true)
	c.begin()
	expect("at work again", workGCPercent, false)
	c.done()
	expect("at rest again", -1, true)
}
