package agent

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// takeoverOrder returns the order of a start that takes over the VM of the standby with claim 1.
func takeoverOrder(script *api.Script) api.Order {
	o := startOrder(func(o *api.StartOrder) { o.Script, o.TakesOver = script, "1" })
	o.Claim = "2"
	return o
}

// standbyOrder returns the order of a standby, under claim 1.
func standbyOrder() api.Order { return startOrder(func(o *api.StartOrder) { o.Standby = true }) }

// untilClaim waits until a phase was reported under claim 2.
func (w *world) untilClaim(phases ...api.Phase) {
	w.t.Helper()
	for range 6000 {
		s := w.control.status(idA)
		for _, p := range phases {
			if s.Claim == "2" && s.Phase == p {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatalf("never reported one of %v under claim 2; last %+v", phases, w.control.status(idA))
}

// TestTakeover: the VM of a standby continues under another claim and runs the startup script of the start.
func TestTakeover(t *testing.T) {
	inWorld(t, boots(5*time.Second), func(w *world) {
		w.control.order(standbyOrder())
		w.until(api.PhaseRunning)
		before := w.vms()[0]
		w.control.order(takeoverOrder(&api.Script{Text: []byte("echo hi"), Monitoring: true}))
		w.untilClaim(api.PhaseScriptOK)
		s := w.control.status(idA)
		if s.Script == nil || s.Script.Stdout != "hi\n" || s.VM == nil || s.VM.UUID != idA {
			t.Errorf("status %+v", s)
		}
		if vms := w.vms(); len(vms) != 1 || !vms[0].StartedAt.Equal(before.StartedAt) {
			t.Errorf("VMs %+v, want the one of the standby", vms)
		}
		w.control.order(takeoverOrder(&api.Script{Text: []byte("echo hi"), Monitoring: true})) // repeated
		w.control.order(terminate("2"))
		w.until(api.PhaseTerminated)
		time.Sleep(10 * time.Second)
		w.checkClean()
		if w.number(&w.scripts) != 1 || w.number(&w.starts) != 1 {
			t.Errorf("%d scripts, %d starts", w.number(&w.scripts), w.number(&w.starts))
		}
	})
}

// TestTakeoverUsesWaitingShell: the script runs in the shell that waits for it, whose start takes no time then, with
// all that the order says of it.
func TestTakeoverUsesWaitingShell(t *testing.T) {
	slow := sim.Options{Exec: sim.DurationRange{Min: 3 * time.Second}}
	inWorld(t, slow, func(w *world) {
		w.control.order(standbyOrder())
		w.until(api.PhaseRunning)
		time.Sleep(time.Minute)
		began := time.Now()
		w.control.order(takeoverOrder(&api.Script{Text: []byte("echo hi; exit 4"), Monitoring: true}))
		w.untilClaim(api.PhaseScriptEnded)
		if s := w.control.status(idA); s.Script == nil || s.Script.Stdout != "hi\n" || s.Script.Code != 4 {
			t.Errorf("status %+v", s)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the script ended after %s", took)
		}
	})
	inWorld(t, slow, func(w *world) { // a claim that comes before the shell waits
		w.control.order(standbyOrder())
		w.until(api.PhaseRunning)
		script := &api.Script{Text: []byte("echo a; sleep 600"), Monitoring: true, Timeout: 5}
		w.control.order(takeoverOrder(script))
		w.untilClaim(api.PhaseScriptEnded)
		if s := w.control.status(idA); s.Script == nil || !s.Script.TimedOut || s.Script.Stdout != "a\n" {
			t.Errorf("status %+v", s)
		}
	})
}

// TestWaitingShellEnds: no shell is left when a start without a script has claimed the VM, or the VM has ended, and
// none delays the removal of a standby.
func TestWaitingShellEnds(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(standbyOrder())
		w.until(api.PhaseRunning)
		time.Sleep(time.Minute)
		if n := w.number(&w.shells); n != 1 {
			t.Errorf("%d shells wait, want 1", n)
		}
		w.control.order(takeoverOrder(nil))
		w.untilClaim(api.PhaseRunning)
		time.Sleep(time.Second)
		if n := w.number(&w.shells); n != 0 {
			t.Errorf("%d shells wait after the claim", n)
		}
	})
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(standbyOrder())
		w.until(api.PhaseRunning)
		time.Sleep(time.Minute)
		began := time.Now()
		w.control.order(terminate("1"))
		w.until(api.PhaseTerminated)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the termination took %s", took)
		}
		time.Sleep(10 * time.Second)
		w.checkClean()
		if n := w.number(&w.shells); n != 0 {
			t.Errorf("%d shells wait after the end", n)
		}
	})
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		time.Sleep(time.Minute)
		if n := w.number(&w.shells); n != 0 {
			t.Errorf("%d shells wait in a VM that is no standby", n)
		}
	})
}

