package agent

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// inhibitor is a SleepInhibitor that remembers the last call.
type inhibitor struct{ needed atomic.Bool }

// SetNeeded implements SleepInhibitor.
func (i *inhibitor) SetNeeded(needed bool) { i.needed.Store(needed) }

// TestAwakeWhileVMsRun: the host must stay awake from the start of the first VM to the end of the last one, also for
// a VM that an earlier agent started.
func TestAwakeWhileVMsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, i := newWorld(t, sim.Options{}), &inhibitor{}
		w.inhibitor = i
		stop := w.boot(newGate(-1))
		time.Sleep(time.Minute)
		if i.needed.Load() {
			t.Error("the host stays awake without VMs")
		}
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		time.Sleep(2 * time.Second)
		if !i.needed.Load() {
			t.Error("the host may sleep while a VM runs")
		}
		if err := stop(); err != nil {
			t.Error(err)
		}

		i.needed.Store(false)
		stop = w.boot(newGate(-1))
		time.Sleep(2 * time.Second)
		if !i.needed.Load() {
			t.Error("the host may sleep while a VM of an earlier agent runs")
		}
		w.control.order(terminate("1"))
		w.until(api.PhaseTerminated)
		time.Sleep(time.Minute)
		if i.needed.Load() {
			t.Error("the host stays awake after the last VM")
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
