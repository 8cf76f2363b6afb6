package agent

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// TestEndlessStartupScript: a task waits at most scriptPatience for a script that is not
// monitored. The script continues while the VM does, and a termination kills it.
func TestEndlessStartupScript(t *testing.T) {
	const text = "echo yes >/srv/on; sleep 100000"
	for name, tt := range map[string]struct {
		order api.Order
		after time.Duration // since the start
		most  time.Duration
	}{
		"save":    {saveOrder("s1", nil), time.Hour, 10 * time.Second},
		"restart": {restartOrder("s1"), time.Hour, 10 * time.Second},
		"at once": {saveOrder("s1", nil), time.Second, scriptPatience + 10*time.Second},
		"save that failed": {saveOrder("s1",
			func(o *api.SaveOrder) { o.Script, o.MustSucceed = []byte("exit 1"), true }), time.Hour, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, sim.Options{}, func(w *world) {
				w.control.order(startOrder(withScript(api.Script{Text: []byte(text)})))
				w.until(api.PhaseRunning)
				time.Sleep(tt.after)
				begun := time.Now()
				w.control.order(tt.order)
				got := w.untilTask("s1")
				if took := time.Since(begun); took > tt.most ||
					(got.Stage == api.TaskDone) != (name != "save that failed") {
					t.Errorf("got %+v after %s", got, took)
				}
				if s := w.control.status(idA); s.Phase != api.PhaseScriptOK || s.Script == nil ||
					!slices.Contains(s.Script.Errors, leftRunningMessage) {
					t.Errorf("%s with script %+v", s.Phase, s.Script)
				}
				begun = time.Now()
				w.control.order(terminate("1"))
				w.until(api.PhaseTerminated)
				if took := time.Since(begun); took > time.Minute {
					t.Errorf("the end took %s", took)
				}
			})
		})
	}
}

// TestDriverThatKeepsNoTime: a monitored script ends at its timeout, also when the driver ignores it.
func TestDriverThatKeepsNoTime(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.breaks("time-out", errors.New("forgotten"))
		script := api.Script{Text: []byte("sleep 100000"), Monitoring: true, Timeout: 300}
		w.control.order(startOrder(withScript(script)))
		w.until(api.PhaseRunning)
		begun := time.Now()
		w.until(api.PhaseScriptEnded)
		if took := time.Since(begun); took < 5*time.Minute || took > 5*time.Minute+2*execTimeoutMargin {
			t.Errorf("the script ended after %s", took)
		}
		if s := w.control.status(idA).Script; s == nil || !s.TimedOut {
			t.Errorf("script = %+v", s)
		}
		w.breaks("time-out", nil)
	})
}

// TestLeftScriptOutlivesTheAgent: an agent that ends does not kill a script that it left running.
func TestLeftScriptOutlivesTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sim.Options{})
		stop := w.boot(newGate(-1))
		w.control.order(startOrder(withScript(api.Script{Text: []byte("sleep 3600; echo yes >/srv/on")})))
		w.until(api.PhaseRunning)
		time.Sleep(10 * time.Minute)
		w.control.order(saveOrder("s1", func(o *api.SaveOrder) { o.Script, o.MustSucceed = []byte("exit 1"), true }))
		w.untilTask("s1")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if said := w.guest(idA, "cat /srv/on"); said != "yes\n" {
			t.Errorf("the script did not go on: %q", said)
		}
		stop = w.boot(newGate(-1))
		w.control.order(terminate("1"))
		w.until(api.PhaseTerminated)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}
