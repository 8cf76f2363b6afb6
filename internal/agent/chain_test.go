package agent

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// TestLongChains: the last save that a VM can be started from is made, and no other.
func TestLongChains(t *testing.T) {
	for layers, want := range map[int]api.TaskStage{hv.MaxDeltas - 1: api.TaskDone, hv.MaxDeltas: api.TaskFailed} {
		inWorld(t, sim.Options{}, func(w *world) {
			w.source.layers = layers
			w.control.order(startOrder(nil))
			w.until(api.PhaseRunning)
			w.control.order(saveOrder("s1", nil))
			if got := w.untilTask("s1"); got.Stage != want || (want == api.TaskFailed) != strings.Contains(got.Message, "stands on 62 saves") {
				t.Errorf("%d layers: %+v", layers, got)
			}
		})
	}
}
