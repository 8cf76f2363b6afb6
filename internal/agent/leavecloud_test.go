package agent

import (
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

// stages are lives that are interrupted in each phase, and in each stage of a task.
var stages = map[string]struct {
	phase      api.Phase
	pull, boot time.Duration
	exec       time.Duration // duration of the connection to the guest
	script     string
	monitored  bool
	task       api.TaskStage // of a save with everything
	vms        int
}{
	"pulling":       {phase: api.PhasePulling, pull: time.Hour},
	"starting":      {phase: api.PhaseStarting, boot: 50 * time.Second, script: "exit 0", vms: 1},
	"running":       {phase: api.PhaseRunning, script: "sleep 1000", vms: 1},
	"script ok":     {phase: api.PhaseScriptOK, script: "exit 0", vms: 1},
	"script ended":  {phase: api.PhaseScriptEnded, script: "exit 1", monitored: true, vms: 1},
	"save: script":  {phase: api.PhaseRunning, task: api.TaskScript, exec: 8 * time.Second, vms: 1},
	"save: testing": {phase: api.PhaseRunning, task: api.TaskTesting, exec: 8 * time.Second, vms: 2},
	"save: pushing": {phase: api.PhaseRunning, task: api.TaskPushing, vms: 1},
}

// eachStage boots an agent, brings an instance to each phase, ends the agent, and calls do with the
// world.
func eachStage(t *testing.T, do func(t *testing.T, w *world)) {
	for name, tt := range stages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t,
					sim.Options{Boot: sim.DurationRange{Min: tt.boot}, Exec: sim.DurationRange{Min: tt.exec}})
				w.source.set(tt.pull, nil)
				w.shop.slow(time.Hour)
				g := newGate(-1)
				stop := w.boot(g)
				w.control.order(startOrder(func(o *api.StartOrder) {
					if tt.script != "" {
						o.Script = &api.Script{Text: []byte(tt.script), Monitoring: tt.monitored}
					}
				}))
				w.until(tt.phase)
				if tt.task != "" {
					w.control.order(fullSave(func(*api.SaveOrder) {})())
					w.untilStage(tt.task)
				}
				time.Sleep(2 * time.Second)
				if tt.task != "" {
					g.kill() // a test that ends in good order removes its VM
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				if len(w.vms()) != tt.vms || len(w.journalled()) != 1 {
					t.Fatalf("%d VMs and %d entries to begin with", len(w.vms()), len(w.journalled()))
				}
				do(t, w)
			})
		})
	}
}

// TestAnotherIdentity: instances that were accepted before the node joined again are removed: none
// of them boots, runs or is reported.
func TestAnotherIdentity(t *testing.T) {
	eachStage(t, func(t *testing.T, w *world) {
		told, starts, scripts := len(w.control.told(idA)), w.number(&w.starts), w.number(&w.scripts)
		w.nodeID = "joined anew"
		first := len(w.control.seen())
		stop := w.boot(newGate(-1))
		time.Sleep(2 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		w.checkClean()
		if w.number(&w.starts) != starts || w.number(&w.scripts) != scripts {
			t.Errorf("%d starts and %d scripts afterwards", w.number(&w.starts)-starts, w.number(&w.scripts)-scripts)
		}
		if n := len(w.control.told(idA)) - told; n != 0 {
			t.Errorf("%d statuses afterwards", n)
		}
		for _, p := range w.control.seen()[first:] {
			if len(p.Held) != 0 {
				t.Errorf("held %+v", p.Held)
			}
		}
	})
}

// TestScriptOfAnotherIdentity: a running VM whose script has not begun is the only entry on which
// an agent would start work immediately.
func TestScriptOfAnotherIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w *world
		// Kill at the step that follows the report of the running VM; which number it has differs from try to try.
		for n := 0; ; n++ {
			w = newWorld(t, sim.Options{})
			g := newGate(n % 50)
			stop := w.boot(g)
			w.control.order(startOrder(withScript(api.Script{Text: []byte("exit 0")})))
			time.Sleep(10 * time.Second)
			g.kill()
			_ = stop()
			if e := w.entry(); e.State.Phase == api.PhaseRunning && !e.State.ScriptBegun {
				break
			}
			if n > 1000 {
				t.Fatalf("never found running with its script due; %+v", w.entry().State)
			}
		}
		w.nodeID = "joined anew"
		stop := w.boot(newGate(-1))
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		w.checkClean()
		if w.number(&w.scripts) != 0 {
			t.Error("the script ran")
		}
	})
}

// TestVMOfAnotherIdentity: a VM whose identity is known only from its labels.
func TestVMOfAnotherIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sim.Options{})
		w.stray("of before")
		stop := w.boot(newGate(-1))
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		w.checkClean()
		if p := w.control.seen(); slices.ContainsFunc(p, func(p api.PollRequest) bool { return len(p.Held) > 0 }) {
			t.Error("it was reported")
		}
	})
}

// stray starts a VM that is missing in the journal.
func (w *world) stray(node string) {
	w.t.Helper()
	_, err := w.host.Start(w.t.Context(), hv.Spec{
		ID: "stray", UUID: idA, CPUs: 1, MemoryMB: 512, Disks: []hv.Disk{{Path: "/x", Format: "raw"}},
		Labels: map[string]string{labelInstance: "stray", labelNode: node},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestRemovedNode: an agent whose node was removed by an operator removes its VMs without a report
// and ends; one that is merely unknown keeps them.
func TestRemovedNode(t *testing.T) {
	eachStage(t, func(t *testing.T, w *world) {
		w.stray("node")
		told := len(w.control.told(idA))
		w.control.mu.Lock()
		w.control.removed = true
		w.control.mu.Unlock()
		stop := w.boot(newGate(-1))
		time.Sleep(time.Minute)
		err := stop()
		if farm.CodeOf(err) != farm.CodeRefused || !strings.Contains(err.Error(), "Join again with: buildnode join") {
			t.Errorf("Run: %v", err)
		}
		w.checkClean()
		if n := len(w.control.told(idA)) - told; n != 0 {
			t.Errorf("%d statuses afterwards", n)
		}
	})
}

// TestRemovedWhileAtWork: the same for an agent in the middle of its work.
func TestRemovedWhileAtWork(t *testing.T) {
	inWorld(t, boots(time.Second), func(w *world) {
		w.control.order(startOrder(withScript(api.Script{Text: []byte("sleep 1000")})))
		w.until(api.PhaseRunning)
		w.control.mu.Lock()
		w.control.removed = true
		w.control.mu.Unlock()
		w.fill(true)                             // even then
		if err := w.host.Kill(idA); err != nil { // so that a report receives the 401 first
			w.t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.checkClean()
		polls := len(w.control.seen())
		time.Sleep(time.Minute)
		if n := len(w.control.seen()); n != polls {
			w.t.Error("the agent did not end")
		}
	})
}

func TestUnknownNodeKeepsItsVMs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sim.Options{})
		stop := w.boot(newGate(-1))
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		w.control.mu.Lock()
		w.control.pollErr = farm.Errorf(farm.CodeUnauthenticated, "Authentication Required")
		w.control.mu.Unlock()
		time.Sleep(time.Minute)
		if err := stop(); farm.CodeOf(err) != farm.CodeUnauthenticated {
			t.Errorf("Run: %v", err)
		}
		if len(w.vms()) != 1 || len(w.journalled()) != 1 {
			t.Errorf("%d VMs, %d entries are left", len(w.vms()), len(w.journalled()))
		}
	})
}