// TestShellIsReplaced: a shell that has waited for long ends, and another one waits.
func TestShellIsReplaced(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(standbyOrder())
		w.until(api.PhaseRunning)
		for range 3 {
			time.Sleep(shellLife + time.Minute)
			if n := w.number(&w.shells); n != 1 {
				t.Errorf("%d shells wait, want 1", n)
			}
		}
		w.control.order(takeoverOrder(&api.Script{Text: []byte("echo hi"), Monitoring: true}))
		w.untilClaim(api.PhaseScriptOK)
		if n := w.number(&w.scripts); n != 1 {
			t.Errorf("the script ran %d times", n)
		}
	})
}

// TestEndWhileShellStarts: neither the end of the agent nor a termination waits for a shell that is being started, and
// no script begins after a termination.
func TestEndWhileShellStarts(t *testing.T) {
	slow := sim.Options{Exec: sim.DurationRange{Min: 10 * time.Minute}}
	claim := func(w *world) {
		w.control.order(standbyOrder())
		w.until(api.PhaseRunning)
		w.control.order(takeoverOrder(&api.Script{Text: []byte("echo hi"), Monitoring: true}))
		time.Sleep(time.Second)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, slow)
		stop := w.boot(newGate(-1))
		claim(w)
		began := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > shellEndTimeout {
			t.Errorf("the end of the agent took %s", took)
		}
		last := w.boot(newGate(-1))
		w.untilClaim(api.PhaseScriptEnded) // it is unknown whether the script ran
		w.control.order(terminate("2"))
		w.until(api.PhaseTerminated)
		time.Sleep(time.Hour)
		if err := last(); err != nil {
			t.Error(err)
		}
	})
	inWorld(t, slow, func(w *world) {
		claim(w)
		began := time.Now()
		w.control.order(terminate("2"))
		w.until(api.PhaseTerminated)
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the termination took %s", took)
		}
		time.Sleep(time.Hour)
		w.checkClean()
		if n := w.number(&w.scripts); n != 0 {
			t.Errorf("%d scripts ran", n)
		}
	})
}

// TestTakeoverAfterShellEnded: when the shell has ended in the guest, the script runs in another one, once.
func TestTakeoverAfterShellEnded(t *testing.T) {
	for _, fault := range []string{"shell", "shell with input"} {
		t.Run(fault, func(t *testing.T) {
			inWorld(t, sim.Options{}, func(w *world) {
				w.breaks(fault, errors.New("no shell"))
				w.control.order(standbyOrder())
				w.until(api.PhaseRunning)
				time.Sleep(time.Minute)
				w.control.order(takeoverOrder(&api.Script{Text: []byte("echo hi"), Monitoring: true}))
				w.untilClaim(api.PhaseScriptOK)
				if s := w.control.status(idA); s.Script == nil || s.Script.Stdout != "hi\n" {
					t.Errorf("status %+v", s)
				}
				if n := w.number(&w.scripts); n != 1 {
					t.Errorf("the script ran %d times", n)
				}
			})
		})
	}
}

// TestTakeoverOfAnotherClaim: a start cannot take over a VM that runs under another claim than the order says.
func TestTakeoverOfAnotherClaim(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(standbyOrder())
		w.until(api.PhaseRunning)
		o := takeoverOrder(nil)
		o.Start.TakesOver = "0"
		w.control.order(o)
		time.Sleep(time.Minute)
		if got := w.agent.instance(idA).snapshot().Claim; got != "1" {
			t.Errorf("the VM runs under claim %s", got)
		}
	})
}

