package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// TestScriptOutputOfASave: the last MiB of each stream is reported when the script has ended and
// with the result, but not with every step in between.
func TestScriptOutputOfASave(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		w.shop.slow(time.Minute)
		w.control.order(saveOrder("s1", func(o *api.SaveOrder) { o.Script = []byte("seq 300000; echo e >&2") }))
		got := w.untilTask("s1")
		if s := got.Script; s == nil || len(s.Stdout) != hv.MaxOutputBytes ||
			!strings.HasPrefix(s.Stdout, farm.OutputTruncatedLine) ||
			!strings.HasSuffix(s.Stdout, "\n300000\n") || s.Stderr != "e\n" {
			t.Errorf("got %d bytes", len(got.Script.Stdout))
		}
		with := 0
		for _, s := range w.control.told(idA) {
			if s.Task != nil && s.Task.Script != nil {
				with++
			}
		}
		if with < 2 || with > 4 {
			t.Errorf("the output was sent %d times in %d reports", with, len(w.control.told(idA)))
		}
		time.Sleep(time.Second)
		w.checkRuns()
	})
}

// TestOutputOutlivesTheAgent: the next agent reports the script's output, too.
func TestOutputOutlivesTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sim.Options{})
		g := newGate(-1)
		stop := w.boot(g)
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		w.shop.slow(time.Hour)
		w.control.order(saveOrder("s1", func(o *api.SaveOrder) { o.Script = []byte("echo said") }))
		w.untilStage(api.TaskPushing)
		g.kill()
		_ = stop()
		w.shop.slow(0)
		again := w.boot(newGate(-1))
		if got := w.untilTask("s1"); got.Stage != api.TaskDone || got.Script == nil || got.Script.Stdout != "said\n" {
			t.Errorf("got %+v", got)
		}
		time.Sleep(time.Second)
		w.checkRuns()
		if w.number(&w.scripts) != 1 || w.number(&w.saved) != 1 {
			t.Errorf("%d scripts, %d saves", w.number(&w.scripts), w.number(&w.saved))
		}
		if err := again(); err != nil {
			t.Error(err)
		}
		w.checkFaults()
	})
}

// TestTaskOnAFullDisk: an order that cannot be journaled is refused permanently, with the reason,
// and the VM runs on. A disk that becomes full later delays the task, but not a termination.
func TestTaskOnAFullDisk(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		w.fill(true)
		w.control.order(saveOrder("s0", nil))
		if got := w.untilTask("s0"); !strings.Contains(got.Message, "disk is full") {
			t.Errorf("got %+v", got)
		}
		w.fill(false)
		w.control.order(saveOrder("s0", nil)) // it was sent twice
		time.Sleep(time.Minute)
		if acked := ackedTasks(w); w.number(&w.saved) != 0 || !slices.Contains(acked, "s0") {
			t.Errorf("%d saves, acknowledged %v", w.number(&w.saved), acked)
		}
		w.checkRuns()
		w.shop.slow(time.Minute)
		w.control.order(saveOrder("s1", nil))
		w.untilStage(api.TaskPushing)
		w.fill(true)
		time.Sleep(5 * time.Minute)
		if n, _ := w.shop.pushed(); n != 1 || len(w.shop.tagged("v2")) != 1 {
			t.Errorf("%d pushes, %d versions", n, len(w.shop.tagged("v2")))
		}
		w.fill(false)
		if got := w.untilTask("s1"); got.Stage != api.TaskDone || w.number(&w.saved) != 1 {
			t.Errorf("got %+v, saved %d times", got, w.number(&w.saved))
		}
		w.control.order(saveOrder("s2", func(o *api.SaveOrder) { o.Tag = "v3" }))
		w.untilStage(api.TaskPushing)
		w.fill(true)
		time.Sleep(5 * time.Minute)
		w.control.order(terminate("1"))
		w.until(api.PhaseTerminated)
		time.Sleep(time.Second)
		w.checkClean()
	})
}

// TestLeftOversGo: directories and check VMs without an instance are removed when an agent starts.
func TestLeftOversGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sim.Options{})
		if err := os.MkdirAll(filepath.Join(w.saves(), "old", "files"), 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := w.host.Start(t.Context(), hv.Spec{
			ID: idA + "-check", UUID: idA, CPUs: 1, MemoryMB: 512, Disks: []hv.Disk{{Path: "/x", Format: "raw"}},
			Labels: map[string]string{labelInstance: idA, labelRole: roleTestVM, labelNode: "node"},
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := w.boot(newGate(-1))
		time.Sleep(20 * time.Second)
		w.checkClean()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
