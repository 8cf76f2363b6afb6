package agent

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// acked reports whether any poll acknowledged a termination.
func (w *world) acked() bool {
	return slices.ContainsFunc(w.control.seen(), func(p api.PollRequest) bool {
		return slices.ContainsFunc(p.Acks, func(a api.Ack) bool { return a.Kind == api.OrderTerminate })
	})
}

// TestTerminateOnAFullDisk: a VM that fills the disk can be terminated, and its end is reported,
// while the disk has no free space for a single write.
func TestTerminateOnAFullDisk(t *testing.T) {
	for script, phase := range map[string]api.Phase{"exit 0": api.PhaseScriptOK, "sleep 1000": api.PhaseRunning} {
		t.Run(script, func(t *testing.T) {
			inWorld(t, sim.Options{}, func(w *world) {
				w.control.order(startOrder(withScript(api.Script{Text: []byte(script)})))
				w.until(phase)
				w.fill(true)
				w.control.order(terminate("1"))
				w.until(api.PhaseTerminated)
				time.Sleep(time.Second)
				w.checkClean()
				if w.number(&w.deletes) != 1 {
					t.Errorf("%d removals", w.number(&w.deletes))
				}
			})
		})
	}
}

// TestOrphanOnAFullDisk: the same for a VM that is missing in the journal.
func TestOrphanOnAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sim.Options{})
		_, err := w.host.Start(t.Context(), hv.Spec{
			ID: idA, UUID: idA, CPUs: 1, MemoryMB: 512, Disks: []hv.Disk{{Path: "/x", Format: "raw"}},
			Labels: map[string]string{labelInstance: idA},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.fill(true)
		stop := w.boot(newGate(-1))
		w.control.order(terminate(""))
		w.until(api.PhaseTerminated)
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		w.checkClean()
	})
}

// TestEndIsNotAcknowledgedBeforeItIsDurable: with a VM that cannot be removed and a full disk, a
// kill loses the end; the controller must send the order again then.
func TestEndIsNotAcknowledgedBeforeItIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sim.Options{})
		w.clings(true)
		g := newGate(-1)
		stop := w.boot(g)
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		w.fill(true)
		w.control.order(terminate("1"))
		time.Sleep(30 * time.Second)
		if w.acked() {
			t.Error("a termination that a kill loses was acknowledged")
		}
		if w.control.phase(idA) != api.PhaseRunning || len(w.vms()) != 1 {
			t.Errorf("told %s with %d VMs left", w.control.phase(idA), len(w.vms()))
		}
		w.fill(false)
		time.Sleep(15 * time.Second)
		if !w.acked() {
			t.Error("the termination is durable and was not acknowledged")
		}
		g.kill()
		_ = stop()
		w.clings(false)
		again := w.boot(newGate(-1))
		w.until(api.PhaseTerminated)
		time.Sleep(time.Second)
		if err := again(); err != nil {
			t.Error(err)
		}
		w.checkClean()
	})
}

// TestStartsAreNotTakenOnAFullDisk: the order is sent again until there is free space.
func TestStartsAreNotTakenOnAFullDisk(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.fill(true)
		w.control.order(startOrder(nil))
		time.Sleep(30 * time.Second)
		if w.number(&w.starts) != 0 {
			t.Error("an order that the journal does not have was begun")
		}
		w.fill(false)
		w.until(api.PhaseRunning)
	})
}

// TestScriptOutcomeOutlastsAFullDisk: the script's result is kept until there is free space.
func TestScriptOutcomeOutlastsAFullDisk(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(withScript(api.Script{Text: []byte("sleep 5; echo done"), Monitoring: true})))
		w.until(api.PhaseRunning)
		time.Sleep(time.Second)
		w.fill(true)
		time.Sleep(time.Minute)
		w.fill(false)
		w.until(api.PhaseScriptOK)
		if s := w.control.status(idA); s.Script == nil || s.Script.Stdout != "done\n" || s.Script.Code != 0 ||
			s.Message != "" {
			t.Errorf("got %q, %+v", s.Message, s.Script)
		}
		if w.number(&w.scripts) != 1 {
			t.Errorf("the script ran %d times", w.number(&w.scripts))
		}
	})
}

// TestEndDuringAnUnsavedOutcome: waiting for free space does not delay the end.
func TestEndDuringAnUnsavedOutcome(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(withScript(api.Script{Text: []byte("sleep 5"), Monitoring: true})))
		w.until(api.PhaseRunning)
		w.fill(true)
		time.Sleep(time.Minute)
		w.control.order(terminate("1"))
		begun := time.Now()
		w.until(api.PhaseTerminated)
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the end took %s", took)
		}
		time.Sleep(time.Second)
		w.checkClean()
	})
}