// TestTakeoverWithoutVM: a standby whose VM has ended, or which the node does not know, is started as usual.
func TestTakeoverWithoutVM(t *testing.T) {
	for name, lose := range map[string]func(w *world){
		"killed": func(w *world) {
			if err := w.host.Kill(idA); err != nil {
				w.t.Fatal(err)
			}
			w.until(api.PhaseStopped)
		},
		"killed a moment before": func(w *world) {
			if err := w.host.Kill(idA); err != nil {
				w.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, sim.Options{}, func(w *world) {
				w.control.order(standbyOrder())
				w.until(api.PhaseRunning)
				lose(w)
				w.control.order(takeoverOrder(nil))
				w.untilClaim(api.PhaseRunning, api.PhaseStopped)
				w.control.order(terminate("2"))
				w.until(api.PhaseTerminated)
				time.Sleep(10 * time.Second)
				w.checkClean()
			})
		})
	}
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(takeoverOrder(nil))
		w.untilClaim(api.PhaseRunning)
	})
}

// TestTakeoverDuringBoot: a standby that still boots when it is claimed continues its boot under the new claim.
func TestTakeoverDuringBoot(t *testing.T) {
	inWorld(t, boots(20*time.Second), func(w *world) {
		w.control.order(standbyOrder())
		w.until(api.PhaseStarting)
		time.Sleep(10 * time.Second)
		before := w.vms()[0]
		w.control.order(takeoverOrder(&api.Script{Text: []byte("exit 0"), Monitoring: true}))
		w.untilClaim(api.PhaseScriptOK)
		if vms := w.vms(); len(vms) != 1 || !vms[0].StartedAt.Equal(before.StartedAt) {
			t.Errorf("VMs %+v, want the one that booted since %s", vms, before.StartedAt)
		}
		w.control.order(terminate("2"))
		w.until(api.PhaseTerminated)
		time.Sleep(10 * time.Second)
		w.checkClean()
		if w.number(&w.deletes) != 1 {
			t.Errorf("%d VMs were removed", w.number(&w.deletes))
		}
	})
}

// TestTakeoverDuringBootThatEnds: when the boot that was taken over fails, the VM is started once more; a termination
// ends the boot.
func TestTakeoverDuringBootThatEnds(t *testing.T) {
	inWorld(t, boots(20*time.Second), func(w *world) {
		w.control.order(standbyOrder())
		w.until(api.PhaseStarting)
		w.control.order(takeoverOrder(nil))
		w.untilClaim(api.PhaseStarting)
		if err := w.host.Kill(idA); err != nil {
			t.Fatal(err)
		}
		w.untilClaim(api.PhaseRunning)
		w.control.order(terminate("2"))
		w.until(api.PhaseTerminated)
		time.Sleep(10 * time.Second)
		w.checkClean()
	})
	inWorld(t, boots(time.Minute), func(w *world) {
		w.control.order(standbyOrder())
		w.until(api.PhaseStarting)
		w.control.order(takeoverOrder(nil))
		w.untilClaim(api.PhaseStarting)
		began := time.Now()
		w.control.order(terminate("2"))
		w.until(api.PhaseTerminated)
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the termination took %s", took)
		}
		w.until(api.PhaseTerminated)
		time.Sleep(10 * time.Second)
		w.checkClean()
	})
}

// TestTakeoverKilledAnywhere kills the agent at each step from the boot of a standby to the end of the instance that
// took it over: the script runs at most once, its result is reported under the new claim, and nothing is left.
func TestTakeoverKilledAnywhere(t *testing.T) {
	for _, claimed := range []api.Phase{api.PhaseStarting, api.PhaseRunning} {
		t.Run(string(claimed), func(t *testing.T) { takeoverKilledAnywhere(t, claimed) })
	}
}

func takeoverKilledAnywhere(t *testing.T, claimed api.Phase) {
	killEverywhere(t, 20, 200, func(t *testing.T, step int) bool {
		w := newWorld(t, boots(time.Second))
		first := newGate(step)
		stop := w.boot(first)
		second := make(chan func() error, 1)
		go func() {
			<-first.dead
			_ = stop()
			time.Sleep(time.Second)
			second <- w.boot(newGate(-1))
		}()
		w.control.order(standbyOrder())
		w.until(claimed, api.PhaseRunning) // a killed agent may find that the boot has ended
		w.control.order(takeoverOrder(&api.Script{Text: []byte("sleep 2"), Monitoring: true}))
		w.untilClaim(api.PhaseScriptOK, api.PhaseScriptEnded)
		w.control.order(terminate("2"))
		w.until(api.PhaseTerminated)
		time.Sleep(10 * time.Second)
		died := first.isDead()
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
		if s := w.control.status(idA); s.Script == nil {
			t.Error("the script's outcome was never reported")
		}
		return died
	})
}
