package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// TestPushThatIsCut: the push for a terminated instance is abandoned at the registry; the push of
// an agent that only ends is resumed later.
func TestPushThatIsCut(t *testing.T) {
	for _, ends := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, sim.Options{})
			stop := w.boot(newGate(-1))
			w.control.order(startOrder(nil))
			w.until(api.PhaseRunning)
			w.shop.slow(time.Hour)
			w.control.order(saveOrder("s1", nil))
			w.untilStage(api.TaskPushing)
			if ends {
				w.control.order(terminate("1"))
				w.until(api.PhaseTerminated)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			w.shop.mu.Lock()
			defer w.shop.mu.Unlock()
			if w.shop.abandoned != ends {
				t.Errorf("terminated %v, abandoned %v", ends, w.shop.abandoned)
			}
		})
	}
}
