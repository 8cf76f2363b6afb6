package agent

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// taskLife is a task of a running instance, from its order to the instance's end.
type taskLife struct {
	name  string
	order func() api.Order
	early time.Duration // terminate this long after the order; 0: once the task is over
	in    api.TaskStage // with early: the stage in which the task is ended when no agent is killed
	least int           // minimum number of steps to be killed at
}

func fullSave(edit func(*api.SaveOrder)) func() api.Order {
	return func() api.Order {
		return saveOrder("s1", func(o *api.SaveOrder) {
			o.Script, o.SanityTest = []byte("sleep 2; echo said"), true
			edit(o)
		})
	}
}

var taskLives = []taskLife{
	{name: "suspended save", least: 45, order: fullSave(func(*api.SaveOrder) {})},
	{name: "stopped save", least: 30, order: fullSave(func(o *api.SaveOrder) { o.Suspend = false })},
	{
		name: "failing save", least: 25,
		order: fullSave(func(o *api.SaveOrder) { o.Script, o.MustSucceed = []byte("exit 3"), true }),
	},
	{name: "restart", least: 15, order: func() api.Order { return restartOrder("s1") }},
	{
		name: "ended in its script", least: 10, early: time.Second, in: api.TaskScript,
		order: fullSave(func(*api.SaveOrder) {}),
	},
	{
		name: "ended in its shutdown", least: 15, early: 2900 * time.Millisecond, in: api.TaskSaving,
		order: fullSave(func(o *api.SaveOrder) { o.Suspend = false }),
	},
	{
		name: "ended in its test", least: 20, early: 2700 * time.Millisecond, in: api.TaskTesting,
		order: fullSave(func(*api.SaveOrder) {}),
	},
	{
		name: "ended in its push", least: 20, early: 5 * time.Second, in: api.TaskPushing,
		order: fullSave(func(*api.SaveOrder) {}),
	},
	{
		name: "ended in its restart", least: 10, early: 500 * time.Millisecond, in: api.TaskAccepted,
		order: func() api.Order { return restartOrder("s1") },
	},
}

// TestTaskKilledAnywhere kills the agent at each step that it takes in each life of a task, starts
// another one over the same disk and hypervisor, and checks the end.
func TestTaskKilledAnywhere(t *testing.T) {
	for _, l := range taskLives {
		t.Run(l.name, func(t *testing.T) { killEverywhere(t, l.least, 300, l.live) })
	}
}

// live runs one life whose agent is killed at a step after the order; it reports whether it was.
func (l taskLife) live(t *testing.T, step int) (died bool) {
	// No VM takes longer than its boot timeout, so a start of one second is slow enough to be interrupted.
	w := newWorld(t,
		sim.Options{
			Boot: sim.DurationRange{Min: time.Second}, Stop: sim.DurationRange{Min: time.Second},
			Exec: sim.DurationRange{Min: 300 * time.Millisecond},
		})
	w.shop.slow(4 * time.Second)
	first := newGate(-1)
	stop := w.boot(first)
	w.control.order(startOrder(nil))
	w.until(api.PhaseRunning)
	w.guest(idA, "echo kept >/srv/a")
	time.Sleep(time.Second)
	first.killAfter(step)
	second := make(chan func() error, 1)
	go func() {
		<-first.dead
		_ = stop()
		time.Sleep(time.Second)
		second <- w.boot(newGate(-1))
	}()
	w.control.order(l.order())
	if l.early > 0 {
		time.Sleep(l.early)
	} else {
		l.checkEnd(t, w, w.untilTask("s1"))
	}
	w.control.order(terminate("1"))
	w.until(api.PhaseTerminated)
	time.Sleep(10 * time.Second) // a second removal or a late status would arrive now
	died = first.isDead()
	if stages := w.control.stages("s1"); l.early > 0 && !died && stages[len(stages)-1] != l.in {
		t.Errorf("ended in %v, want %s", stages, l.in)
	}
	first.kill()
	last := <-second
	time.Sleep(10 * time.Second)
	if err := last(); err != nil {
		t.Errorf("Run: %v", err)
	}
	w.checkClean()
	if w.number(&w.scripts) > 1 || len(w.shop.tagged("v2")) > 1 {
		t.Errorf("the script ran %d times, the registry has %d versions", w.number(&w.scripts),
			len(w.shop.tagged("v2")))
	}
	if t.Failed() {
		t.Logf("steps of the killed agent: %v", first.passed())
	}
	return died
}

