package agent

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/sim"
	"github.com/buildyard/buildyard/internal/metric/metrictest"
)

// desk receives files, and records where the agent's own log is sent.
type desk struct {
	mu    sync.Mutex
	err   error
	tries int
	files map[string]string // address and name -> content
	log   []string          // calls about it, without repetition
}

func (d *desk) Upload(_ context.Context, address, name string, content []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tries++
	if d.err != nil {
		return d.err
	}
	if d.files == nil {
		d.files = map[string]string{}
	}
	d.files[address+" "+name] = string(content)
	return nil
}

func (d *desk) ShipTo(address string) { d.note("to " + address) }
func (d *desk) Discard()              { d.note("dropped") }

func (d *desk) note(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.log); n == 0 || d.log[n-1] != what {
		d.log = append(d.log, what)
	}
}

func (d *desk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
}

// tried returns how often a file was sent.
func (d *desk) tried() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tries
}

// said returns the calls about the agent's own log.
func (d *desk) said() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.log, ", ")
}

// only returns the name and the text of the only file.
func (d *desk) only(t *testing.T) (name, text string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.files) != 1 {
		t.Fatalf("there are %d files: %v", len(d.files), d.files)
	}
	for name, text = range d.files {
	}
	return name, text
}

// FailureLog is kept by the driver for every VM but those of a sanity test.
func (d gatedDriver) FailureLog(id string) ([]byte, error) {
	if strings.HasSuffix(id, testVMSuffix) {
		return nil, nil
	}
	return fmt.Appendf(nil, "console of %s, password in http://root:hunter2@host/\n", id), nil
}

var _ hv.FailureLogger = gatedDriver{}

func TestLogOfAFailedStart(t *testing.T) {
	inWorld(t, sim.Options{BootFailureRate: 1}, func(w *world) {
		w.desk.fail(errors.New("the registry restarts"))
		w.control.order(startOrder(nil))
		w.until(api.PhaseFailed)
		time.Sleep(time.Minute)
		if n := w.desk.tried(); n < 3 || n > 6 {
			t.Errorf("%d tries in a minute", n)
		}
		w.desk.fail(nil)
		time.Sleep(2 * time.Minute)
		name, text := w.desk.only(t)
		if m := metrictest.Values(w.agent.Families()); m["buildyard_node_failure_logs_total{ok}"] != 1 ||
			m["buildyard_node_failure_logs_total{failed}"] != 0 {
			t.Error("it is not counted")
		}
		if !regexp.MustCompile(`^http://registry logs/` + idA + `/\d{8}T\d{6}\.\d{3}Z-start\.log$`).MatchString(name) {
			t.Errorf("it is %s", name)
		}
		for _, want := range []string{
			"Instance " + idA + " on node node, ", "Template debian (t), tag v1, version 0\n",
			"start failed: start VM: ", "the simulated boot failed",
			"--- log of " + idA + " ---\nconsole of " + idA + ", password in http://********@host/\n",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("it lacks %q:\n%s", want, text)
			}
		}
	})
}

// TestLogIsGivenUp: the agent stops sending a log after failureLogSendTimeout, and counts it as failed.
func TestLogIsGivenUp(t *testing.T) {
	inWorld(t, sim.Options{BootFailureRate: 1}, func(w *world) {
		w.desk.fail(errors.New("no registry"))
		w.control.order(startOrder(nil))
		w.until(api.PhaseFailed)
		time.Sleep(time.Hour)
		tries := w.desk.tried()
		time.Sleep(time.Hour)
		if w.desk.tried() != tries {
			t.Error("it is tried for ever")
		}
		if m := metrictest.Values(w.agent.Families()); m["buildyard_node_failure_logs_total{failed}"] != 1 {
			t.Error("it is not counted")
		}
	})
}

func TestLogOfAFailedSave(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		w.breaks("save state", errors.New("disk full"))
		w.control.order(saveOrder("s1", nil))
		w.untilTask("s1")
		time.Sleep(time.Minute)
		if name, text := w.desk.only(t); !strings.HasSuffix(name, "-save.log") ||
			!strings.Contains(text, "save failed: The VM could not be saved: ") {
			t.Errorf("%s\n%s", name, text)
		}
	})
}

func TestLogOfAVMThatEnds(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		if err := w.host.Kill(idA); err != nil {
			t.Fatal(err)
		}
		w.until(api.PhaseStopped)
		time.Sleep(time.Minute)
		if name, text := w.desk.only(t); !strings.HasSuffix(name, "-run.log") ||
			!strings.Contains(text, "run failed: The VM stopped without being asked to: ") ||
			!strings.Contains(text, "console of "+idA) {
			t.Errorf("%s\n%s", name, text)
		}
	})
}

// TestNoLogLeavesTheNode when that is its setting.
func TestNoLogLeavesTheNode(t *testing.T) {
	inWorld(t, sim.Options{BootFailureRate: 1}, func(w *world) {
		w.control.mu.Lock()
		w.control.central, w.control.keepsLogs = true, true
		w.control.mu.Unlock()
		time.Sleep(time.Minute) // until a poll has brought it
		w.control.order(startOrder(nil))
		w.until(api.PhaseFailed)
		time.Sleep(time.Hour)
		if n, said := w.desk.tried(), w.desk.said(); n != 0 || said != "dropped" {
			t.Errorf("%d tries, %s", n, said)
		}
	})
}

// TestTheControllerDecidesAboutTheLog, with every answer to a poll.
func TestTheControllerDecidesAboutTheLog(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		for _, central := range []bool{false, true, false} {
			w.control.mu.Lock()
			w.control.central = central
			w.control.mu.Unlock()
			time.Sleep(time.Minute)
		}
		if got := w.desk.said(); got != "dropped, to http://registry, dropped" {
			t.Error(got)
		}
	})
}
