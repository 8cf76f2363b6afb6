package agent

import (
	"errors"
	"fmt"
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

func boots(d time.Duration) sim.Options { return sim.Options{Boot: sim.DurationRange{Min: d}} }

func TestStartAndTerminate(t *testing.T) {
	inWorld(t, boots(2*time.Second), func(w *world) {
		w.source.set(10*time.Second, nil)
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		s := w.control.status(idA)
		if vm := s.VM; vm == nil || vm.UUID != idA || vm.Status != "running" || vm.HostIP != "192.0.2.7" ||
			vm.CPUs != 2 || vm.MemoryMB != 2048 || vm.IP == "" || len(vm.Ports) != 1 || vm.Ports[0].Name != "ssh" ||
			vm.Ports[0].HostPort == 0 || vm.Ports[0].Protocol != "tcp" || vm.Name != "mgmtManaged-x" {
			t.Errorf("VM is said to be %+v", s.VM)
		}
		want := []api.Phase{api.PhasePulling, api.PhaseStarting, api.PhaseRunning}
		if got := w.control.phasesOf(idA); !slices.Equal(got, want) {
			t.Errorf("phases %v, want %v", got, want)
		}
		progress := 0.0
		for _, s := range w.control.told(idA) {
			if s.Phase == api.PhasePulling && s.Progress < progress {
				t.Errorf("progress falls from %v to %v", progress, s.Progress)
			}
			progress = max(progress, s.Progress)
		}
		if progress < 0.9 {
			t.Errorf("progress reached %v only", progress)
		}
		w.control.order(terminate("1"))
		w.until(api.PhaseTerminated)
		time.Sleep(time.Second)
		w.checkClean()
	})
}

// TestTerminateInEveryPhase terminates an instance in each phase: the VM is removed once, and only
// the end is reported afterwards.
func TestTerminateInEveryPhase(t *testing.T) {
	const long = 100 * time.Second
	for name, tt := range map[string]struct {
		script string
		pull   time.Duration
		boot   time.Duration
		in     api.Phase
		vms    int // that existed
	}{
		"pulling":  {pull: long, in: api.PhasePulling},
		"starting": {boot: 50 * time.Second, in: api.PhaseStarting, vms: 1},
		"script":   {script: "sleep 80", in: api.PhaseRunning, vms: 1},
		"running":  {in: api.PhaseRunning, vms: 1},
		"scripted": {script: "exit 0", in: api.PhaseScriptOK, vms: 1},
		"failed":   {script: "exit 3", in: api.PhaseScriptEnded, vms: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, boots(tt.boot), func(w *world) {
				w.source.set(tt.pull, nil)
				edit := func(*api.StartOrder) {}
				if tt.script != "" {
					edit = withScript(api.Script{Text: []byte(tt.script), Monitoring: true, Timeout: 90})
				}
				w.control.order(startOrder(edit))
				w.until(tt.in)
				time.Sleep(2 * time.Second)
				begun := time.Now()
				for range 3 { // several terminations count as one
					w.control.order(terminate("1"))
				}
				w.until(api.PhaseTerminated)
				if took := time.Since(begun); took > 2*time.Second {
					t.Errorf("the end took %s: the step was not cancelled", took)
				}
				time.Sleep(10 * time.Second)
				w.checkClean()
				if w.number(&w.deletes) != tt.vms || w.number(&w.starts) > 1 {
					t.Errorf("%d starts, %d removals, want %d removals", w.number(&w.starts), w.number(&w.deletes),
						tt.vms)
				}
			})
		})
	}
}

// TestEndedIsCachedNoMore: an ended instance is not part of the inventory, whether the VMs were
// listed just before or are being listed: without an instance, its VM would be orphaned and use the
// capacity for another one.
func TestEndedIsCachedNoMore(t *testing.T) {
	for name, listing := range map[string]time.Duration{"listed before": 0, "being listed": 500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, sim.Options{}, func(w *world) {
				w.control.order(startOrder(nil))
				w.until(api.PhaseRunning)
				w.slow(listing)
				time.Sleep(1100 * time.Millisecond) // a list was started a moment ago
				w.control.order(terminate("1"))
				w.until(api.PhaseTerminated)
				for range 100 {
					synctest.Wait()
					if held := w.agent.inventory(); len(held) > 0 && len(w.journalled()) == 0 {
						t.Errorf("held %+v", held)
						break
					}
					time.Sleep(20 * time.Millisecond)
				}
			})
		})
	}
}

