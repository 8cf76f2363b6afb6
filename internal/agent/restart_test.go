package agent

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

func TestRestart(t *testing.T) {
	inWorld(t, boots(5*time.Second), func(w *world) {
		w.control.order(startOrder(withScript(api.Script{Text: []byte("echo once")})))
		w.until(api.PhaseScriptOK)
		w.guest(idA, "echo kept >/srv/a")
		before := w.control.status(idA).VM
		time.Sleep(time.Second)
		o := restartOrder("r1")
		password, device := "secret", "1-2"
		o.Restart.VNCPassword, o.Restart.USB = &password, &device
		w.control.order(o)
		got := w.untilTask("r1")
		s := w.control.status(idA)
		if got.Stage != api.TaskDone || s.Phase != api.PhaseScriptOK || !s.VM.Started.After(before.Started) ||
			s.VM.Status != "running" {
			t.Errorf("got %+v, %s, VM %+v", got, s.Phase, s.VM)
		}
		// 5 s lie between
		if want := []api.TaskStage{api.TaskAccepted, api.TaskDone}; !slices.Equal(w.control.stages("r1"), want) {
			t.Errorf("stages %v", w.control.stages("r1"))
		}
		if w.guest(idA, "cat /srv/a") != "kept\n" || w.number(&w.scripts) != 1 || w.number(&w.restarts) != 1 {
			t.Errorf("%d scripts, %d restarts", w.number(&w.scripts), w.number(&w.restarts))
		}
		if slices.Contains(w.control.phasesOf(idA), api.PhaseStopped) {
			t.Errorf("phases %v", w.control.phasesOf(idA))
		}
		if raw, _ := json.Marshal(w.entry()); strings.Contains(string(raw), password) {
			t.Error("the journal keeps the password of a restart that is over")
		}
	})
}

func TestRestartFails(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		w.breaks("restart", errors.New("no memory"))
		w.control.order(restartOrder("r1"))
		got := w.untilTask("r1")
		s := w.control.status(idA)
		if got.Stage != api.TaskFailed || got.Message != "The VM could not be restarted: no memory" ||
			s.Phase != api.PhaseStopped || s.VM.Status != "stopped" {
			t.Errorf("got %+v, %s, VM %+v", got, s.Phase, s.VM)
		}
	})
}

// TestRefusedRestart leaves the VM as it was.
func TestRefusedRestart(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		run := w.vms()[0].StartedAt
		w.breaks("restart refused", hv.RefusedError("no such device"))
		w.control.order(restartOrder("r1"))
		got := w.untilTask("r1")
		if got.Stage != api.TaskFailed || !strings.HasPrefix(got.Message, "The VM was not restarted and runs on: ") ||
			!w.vms()[0].StartedAt.Equal(run) {
			t.Errorf("got %+v, VM %+v", got, w.vms()[0])
		}
		w.checkRuns()
	})
}

// TestDriverWithoutTasks: an order that the driver does not support is refused with a sentence.
func TestDriverWithoutTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sim.Options{})
		w.bare = true
		stop := w.boot(newGate(-1))
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		for order, want := range map[*api.Order]string{
			new(saveOrder("s1", nil)): "This node's hypervisor (sim) cannot save VMs",
			new(restartOrder("r1")):   "This node's hypervisor (sim) cannot restart VMs",
		} {
			w.control.order(*order)
			if got := w.untilTask(order.Task); got.Stage != api.TaskFailed || got.Message != want {
				t.Errorf("got %+v, want %q", got, want)
			}
			w.checkRuns()
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestEditOf(t *testing.T) {
	text := func(s string) *string { return &s }
	before := hv.Spec{
		VNC: &hv.VNC{Password: "old", Port: 5901}, PC: &hv.PC{USB: []hv.USBDevice{{Location: "1-1"}}},
	}
	for name, tt := range map[string]struct {
		order api.RestartOrder
		vnc   *hv.VNC
		usb   []hv.USBDevice
	}{
		"as before": {api.RestartOrder{}, before.VNC, before.PC.USB},
		"none":      {api.RestartOrder{VNCPassword: text(""), USB: text("")}, nil, nil},
		"others": {
			api.RestartOrder{VNCPassword: text("new"), USB: text("1-2")},
			&hv.VNC{Password: "new"},
			[]hv.USBDevice{{Location: "1-2"}},
		},
	} {
		s := before
		restartEdit(&tt.order)(&s)
		if !slices.Equal(s.PC.USB, tt.usb) || (s.VNC == nil) != (tt.vnc == nil) || s.VNC != nil && *s.VNC != *tt.vnc {
			t.Errorf("%s: %+v, %+v", name, s.VNC, s.PC.USB)
		}
	}
}
