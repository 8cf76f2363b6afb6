package nodelink

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestSharedTicker: waits end together, at the next time of the grid.
func TestSharedTicker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSharedTicker()
		time.Sleep(tickInterval / 5)
		one, same := b.after(tickInterval), b.after(tickInterval+tickInterval/2)
		if one != same || len(b.ends) != 1 {
			t.Error("two that end at the same moment have timers of their own")
		}
		for _, wait := range []time.Duration{
			0, tickInterval, tickInterval + 1, 10 * tickInterval,
		} {
			begun := time.Now()
			<-b.after(wait)
			if took := time.Since(begun); took < wait || took >= wait+tickInterval ||
				time.Since(b.started)%tickInterval != 0 {
				t.Errorf("a wait of %s takes %s", wait, took)
			}
		}
		if len(b.ends) > 0 {
			t.Errorf("%d ends that have passed are kept", len(b.ends))
		}
	})
}