func TestTerminateOfTheUnknown(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(terminate(""))
		w.until(api.PhaseTerminated)
		time.Sleep(time.Second)
		w.checkClean()
	})
}

// TestOrphan: a VM that is missing in the journal is listed in the inventory with its labels, and is
// removed when that is ordered.
func TestOrphan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sim.Options{})
		_, err := w.host.Start(t.Context(), hv.Spec{
			ID: idA, UUID: idA, CPUs: 1, MemoryMB: 512, Disks: []hv.Disk{{Path: "/x", Format: "raw"}},
			Labels: map[string]string{labelInstance: idA, labelClaim: "old", labelContent: content},
		})
		if err != nil {
			t.Fatal(err)
		}
		stop := w.boot(newGate(-1))
		time.Sleep(time.Second)
		want := []api.InventoryItem{{InstanceID: idA, Claim: "old", VMID: idA}}
		if p := w.control.seen()[0]; !p.HasHeld || !slices.Equal(p.Held, want) {
			t.Errorf("held %+v, want %+v", p.Held, want)
		}
		w.control.order(terminate(""))
		w.until(api.PhaseTerminated)
		time.Sleep(10 * time.Second)
		if p := w.control.lastPoll(); p.HeldHash == w.control.seen()[0].HeldHash {
			t.Error("the held list did not change")
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		w.checkClean()
	})
}

func TestScripts(t *testing.T) {
	for name, tt := range map[string]struct {
		script api.Script
		phase  api.Phase
		text   string // message
		code   int
		vm     string
	}{
		"ok":            {api.Script{Text: []byte("echo hi"), Monitoring: true}, api.PhaseScriptOK, "", 0, "running"},
		"not monitored": {api.Script{Text: []byte("exit 4")}, api.PhaseScriptOK, "", 4, "running"},
		"stop": {
			api.Script{Text: []byte("exit 4"), Monitoring: true},
			api.PhaseScriptEnded,
			"startup script exit code 4", 4, "stopped",
		},
		"keep": {
			api.Script{Text: []byte("exit 4"), Monitoring: true, OnFailure: 1},
			api.PhaseScriptEnded,
			"startup script exit code 4", 4, "running",
		},
		"delete": {
			api.Script{Text: []byte("exit 4"), Monitoring: true, OnFailure: 2},
			api.PhaseScriptEnded,
			"startup script exit code 4", 4, "deleted",
		},
		"time-out": {
			api.Script{Text: []byte("sleep 100"), Monitoring: true, Timeout: 5},
			api.PhaseScriptEnded,
			"startup script exit code -1", -1, "stopped",
		},
		"default": {
			api.Script{Text: []byte("sleep 91"), Monitoring: true},
			api.PhaseScriptEnded,
			"startup script exit code -1", -1, "stopped",
		},
		"long": {api.Script{Text: []byte("sleep 300")}, api.PhaseScriptOK, "", 0, "running"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, sim.Options{}, func(w *world) {
				w.control.order(startOrder(withScript(tt.script)))
				w.until(tt.phase)
				time.Sleep(time.Second)
				s := w.control.status(idA)
				if s.Message != tt.text || s.Script == nil || s.Script.Code != tt.code || s.VM.Status != tt.vm ||
					s.Script.TimedOut != (tt.code == -1) {
					t.Errorf("got %q, script %+v, VM %+v", s.Message, s.Script, s.VM)
				}
				phases := w.control.phasesOf(idA)
				failed := slices.Contains(phases, api.PhaseScriptFailed) ||
					slices.Contains(phases, api.PhaseScriptEnded)
				if failed != (tt.phase == api.PhaseScriptEnded) {
					t.Errorf("phases %v", phases)
				}
			})
		})
	}
}

func TestScriptOutputIsCapped(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(withScript(api.Script{Text: []byte("seq 100000"), Monitoring: true})))
		w.until(api.PhaseScriptOK)
		out := w.control.status(idA).Script.Stdout
		if len(out) != maxOutput || !strings.HasPrefix(out, farm.OutputTruncatedLine) ||
			!strings.HasSuffix(out, "\n100000\n") {
			t.Errorf("%d bytes of output ending in %q", len(out), out[max(0, len(out)-8):])
		}
	})
}

