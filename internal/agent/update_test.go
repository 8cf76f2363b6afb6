package agent

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// newer is an update that is ready as soon as it is requested.
type newer struct {
	ready chan struct{}

	mu     sync.Mutex
	status *api.UpdateStatus
	waited []string
}

var _ Updater = (*newer)(nil)

func newNewer() *newer { return &newer{ready: make(chan struct{}, 1)} }

func (n *newer) HandleUpdate(u *api.AgentUpdate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if u == nil || n.status != nil {
		return
	}
	n.status = &api.UpdateStatus{ID: u.ID, Stage: api.UpdateWaiting}
	n.ready <- struct{}{}
}

func (n *newer) Status() *api.UpdateStatus {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status
}

func (n *newer) Ready() <-chan struct{} { return n.ready }

func (n *newer) SetWaiting(work string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waited = append(n.waited, work)
}

func (n *newer) Abandon(why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status = &api.UpdateStatus{ID: n.status.ID, Stage: api.UpdateFailed, Message: why}
}

func (n *newer) said() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.waited, "|")
}

// update asks the node's agent to update to another version.
func (w *world) update() {
	w.control.mu.Lock()
	defer w.control.mu.Unlock()
	w.control.update = &api.AgentUpdate{ID: "u"}
	w.control.ringLocked()
}

// inUpdates runs a test with an agent that can update itself; ended receives its end.
func inUpdates(t *testing.T, o sim.Options, do func(w *world, n *newer, ended <-chan error)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, n := newWorld(t, o), newNewer()
		w.updater = n
		stop := sync.OnceValue(w.boot(newGate(-1)))
		over, ended := w.over, make(chan error, 1)
		go func() {
			<-over
			ended <- stop()
		}()
		do(w, n, ended)
		_ = stop()
	})
}

// TestUpdateWaitsForWhatItWouldBreak: the agent ends once the monitored script has ended, and no
// sooner; its VM runs on under the next agent.
func TestUpdateWaitsForWhatItWouldBreak(t *testing.T) {
	inUpdates(t, sim.Options{Exec: sim.DurationRange{Min: 10 * time.Minute, Max: 10 * time.Minute}},
		func(w *world, n *newer, ended <-chan error) {
			w.control.order(
				startOrder(withScript(api.Script{Text: []byte("true"), Monitoring: true, OnFailure: 1, Timeout: 3600})))
			w.until(api.PhaseRunning)
			time.Sleep(time.Minute)
			w.update()
			time.Sleep(2 * time.Minute)
			if n.said() != "the startup script of instance "+idA {
				t.Errorf("waits for %q", n.said())
			}
			select {
			case err := <-ended:
				t.Fatalf("the agent ended amid a script: %v", err)
			default:
			}
			w.until(api.PhaseScriptOK)
			if err := <-ended; !errors.Is(err, ErrUpdate) {
				t.Fatalf("the agent ended with %v", err)
			}
			vms := w.vms()
			if len(vms) != 1 || vms[0].Status != hv.Running {
				t.Fatalf("%+v", vms)
			}
			w.updater = nil
			stop := w.boot(newGate(-1))
			time.Sleep(10 * time.Second)
			if s := w.control.status(idA); s.Phase != api.PhaseScriptOK || w.number(&w.starts) != 1 ||
				w.number(&w.scripts) != 1 {
				t.Errorf("%+v, %d starts, %d scripts", s, w.starts, w.scripts)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
}

// TestUpdateIsGivenUp: the update is abandoned when such work does not end, and the agent continues.
func TestUpdateIsGivenUp(t *testing.T) {
	inUpdates(t, sim.Options{Exec: sim.DurationRange{Min: 3 * time.Hour, Max: 3 * time.Hour}},
		func(w *world, n *newer, ended <-chan error) {
			w.control.order(
				startOrder(
					withScript(api.Script{Text: []byte("true"), Monitoring: true, OnFailure: 1, Timeout: 36000})))
			w.until(api.PhaseRunning)
			time.Sleep(time.Minute)
			w.update()
			time.Sleep(updatePatience + time.Minute)
			if s := n.Status(); s.Stage != api.UpdateFailed ||
				!strings.Contains(s.Message, "the startup script of instance "+idA) {
				t.Errorf("%+v", s)
			}
			time.Sleep(2 * time.Hour)
			w.until(api.PhaseScriptOK)
			select {
			case err := <-ended:
				t.Errorf("the agent ended: %v", err)
			default:
			}
		})
}

// TestUpdateDoesNotWaitForOthers: a script that is not monitored, and a pull.
func TestUpdateDoesNotWaitForOthers(t *testing.T) {
	inUpdates(t, sim.Options{Exec: sim.DurationRange{Min: 10 * time.Hour, Max: 10 * time.Hour}},
		func(w *world, _ *newer, ended <-chan error) {
			w.control.order(startOrder(withScript(api.Script{Text: []byte("true"), OnFailure: 1})))
			w.until(api.PhaseRunning)
			time.Sleep(time.Minute)
			begun := time.Now()
			w.update()
			if err := <-ended; !errors.Is(err, ErrUpdate) || time.Since(begun) > 10*time.Second {
				t.Errorf("%v after %s", err, time.Since(begun))
			}
			time.Sleep(10 * time.Hour) // the script continues without its agent
		})
}
