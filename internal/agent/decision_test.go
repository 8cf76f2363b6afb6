package agent

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
)

var phases = []api.Phase{
	api.PhaseAccepted, api.PhasePulling, api.PhaseStarting, api.PhaseRunning, api.PhaseScriptOK,
	api.PhaseScriptFailed, api.PhaseScriptEnded, api.PhaseFailed, api.PhaseStopped, api.PhaseVanished,
	api.PhaseTerminated,
}

func everySight(do func(observation)) {
	for _, phase := range phases {
		for _, vm := range []vmCondition{noVM, vmUp, vmDown} {
			for _, ending := range []bool{false, true} {
				for _, cached := range []bool{false, true} {
					for _, script := range []scriptCondition{noScript, scriptDue, scriptBegun} {
						for _, task := range []taskCondition{noTask, taskNeedsVM, taskIgnoresVM, taskSaveDone} {
							do(observation{phase, vm, ending, cached, script, task})
						}
					}
				}
			}
		}
	}
}

// want is the table once more, written out by hand: phase, then no VM / up / down. "pull|start"
// depends on the cache, "script|unknown" on the script, and after a ":" are the actions for a task:
// due, holds, served.
var want = map[api.Phase][3]string{
	api.PhaseAccepted: {"pull|start", "discard", "discard"},
	api.PhasePulling:  {"pull|start", "discard", "discard"},
	api.PhaseStarting: {"pull|start", "start", "discard"},
	api.PhaseRunning: {
		"note-gone:note-gone task rest", "script|unknown|rest:task task rest",
		"note-stopped:note-stopped task rest",
	},
	api.PhaseScriptOK: {
		"note-gone:note-gone task rest", "rest:task task rest", "note-stopped:note-stopped task rest",
	},
	api.PhaseScriptFailed: {"handle", "handle", "handle"},
	api.PhaseScriptEnded: {
		"rest:task-lost task-lost rest", "rest:task-lost task-lost rest",
		"rest:task-lost task-lost rest",
	},
	api.PhaseFailed:  {"rest:task-lost task-lost rest", "discard", "discard"},
	api.PhaseStopped: {"note-gone", "rest:task-lost task-lost rest", "rest:task-lost task-lost rest"},
	api.PhaseVanished: {
		"rest:task-lost task-lost rest", "rest:task-lost task-lost rest",
		"rest:task-lost task-lost rest",
	},
	api.PhaseTerminated: {"settle", "remove", "remove"},
}

// expected evaluates want.
func expected(s observation) string {
	expect, tasks, _ := strings.Cut(want[s.Phase][s.VM], ":")
	switch {
	case s.Ending && s.Phase == api.PhaseTerminated && s.VM == noVM:
		return "settle"
	case s.Ending:
		return "remove"
	case expect == "pull|start":
		return map[bool]string{false: "pull", true: "start"}[s.Startable]
	case expect == "script|unknown|rest":
		if s.Script != noScript {
			return []string{scriptDue: "script", scriptBegun: "unknown"}[s.Script]
		}
		expect = "rest"
	}
	if tasks == "" || s.Task == noTask {
		return expect
	}
	return strings.Fields(tasks)[s.Task-1]
}

func TestEveryPairIsDecided(t *testing.T) {
	n := 0
	everySight(func(s observation) {
		n++
		if got := decideAction(s); string(got) != expected(s) {
			t.Errorf("%+v: %s, want %s", s, got, expected(s))
		}
		if actionSteps[decideAction(s)] == nil {
			t.Errorf("%+v: action %s has no step", s, decideAction(s))
		}
	})
	if n != 11*3*2*2*3*4 {
		t.Errorf("%d sights looked at", n)
	}
}

// TestTableInvariants checks rules independent of the table.
func TestTableInvariants(t *testing.T) {
	everySight(func(s observation) {
		a := decideAction(s)
		fail := func(rule string) { t.Errorf("%+v -> %s: %s", s, a, rule) }
		if s.Ending && a != doRemove && a != doAwaitEndAck {
			fail("termination beats everything")
		}
		if a == doAwaitEndAck && s.VM != noVM {
			fail("nothing is forgotten while its VM is there")
		}
		if a == doScript && s.Script != scriptDue {
			fail("no script runs twice")
		}
		if a == doStart && s.VM == noVM && !s.Startable {
			fail("nothing starts without its version")
		}
		if a == doPull && s.Startable {
			fail("nothing present is pulled")
		}
		if (a == doDiscard || a == doRemove) && !s.Ending && s.VM == vmUp &&
			(s.Phase == api.PhaseRunning || s.Phase == api.PhaseScriptOK) {
			fail("no running VM is removed unasked")
		}
		if a == doTask && (s.Script != noScript && s.Phase == api.PhaseRunning && s.VM == vmUp) {
			fail("the startup script comes before a task")
		}
		if a == doTask && s.VM != vmUp && s.Task != taskIgnoresVM {
			fail("a task that needs its VM works on a running one only")
		}
	})
}

// TestPhaseOfANewerProgram: after a downgrade, a VM with an unknown phase is left alone until it is
// terminated.
func TestPhaseOfANewerProgram(t *testing.T) {
	for vm := noVM; vm <= vmDown; vm++ {
		if got := decideAction(observation{Phase: "of-tomorrow", VM: vm}); got != doWait {
			t.Errorf("%s with VM %d", got, vm)
		}
		if got := decideAction(observation{Phase: "of-tomorrow", VM: vm, Ending: true}); got != doRemove {
			t.Errorf("%s with VM %d that is to end", got, vm)
		}
	}
}