// TestScriptOutputIsLive: what a monitored script has printed is reported while it runs, once for each change, and not
// after its end.
func TestScriptOutputIsLive(t *testing.T) {
	for name, monitored := range map[string]bool{"monitored": true, "not monitored": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, sim.Options{}, func(w *world) {
				text := "echo one; sleep 20; echo two; echo problem >&2; sleep 0.1; sleep 0.1; sleep 20; echo three"
				w.control.order(startOrder(withScript(api.Script{Text: []byte(text), Monitoring: monitored})))
				w.until(api.PhaseScriptOK)
				var got []api.ScriptOutput
				for _, s := range w.control.told(idA) {
					if o := s.ScriptOutput; o != nil && (len(got) == 0 || got[len(got)-1] != *o) {
						got = append(got, *o)
					}
				}
				want := []api.ScriptOutput{{Stdout: "one\n"}, {Stdout: "one\ntwo\n", Stderr: "problem\n"}}
				if !monitored {
					want = nil
				}
				if !slices.Equal(got, want) {
					t.Errorf("reported %q, want %q", got, want)
				}
				if s := w.control.status(idA); s.ScriptOutput != nil || s.Script.Stdout != "one\ntwo\nthree\n" {
					t.Errorf("after the end: %+v, %+v", s.ScriptOutput, s.Script)
				}
			})
		})
	}
}

func TestFailedStarts(t *testing.T) {
	t.Run("boot", func(t *testing.T) {
		inWorld(t, sim.Options{BootFailureRate: 1}, func(w *world) {
			w.control.order(startOrder(nil))
			w.until(api.PhaseFailed)
			if s := w.control.status(idA); !strings.Contains(s.Message, "the simulated boot failed") || s.VM != nil {
				t.Errorf("got %+v", s)
			}
			w.wantFailure("guest_stopped", "boot")
			if len(w.vms()) != 0 {
				t.Error("the VM of a failed start is left")
			}
			w.control.order(terminate("1"))
			w.until(api.PhaseTerminated)
		})
	})
	t.Run("time-out", func(t *testing.T) {
		inWorld(t, boots(time.Hour), func(w *world) {
			begun := time.Now()
			w.control.order(startOrder(func(o *api.StartOrder) { o.StartTimeout = 20 }))
			w.until(api.PhaseFailed)
			w.wantFailure("guest_timeout", "boot")
			if took := time.Since(begun); took > 25*time.Second {
				t.Errorf("took %s", took)
			}
		})
	})
	t.Run("pull", func(t *testing.T) {
		inWorld(t, sim.Options{}, func(w *world) {
			w.source.set(0, farm.Refused("No such tag v1"))
			w.control.order(startOrder(nil))
			w.until(api.PhaseFailed)
			w.wantFailure("template", "pull")
			if s := w.control.status(idA); !strings.Contains(s.Message, "No such tag v1") {
				t.Errorf("got %q", s.Message)
			}
		})
	})
}

func TestVMThatEndsByItself(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		if err := w.host.Kill(idA); err != nil {
			t.Fatal(err)
		}
		w.until(api.PhaseStopped)
		if s := w.control.status(idA); !strings.Contains(s.Message, "killed") || s.VM.Status != "stopped" {
			t.Errorf("got %q, %+v", s.Message, s.VM)
		}
		w.wantFailure("hypervisor", "run")
		if err := w.host.Delete(t.Context(), idA); err != nil {
			t.Fatal(err)
		}
		w.until(api.PhaseVanished)
		w.wantFailure("vm_lost", "run")
		if s := w.control.status(idA); s.VM.Status != "deleted" {
			t.Errorf("got %+v", s.VM)
		}
	})
}

func TestVMThatCrashesUnderItsScript(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(withScript(api.Script{Text: []byte("sleep 5; crash"), Monitoring: true})))
		w.until(api.PhaseStopped)
	})
}

