package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// life is the whole life of an instance, from the order to its end.
type life struct {
	name   string
	script *api.Script

	early time.Duration // terminate this long after the order, whatever the phase
	ok    []api.Phase   // phases in which the start may end
}

var lives = []life{
	{name: "plain", ok: []api.Phase{api.PhaseRunning}},
	{
		name: "script", script: &api.Script{Text: []byte("sleep 2"), Monitoring: true},
		ok: []api.Phase{api.PhaseScriptOK, api.PhaseScriptEnded},
	},
	{
		name: "failing script", script: &api.Script{Text: []byte("exit 1"), Monitoring: true},
		ok: []api.Phase{api.PhaseScriptEnded},
	},
	{
		name: "deleting script", script: &api.Script{Text: []byte("exit 1"), Monitoring: true, OnFailure: 2},
		ok: []api.Phase{api.PhaseScriptEnded},
	},
	{
		name: "unmonitored script", script: &api.Script{Text: []byte("sleep 2")},
		ok: []api.Phase{api.PhaseScriptOK},
	},
	{name: "ended in its pull", early: 500 * time.Millisecond},
	{name: "ended in its start", early: 1500 * time.Millisecond},
	{
		name: "ended in its script", early: 3 * time.Second,
		script: &api.Script{Text: []byte("sleep 50"), Monitoring: true},
	},
}

// TestKilledAnywhere kills the agent at each step that it takes in each life, starts another one
// over the same disk and hypervisor, and checks the end: nothing that was acknowledged is lost, no
// script ran twice, and neither a VM nor a journal entry is left.
func TestKilledAnywhere(t *testing.T) {
	for _, l := range lives {
		t.Run(l.name, func(t *testing.T) { killEverywhere(t, 20, 200, l.live) })
	}
}

// live runs one life whose first agent is killed at a step; it reports whether it was.
func (l life) live(t *testing.T, step int) (died bool) {
	w := newWorld(t, sim.Options{Boot: sim.DurationRange{Min: time.Second}})
	w.source.set(time.Second, nil)
	first := newGate(step)
	stop := w.boot(first)
	second := make(chan func() error, 1)
	go func() {
		<-first.dead
		_ = stop()
		time.Sleep(time.Second)
		second <- w.boot(newGate(-1))
	}()
	w.control.order(startOrder(func(o *api.StartOrder) { o.Script = l.script }))
	if l.early > 0 {
		time.Sleep(l.early)
	} else {
		w.untilOneOf(l.ok)
	}
	w.control.order(terminate("1"))
	w.until(api.PhaseTerminated)
	time.Sleep(10 * time.Second) // a second removal or a late status would arrive now
	died = first.isDead()
	first.kill()
	last := <-second
	time.Sleep(10 * time.Second)
	if err := last(); err != nil {
		t.Errorf("Run: %v", err)
	}
	w.checkClean()
	if w.number(&w.scripts) > 1 {
		t.Errorf("the script ran %d times", w.number(&w.scripts))
	}
	if l.early == 0 && l.script != nil && l.script.Monitoring && w.control.status(idA).Script == nil {
		t.Error("the script's outcome was never told")
	}
	if t.Failed() {
		t.Logf("steps of the killed agent: %v", first.passed())
	}
	return died
}

func (w *world) untilOneOf(phases []api.Phase) {
	w.t.Helper()
	for range 3000 {
		for _, p := range phases {
			if w.control.phase(idA) == p {
				return
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatalf("reported none of %v; last %+v", phases, w.control.status(idA))
}

// TestOutcomeUnknown kills an agent while its script runs: the script continues in the guest, and
// the next agent does not run it again and reports an unknown result.
func TestOutcomeUnknown(t *testing.T) {
	for name, tt := range map[string]struct {
		monitoring bool
		phase      api.Phase
		message    string
	}{
		"monitored":   {true, api.PhaseScriptEnded, "startup script outcome unknown after an agent restart"},
		"unmonitored": {false, api.PhaseScriptOK, ""},
	} {
		for _, how := range []string{"killed", "stopped"} {
			t.Run(name+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, sim.Options{})
					g := newGate(-1)
					stop := w.boot(g)
					w.control.order(
						startOrder(withScript(api.Script{Text: []byte("sleep 60"), Monitoring: tt.monitoring})))
					w.until(api.PhaseRunning)
					time.Sleep(5 * time.Second)
					if how == "killed" {
						g.kill()
					}
					if err := stop(); err != nil {
						t.Errorf("Run: %v", err)
					}
					if vms := w.vms(); len(vms) != 1 || vms[0].Status != "running" {
						t.Errorf("the VM did not outlive its agent: %+v", vms)
					}
					again := w.boot(newGate(-1))
					w.until(tt.phase)
					s := w.control.status(idA)
					if s.Message != tt.message || s.Script == nil || s.Script.Code != -1 || len(s.Script.Errors) != 1 {
						t.Errorf("got %q, %+v", s.Message, s.Script)
					}
					if err := again(); err != nil {
						t.Errorf("Run: %v", err)
					}
					time.Sleep(time.Minute) // the script ends in its guest
					if w.number(&w.scripts) != 1 {
						t.Errorf("the script ran %d times", w.number(&w.scripts))
					}
				})
			})
		}
	}
}

// TestVMKilledWithoutAgent: the hypervisor ends while no agent runs.
func TestVMKilledWithoutAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sim.Options{})
		stop := w.boot(newGate(-1))
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := w.host.Kill(idA); err != nil {
			t.Fatal(err)
		}
		again := w.boot(newGate(-1))
		w.until(api.PhaseStopped)
		w.control.order(terminate("1"))
		w.until(api.PhaseTerminated)
		time.Sleep(time.Second)
		if err := again(); err != nil {
			t.Error(err)
		}
		w.checkClean()
	})
}

// TestAddressOutlivesARestart: a driver that has only just found a VM again does not know its
// address, but the address that was reported must remain.
func TestAddressOutlivesARestart(t *testing.T) {
	a := &Agent{}
	run := time.Unix(1_700_000_000, 0)
	said := &api.NodeVM{UUID: "u", Status: "running", IP: "10.0.2.15", Started: journalTime(run)}
	vm := hv.VM{ID: idA, UUID: "u", Status: hv.Running, StartedAt: run}
	if got := a.currentVMFacts(vm, said); got.IP != said.IP {
		t.Errorf("the same run: address %q", got.IP)
	}
	vm.StartedAt = run.Add(time.Second)
	if got := a.currentVMFacts(vm, said); got.IP != "" {
		t.Errorf("another run: address %q", got.IP)
	}
	if got := a.currentVMFacts(hv.VM{}, said); got.Status != "deleted" || got.IP != "" || got.Stopped.IsZero() ||
		!sameVM(got, a.currentVMFacts(hv.VM{}, got)) {
		t.Errorf("gone: %+v", got)
	}
}