// checkEnd checks what a finished task must have left.
func (l taskLife) checkEnd(t *testing.T, w *world, got api.TaskStatus) {
	t.Helper()
	time.Sleep(5 * time.Second)
	stopped := strings.HasPrefix(l.name, "stopped")
	switch {
	case got.Stage == api.TaskDone && l.order().Kind == api.OrderSave:
		v := w.shop.tagged("v2")
		if len(v) != 1 || got.Version == nil || *got.Version != v[0].result {
			t.Fatalf("done with %+v, the registry has %+v", got.Version, v)
		}
		if got := filesOn(t, v[0].files["disk.qcow2"]); got != `{"/srv/a":"kept\n"}` {
			t.Errorf("the saved disk is %q", got)
		}
		said := func(s api.InstanceStatus) bool {
			return s.Task != nil && s.Task.Stage == api.TaskDone && s.Task.Script != nil &&
				s.Task.Script.Stdout == "said\n"
		}
		if !slices.ContainsFunc(w.control.told(idA), said) {
			t.Errorf("the script's output was not told with the outcome")
		}
		if !slices.Contains(w.cached(), got.Version.ContentID) {
			t.Error("the new version is not in the cache")
		}
	case got.Stage == api.TaskFailed:
		if got.Message != scriptFailedMessage &&
			got.Message != "The outcome of the script is unknown after an agent restart; it is not run twice" {
			t.Errorf("failed with %q", got.Message)
		}
		if len(w.shop.tagged("v2")) != 0 {
			t.Error("failed and was published")
		}
	}
	if phases := w.control.phasesOf(idA); slices.Contains(phases, api.PhaseStopped) ||
		slices.Contains(phases, api.PhaseVanished) {
		t.Errorf("phases %v", phases)
	}
	if got.Stage == api.TaskDone && stopped {
		return
	}
	w.checkRuns()
	if w.guest(idA, "cat /srv/a") != "kept\n" {
		t.Error("the guest lost its disk")
	}
}

// cached returns the content IDs of the cache from the last poll.
func (w *world) cached() []string {
	var out []string
	for _, p := range w.control.seen() {
		if p.Info == nil {
			continue
		}
		out = nil
		for _, v := range p.Info.Templates {
			out = append(out, v.ContentID)
		}
	}
	return out
}

// TestRestartIsDoneOnce: an agent that is killed after the VM is in its new run, but before that is
// recorded, does not restart it again. The driver completes what may be missing of the start, such
// as USB devices.
func TestRestartIsDoneOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sim.Options{})
		g := newGate(-1)
		stop := w.boot(g)
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		time.Sleep(time.Second)
		g.killAt("restart done")
		w.control.order(restartOrder("r1"))
		<-g.dead
		_ = stop()
		run := w.vms()[0].StartedAt
		time.Sleep(time.Minute)
		again := w.boot(newGate(-1))
		if got := w.untilTask("r1"); got.Stage != api.TaskDone || w.number(&w.restarts) != 1 ||
			w.number(&w.starts) != 2 {
			t.Errorf("got %+v after %d restarts and %d starts", got, w.number(&w.restarts), w.number(&w.starts))
		}
		if vm := w.vms()[0]; vm.Status != hv.Running || !vm.StartedAt.Equal(run) ||
			!w.control.status(idA).VM.Started.Equal(run) {
			t.Errorf("VM %+v", vm)
		}
		if err := again(); err != nil {
			t.Error(err)
		}
		w.checkFaults()
	})
}

// TestCheckIsMadeAgain: an interrupted sanity test is repeated with another VM, since the state of
// the first one is unknown.
func TestCheckIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, sim.Options{Exec: sim.DurationRange{Min: 10 * time.Second}})
		g := newGate(-1)
		stop := w.boot(g)
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		g.killAt("start check done")
		w.control.order(saveOrder("s1", func(o *api.SaveOrder) { o.SanityTest = true }))
		<-g.dead
		_ = stop()
		first := w.vms()[1].UUID
		again := w.boot(newGate(-1))
		w.untilStage(api.TaskTesting)
		time.Sleep(5 * time.Second)
		if vms := w.vms(); len(vms) != 2 || vms[1].UUID == first {
			t.Errorf("VMs %+v", vms)
		}
		if got := w.untilTask("s1"); got.Stage != api.TaskDone {
			t.Errorf("got %+v", got)
		}
		w.checkRuns()
		if err := again(); err != nil {
			t.Error(err)
		}
	})
}