func TestCacheServesWithTheRegistryAway(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		w.control.order(terminate("1"))
		w.until(api.PhaseTerminated)
		w.source.set(0, errors.New("away"))
		again := startOrder(nil)
		again.Claim = "2"
		w.control.order(again)
		w.until(api.PhaseRunning)
		if w.source.count() != 1 {
			t.Errorf("%d pulls", w.source.count())
		}
		if last := w.control.lastPoll(); last.InfoHash == w.control.seen()[0].InfoHash {
			t.Error("the node's description does not show the cached version")
		}
	})
}

// TestNewClaim: an order to start an instance under another claim does not affect its VM, and is
// accepted once the VM's termination was ordered.
func TestNewClaim(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		first := w.vms()[0].StartedAt
		again := startOrder(nil)
		again.Claim = "2"
		w.control.order(again)
		time.Sleep(time.Minute)
		if vms := w.vms(); len(vms) != 1 || !vms[0].StartedAt.Equal(first) || vms[0].Labels[labelClaim] != "1" {
			t.Fatalf("VMs %+v", vms)
		}
		w.control.order(terminate("1"))
		w.until(api.PhaseTerminated)
		w.control.order(again)
		for w.control.status(idA).Claim != "2" || w.control.phase(idA) != api.PhaseRunning {
			time.Sleep(100 * time.Millisecond)
		}
		if vms := w.vms(); len(vms) != 1 || !vms[0].StartedAt.After(first) || vms[0].Labels[labelClaim] != "2" {
			t.Errorf("VMs %+v", vms)
		}
	})
}

// TestAnotherClaimRunsOn: the VM of an instance runs on although the controller has another claim
// for the instance, or none.
func TestAnotherClaimRunsOn(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		w.control.mu.Lock()
		w.control.claims[idA] = "of another node"
		w.control.needFull = true // so that it is reported again
		w.control.mu.Unlock()
		time.Sleep(time.Minute)
		if vms := w.vms(); len(vms) != 1 {
			t.Errorf("VMs %+v", vms)
		}
	})
}

func TestRepeatedOrderIsANoOp(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		for range 3 {
			w.control.order(startOrder(nil))
			w.until(api.PhaseRunning)
			time.Sleep(6 * time.Second)
		}
		if w.number(&w.starts) != 1 {
			t.Errorf("%d starts", w.number(&w.starts))
		}
		w.control.order(terminate("1"))
		w.until(api.PhaseTerminated)
		time.Sleep(time.Second)
		w.control.order(startOrder(nil)) // a late copy of a finished order
		time.Sleep(20 * time.Second)
		if w.number(&w.starts) != 1 {
			t.Error("a late copy of a start order brought the VM back")
		}
		w.checkClean()
	})
}

func TestStatusIsRepeatedUntilAnswered(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		away := time.Now().Add(30 * time.Second)
		w.control.answerReports(func() error {
			if time.Now().Before(away) {
				return farm.Unavailable(nil, "away")
			}
			return nil
		})
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		if late := time.Since(away); late < 0 || late > 6*time.Second {
			t.Errorf("answered %s after the controller came back", late)
		}
	})
}

func TestHeartbeatsContinueDuringAPull(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.source.set(time.Minute, nil)
		w.control.order(startOrder(nil))
		w.until(api.PhasePulling)
		before := len(w.control.seen())
		time.Sleep(30 * time.Second)
		if n := len(w.control.seen()) - before; n < 5 || n > 9 {
			t.Errorf("%d polls in 30 s", n)
		}
	})
}

func TestPollsSendOnlyWhatChanged(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		time.Sleep(30 * time.Second)
		polls := w.control.seen()
		if p := polls[0]; p.Info == nil || !p.HasHeld || p.Usage == nil || p.BootID == "" || p.Info.Arch != "amd64" ||
			p.Info.Driver != "sim" {
			t.Errorf("the first poll is not whole: %+v", p)
		}
		for _, p := range polls[1:] {
			if p.Info != nil || p.HasHeld || p.Usage != nil || p.BootID != polls[0].BootID {
				t.Errorf("a poll repeats what did not change: %+v", p)
			}
		}
		w.control.mu.Lock()
		w.control.needFull = true
		n := len(polls)
		w.control.mu.Unlock()
		time.Sleep(12 * time.Second)
		if p := w.control.seen()[n+1]; p.Info == nil || !p.HasHeld || p.Usage == nil {
			t.Errorf("asked for everything, sent %+v", p)
		}
	})
}

// TestListOfManyOrders: a node that receives one order after the other does not send its whole
// inventory with each of its polls, and soon sends it once.
func TestListOfManyOrders(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		time.Sleep(6 * time.Second)
		const orders = 40
		before := len(w.control.seen())
		for i := range orders {
			o := startOrder(nil)
			o.InstanceID = fmt.Sprintf("01890000-0000-7000-8000-%012d", i+1)
			w.control.order(o)
			time.Sleep(50 * time.Millisecond)
		}
		lists := 0
		for _, p := range w.control.seen()[before:] {
			if p.HasHeld {
				lists++
			}
		}
		if n := len(w.control.seen()) - before; n < orders || lists > 3 {
			t.Errorf("%d polls in 2 s had %d lists", n, lists)
		}
		time.Sleep(12 * time.Second)
		var last api.PollRequest
		for _, p := range w.control.seen() {
			if p.HasHeld {
				last = p
			}
		}
		if len(last.Held) != orders || w.control.lastPoll().HeldHash != last.HeldHash {
			t.Errorf("the last list has %d instances of %d", len(last.Held), orders)
		}
	})
}

func TestLinkErrorsThatEndTheAgent(t *testing.T) {
	for name, tt := range map[string]struct {
		err   error
		after time.Duration
	}{
		"removed":       {farm.Errorf(farm.CodeUnauthenticated, "Authentication Required"), 0},
		"another agent": {farm.Errorf(farm.CodeConflict, "Another agent already speaks"), 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, sim.Options{})
				w.control.pollErr = tt.err
				stop := w.boot(newGate(-1))
				time.Sleep(tt.after - time.Second)
				synctest.Wait()
				time.Sleep(10 * time.Second)
				if err := stop(); farm.CodeOf(err) != farm.CodeOf(tt.err) {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}

func TestBriefConflictIsWaitedOut(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.mu.Lock()
		w.control.pollErr = farm.Errorf(farm.CodeConflict, "the agent before")
		w.control.mu.Unlock()
		time.Sleep(12 * time.Second)
		w.control.mu.Lock()
		w.control.pollErr = nil
		w.control.mu.Unlock()
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
	})
}

// TestStartedWaitsForAMonitoredScript: the running VM is not reported before a monitored startup
// script has ended, when it ends soon, so that no client sees Started before Error.
func TestStartedWaitsForAMonitoredScript(t *testing.T) {
	monitored := func(text string) api.Script { return api.Script{Text: []byte(text), Monitoring: true, Timeout: 60} }
	atBoot := monitored("sleep 1; exit 4")
	atBoot.AtBoot = true
	for name, tt := range map[string]struct {
		script  api.Script
		end     api.Phase
		running bool // whether the VM is reported
		latest  time.Duration
	}{
		"fails at once": {monitored("exit 4"), api.PhaseScriptEnded, false, 0},
		"fails soon":    {monitored("sleep 1; exit 4"), api.PhaseScriptEnded, false, 0},
		"succeeds soon": {monitored("sleep 1"), api.PhaseScriptOK, false, 0},
		"takes long": {monitored("sleep 30; exit 4"), api.PhaseScriptEnded, true, startedHoldTime +
			200*time.Millisecond},
		"is not monitored":      {api.Script{Text: []byte("sleep 1")}, api.PhaseScriptOK, true, 200 * time.Millisecond},
		"does not wait for net": {atBoot, api.PhaseScriptEnded, true, 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, sim.Options{}, func(w *world) {
				w.control.order(startOrder(withScript(tt.script)))
				if tt.running { // for at least a second: the check does not miss it
					for len(w.vms()) == 0 || w.vms()[0].Status != hv.Running {
						time.Sleep(10 * time.Millisecond)
					}
					time.Sleep(tt.latest)
					if phases := w.control.phasesOf(idA); !slices.Contains(phases, api.PhaseRunning) {
						t.Errorf("not reported as running %s after the start: %v", tt.latest, phases)
					}
				}
				w.until(tt.end)
				if phases := w.control.phasesOf(idA); slices.Contains(phases, api.PhaseRunning) != tt.running {
					t.Errorf("phases %v, running reported: want %t", phases, tt.running)
				}
			})
		})
	}
}
