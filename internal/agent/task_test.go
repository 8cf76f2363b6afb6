package agent

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/hv/sim"
)

// saveOrder is a save of idA as tag v2; edit changes it.
func saveOrder(task string, edit func(*api.SaveOrder)) api.Order {
	o := api.Order{Kind: api.OrderSave, InstanceID: idA, Claim: "1", Task: task, Save: &api.SaveOrder{
		TemplateID: "t", Tag: "v2", Description: "saved", Suspend: true,
	}}
	if edit != nil {
		edit(o.Save)
	}
	return o
}

func restartOrder(task string) api.Order {
	return api.Order{Kind: api.OrderRestart, InstanceID: idA, Claim: "1", Task: task, Restart: &api.RestartOrder{}}
}

// untilTask waits until a task is over.
func (w *world) untilTask(id string) api.TaskStatus {
	w.t.Helper()
	for range 30000 {
		for _, s := range w.control.told(idA) { // a later one has no output of the script
			if t := s.Task; t != nil && t.ID == id && (t.Stage == api.TaskDone || t.Stage == api.TaskFailed) {
				return *t
			}
		}
		time.Sleep(time.Second)
	}
	w.t.Fatalf("task %s never ended; last %+v", id, w.control.status(idA).Task)
	return api.TaskStatus{}
}

// untilStage waits until a task is in a stage.
func (w *world) untilStage(stage api.TaskStage) {
	w.t.Helper()
	for range 3000 {
		if t := w.control.status(idA).Task; t != nil && t.Stage == stage {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatalf("never %s; last %+v", stage, w.control.status(idA).Task)
}

// stages returns the stages that were reported for a task.
func (c *controller) stages(id string) []api.TaskStage {
	var out []api.TaskStage
	for _, s := range c.told(idA) {
		if s.Task != nil && s.Task.ID == id && (len(out) == 0 || out[len(out)-1] != s.Task.Stage) {
			out = append(out, s.Task.Stage)
		}
	}
	return out
}

// guest runs a command in idA's guest and returns its output.
func (w *world) guest(id, script string) string {
	w.t.Helper()
	r, err := w.host.Exec(w.t.Context(), id, hv.ScriptCommand([]byte(script), time.Minute))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(r.Stdout)
}

// checkRuns checks the state after a task that failed: the VM runs as before.
func (w *world) checkRuns() {
	w.t.Helper()
	s := w.control.status(idA)
	if vms := w.vms(); len(vms) != 1 || vms[0].ID != idA || vms[0].Status != hv.Running {
		w.t.Errorf("VMs are %+v", vms)
	}
	if s.Phase != api.PhaseRunning && s.Phase != api.PhaseScriptOK || s.VM.Status != "running" {
		w.t.Errorf("told %s with VM %+v", s.Phase, s.VM)
	}
	if left, _ := os.ReadDir(w.saves()); len(left) != 0 {
		w.t.Errorf("left of the save are %v", left)
	}
}

func TestSaveSuspended(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(func(o *api.StartOrder) {
			o.Machine = &api.Machine{CPUs: 3, MemoryMB: 512, VNCPassword: "geheim"}
		}))
		w.until(api.PhaseRunning)
		w.guest(idA, "echo disk >/srv/a; echo memory >/dev/shm/a")
		w.shop.slow(10 * time.Second)
		w.control.order(saveOrder("s1", func(o *api.SaveOrder) {
			o.SanityTest, o.Script, o.MustSucceed = true, []byte("echo said; echo >&2"), true
		}))
		done := w.untilTask("s1")
		all := []api.TaskStage{
			api.TaskAccepted, api.TaskScript, api.TaskSaving, api.TaskTesting, api.TaskPushing,
			api.TaskDone,
		}
		got := w.control.stages("s1") // those that passed simultaneously may be reported as one
		inOrder := slices.IsSortedFunc(got,
			func(a, b api.TaskStage) int { return slices.Index(all, a) - slices.Index(all, b) })
		if !inOrder || !slices.Contains(got, api.TaskPushing) {
			t.Errorf("stages %v", got)
		}
		if v := done.Version; v == nil || v.Tag != "v2" || v.Number != 1 || done.Script == nil ||
			done.Script.Stdout != "said\n" {
			t.Fatalf("got %+v", done)
		}
		progress := 0.0
		for _, s := range w.control.told(idA) {
			if s.Task != nil && s.Task.Stage == api.TaskPushing {
				progress = max(progress, s.Task.Progress)
			}
		}
		if progress < 0.9 {
			t.Errorf("progress reached %v only", progress)
		}
		checkSaved(t, w)
		w.checkRuns()
		w.control.order(terminate("1"))
		w.until(api.PhaseTerminated)

		// The new version starts here without a pull, and continues where it was saved.
		again := startOrder(func(o *api.StartOrder) { o.ContentID, o.Tag = done.Version.ContentID, "v2" })
		again.Claim = "2"
		w.control.order(again)
		for w.control.status(idA).Claim != "2" || w.control.phase(idA) != api.PhaseRunning {
			time.Sleep(100 * time.Millisecond)
		}
		if got := w.guest(idA, "cat /srv/a; cat /dev/shm/a"); got != "disk\nmemory\n" || w.source.count() != 1 {
			t.Errorf("the new version has %q, after %d pulls", got, w.source.count())
		}
	})
}

// checkSaved checks what was pushed.
func checkSaved(t *testing.T, w *world) {
	t.Helper()
	_, push := w.shop.pushed()
	var config api.TemplateConfig
	if err := json.Unmarshal(push.Request.Config, &config); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range push.Files {
		names = append(names, f.Kind+" "+f.Name)
	}
	if !slices.Equal(names, []string{"disk disk.qcow2", "state state.1"}) {
		t.Errorf("pushed %v", names)
	}
	if p := push.Files[0].Parent; p == nil || p.ChainID != rootOf("base") || p.FileCount != 1 ||
		len(push.Files[0].Disk.Overlays) != 1 {
		t.Errorf("pushed %+v, made from %+v", push.Files[0].Disk, p)
	}
	if d := config.HardDrives; len(d) != 1 || d[0].File != "disk.qcow2" || d[0].Format != "raw" ||
		config.StateFile != "state.1" {
		t.Errorf("configuration %+v", config)
	}
	if p := config.StatePin; p == nil || p.Driver != "sim" || p.CPUs != 3 || config.CPU.Cores != 3 ||
		config.RAM != "512M" {
		t.Errorf("machine %+v", config)
	}
	text := string(push.Request.Config)
	if !strings.Contains(text, `"kept":{"a":1}`) || !strings.Contains(text, `"rule_name":"ssh"`) ||
		strings.Contains(text, "geheim") {
		t.Errorf("configuration is %s", text)
	}
	r := push.Request
	if r.ID != "t" || !r.MustExist || r.Name != "" || r.Tag != "v2" || r.Description != "saved" ||
		r.ResumeKey != "s1" || r.Arch != "amd64" {
		t.Errorf("request %+v", r)
	}
}

func TestSaveStopped(t *testing.T) {
	inWorld(t, sim.Options{Stop: sim.DurationRange{Min: 3 * time.Second}}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		w.guest(idA, "echo disk >/srv/a")
		w.control.order(saveOrder("s1", func(o *api.SaveOrder) {
			o.Suspend, o.NewName, o.Revert = false, "fresh", &api.PushRevert{Tag: "v2"}
		}))
		done := w.untilTask("s1")
		if done.Stage != api.TaskDone {
			t.Fatalf("got %+v", done)
		}
		time.Sleep(10 * time.Second)
		if phases := w.control.phasesOf(idA); slices.Contains(phases, api.PhaseStopped) {
			t.Errorf("a VM that was shut down to be saved is said to have stopped by itself: %v", phases)
		}
		v := w.shop.tagged("v2")
		if len(v) != 1 || strings.Contains(v[0].config, "state_") || len(v[0].files) != 1 {
			t.Errorf("pushed %+v", v)
		}
		if _, push := w.shop.pushed(); push.Request.MustExist || push.Request.Name != "fresh" ||
			push.Request.Revert.Tag != "v2" {
			t.Errorf("request %+v", push.Request)
		}
		w.control.order(terminate("1"))
		w.until(api.PhaseTerminated)
		time.Sleep(time.Second)
		w.checkClean()
	})
}

// TestFailedSaves: whatever fails, the VM runs on, nothing is left and nothing is pushed.
func TestFailedSaves(t *testing.T) {
	away := farm.Unavailable(nil, "The registry cannot be reached")
	for name, tt := range map[string]struct {
		edit     func(*api.SaveOrder)
		before   func(*world)
		message  string
		code     int
		restarts int
	}{
		"script": {
			edit:    func(o *api.SaveOrder) { o.Script, o.MustSucceed = []byte("echo x; exit 7"), true },
			message: "Script execution failed", code: 7,
		},
		"script time-out": {
			edit:    func(o *api.SaveOrder) { o.Script, o.MustSucceed = []byte("sleep 30000"), true },
			message: "Script execution failed", code: -1,
		},
		"driver": {before: func(w *world) {
			w.breaks("save", errors.New("no overlay"))
		}, message: "The VM could not be saved: no overlay"},
		"driver's step": {before: func(w *world) {
			w.breaks("save state", errors.New("disk full"))
		}, message: "disk full"},
		"after the shutdown": {
			edit:    func(o *api.SaveOrder) { o.Suspend = false },
			before:  func(w *world) { w.breaks("save disks", errors.New("disk full")) },
			message: "disk full", restarts: 1,
		},
		"no room": {
			before: func(w *world) { w.limit(2 << 30) }, // of which the version uses one
			message: "The node's disk has 1 GiB free and the save may take 2.0 GiB; remove VMs or templates from " +
				"the node",
		},
		"sanity test": {
			edit:    func(o *api.SaveOrder) { o.SanityTest = true },
			before:  func(w *world) { w.breaks("start check", errors.New("it hangs")) },
			message: "The sanity test failed: a VM that was started from the save did not work: it hangs",
		},
		"refused": {
			before:  func(w *world) { w.shop.breaks(farm.Refused("Tag v2 exists"), time.Hour) },
			message: "The save could not be pushed: Tag v2 exists",
		},
		"template gone": {
			before:  func(w *world) { w.shop.breaks(farm.NotFound(), time.Hour) },
			message: "The save could not be pushed: template t is no longer in the registry",
		},
		"registry away": {before: func(w *world) {
			w.shop.breaks(away, time.Hour)
		}, message: "The registry cannot be reached"},
		"registry away, stopped": {
			edit:    func(o *api.SaveOrder) { o.Suspend = false },
			before:  func(w *world) { w.shop.breaks(away, time.Hour) },
			message: "The registry cannot be reached", restarts: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, sim.Options{}, func(w *world) {
				w.control.order(startOrder(nil))
				w.until(api.PhaseRunning)
				if tt.before != nil {
					tt.before(w)
				}
				w.control.order(saveOrder("s1", tt.edit))
				begun := time.Now()
				got := w.untilTask("s1")
				if took := time.Since(begun); took > time.Minute && !strings.Contains(name, "away") &&
					!strings.Contains(name, "time-out") {
					t.Errorf("the failure took %s", took)
				}
				if got.Stage != api.TaskFailed || !strings.Contains(got.Message, tt.message) || got.Code != tt.code {
					t.Errorf("got %+v, want %q", got, tt.message)
				}
				time.Sleep(10 * time.Second)
				w.checkRuns()
				if n := w.number(&w.restarts); n != tt.restarts || len(w.shop.tagged("v2")) != 0 {
					t.Errorf("%d restarts, %d versions", n, len(w.shop.tagged("v2")))
				}
				if slices.Contains(w.control.phasesOf(idA), api.PhaseStopped) {
					t.Errorf("phases %v", w.control.phasesOf(idA))
				}
			})
		})
	}
}

// limit sets the size of the disk without templates.
func (w *world) limit(bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free = bytes
}

// TestSpaceForASave: an unused cached version is evicted for a save.
func TestSpaceForASave(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(func(o *api.StartOrder) { o.ContentID = "unused" }))
		w.until(api.PhaseRunning)
		w.control.order(terminate("1"))
		w.until(api.PhaseTerminated)
		again := startOrder(nil)
		again.Claim = "2"
		w.control.order(again)
		w.until(api.PhaseRunning)
		w.limit(7 << 29) // 3.5 GiB: two versions and the save do not fit
		o := saveOrder("s1", nil)
		o.Claim = "2"
		w.control.order(o)
		if got := w.untilTask("s1"); got.Stage != api.TaskDone {
			t.Errorf("got %+v", got)
		}
		time.Sleep(10 * time.Second)
		if here := w.cached(); slices.Contains(here, "unused") || !slices.Contains(here, content) {
			t.Errorf("the cache has %v", here)
		}
	})
}

// TestPushOutlastsTheRegistry: a registry that is unavailable for less than pushPatience does not
// fail a save.
func TestPushOutlastsTheRegistry(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		w.shop.breaks(farm.Unavailable(nil, "away"), 5*time.Minute)
		w.control.order(saveOrder("s1", nil))
		begun := time.Now()
		if got := w.untilTask("s1"); got.Stage != api.TaskDone || time.Since(begun) < 5*time.Minute ||
			time.Since(begun) > 6*time.Minute {
			t.Errorf("got %+v after %s", got, time.Since(begun))
		}
		if w.number(&w.saved) != 1 {
			t.Errorf("saved %d times", w.number(&w.saved))
		}
	})
}

// TestSourceDoesNotComeBack: a VM that was shut down and does not start again is reported as
// stopped, with both reasons.
func TestSourceDoesNotComeBack(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		w.breaks("save disks", errors.New("disk full"))
		w.breaks("restart", errors.New("no memory"))
		w.control.order(saveOrder("s1", func(o *api.SaveOrder) { o.Suspend = false }))
		got := w.untilTask("s1")
		s := w.control.status(idA)
		if !strings.Contains(got.Message, "disk full") || !strings.Contains(got.Message, "no memory") ||
			got.Stage != api.TaskFailed {
			t.Errorf("task %+v", got)
		}
		if s.Phase != api.PhaseStopped || !strings.Contains(s.Message, "no memory") || s.VM.Status != "stopped" {
			t.Errorf("told %s %q, %+v", s.Phase, s.Message, s.VM)
		}
		w.control.order(saveOrder("s2", nil))
		if got := w.untilTask("s2"); !strings.HasPrefix(got.Message, "The VM does not run: The VM was shut down") {
			t.Errorf("a task for a stopped VM: %+v", got)
		}
	})
}

// TestStartupScriptGoesFirst: a task waits for the startup script, and one that fails leaves no VM
// to work on.
func TestStartupScriptGoesFirst(t *testing.T) {
	for script, want := range map[string]string{
		"sleep 30": "", "sleep 30; exit 2": "The startup script failed: startup script exit code 2",
	} {
		t.Run(script, func(t *testing.T) {
			inWorld(t, sim.Options{}, func(w *world) {
				w.control.order(startOrder(withScript(api.Script{Text: []byte(script), Monitoring: true})))
				w.until(api.PhaseRunning)
				begun := time.Now()
				w.control.order(saveOrder("s1", nil))
				got := w.untilTask("s1")
				if took := time.Since(begun); got.Message != want || took < 20*time.Second ||
					(want == "") != (got.Stage == api.TaskDone) {
					t.Errorf("got %+v after %s", got, took)
				}
			})
		})
	}
}

// TestVMEndsUnderATask: the VM is reported as stopped and the task as failed.
func TestVMEndsUnderATask(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		w.control.order(saveOrder("s1", func(o *api.SaveOrder) { o.Script = []byte("sleep 5; crash") }))
		got := w.untilTask("s1")
		if s := w.control.status(idA); got.Stage != api.TaskFailed ||
			!strings.HasPrefix(got.Message, "The VM does not run: ") || s.Phase != api.PhaseStopped {
			t.Errorf("got %+v in %s", got, s.Phase)
		}
		if w.number(&w.scripts) != 1 || w.number(&w.saved) != 0 {
			t.Errorf("%d scripts, %d saves", w.number(&w.scripts), w.number(&w.saved))
		}
	})
}

// TestTasksAreTakenOnce: a repeated order is the same task, another order is refused while a task
// is in progress, and a late one has no effect.
func TestTasksAreTakenOnce(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		stranger := saveOrder("s0", nil)
		stranger.InstanceID = "01890000-0000-7000-8000-00000000000b"
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		for range 3 {
			w.control.order(saveOrder("s1", func(o *api.SaveOrder) { o.Script = []byte("sleep 300") }))
			w.untilStage(api.TaskScript)
			time.Sleep(6 * time.Second)
		}
		w.control.order(stranger)
		w.control.order(saveOrder("s3", nil))
		refused := func(s api.InstanceStatus) bool {
			return s.Task != nil && s.Task.ID == "s3" && s.Task.Stage == api.TaskFailed &&
				s.Task.Message == "Save or restart already in progress"
		}
		time.Sleep(time.Second)
		if !slices.ContainsFunc(w.control.told(idA), refused) {
			t.Error("another save was not refused")
		}
		if now := w.control.status(idA).Task; now == nil || now.ID != "s1" || now.Stage != api.TaskScript {
			t.Errorf("after the refusal the task is told as %+v", now)
		}
		w.control.mu.Lock() // a controller that received the status does not send it again
		w.control.due = nil
		w.control.mu.Unlock()
		if got := w.untilTask("s1"); got.Stage != api.TaskDone || w.number(&w.saved) != 1 {
			t.Errorf("got %+v, saved %d times", got, w.number(&w.saved))
		}
		if acked := ackedTasks(w); !slices.Equal(acked, []string{"s0", "s1", "s3"}) {
			t.Errorf("acknowledged %v", acked)
		}
	})
}

// ackedTasks returns the tasks that were acknowledged, each once.
func ackedTasks(w *world) []string {
	var out []string
	for _, p := range w.control.seen() {
		for _, a := range p.Acks {
			if a.Task != "" {
				out = append(out, a.Task)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestTaskOfAnotherClaim: a task of another claim is acknowledged and ignored.
func TestTaskOfAnotherClaim(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		late := restartOrder("r1")
		late.Claim = "0"
		w.control.mu.Lock()
		w.control.due = append(w.control.due, late)
		w.control.mu.Unlock()
		time.Sleep(20 * time.Second)
		if s := w.control.status(idA); s.Task != nil || w.number(&w.restarts) != 0 ||
			!slices.Equal(ackedTasks(w), []string{"r1"}) {
			t.Errorf("told %+v, acknowledged %v", s.Task, ackedTasks(w))
		}
	})
}

func TestMalformedTasks(t *testing.T) {
	bad := saveOrder("../../etc", nil)
	empty := restartOrder("r1")
	empty.Restart = nil
	for _, o := range []api.Order{bad, empty} {
		inWorld(t, sim.Options{}, func(w *world) {
			w.control.order(startOrder(nil))
			w.until(api.PhaseRunning)
			w.control.order(o)
			if got := w.untilTask(o.Task); got.Stage != api.TaskFailed || got.Message == "" {
				t.Errorf("got %+v", got)
			}
			w.checkRuns()
		})
	}
}

// TestTwoSavesInARow: the second save is made on the same base, and contains everything.
func TestTwoSavesInARow(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		w.guest(idA, "echo 1 >/srv/a")
		w.control.order(saveOrder("s1", func(o *api.SaveOrder) { o.Script = []byte("echo first") }))
		if got := w.untilTask("s1"); got.Stage != api.TaskDone {
			t.Fatalf("got %+v", got)
		}
		w.guest(idA, "echo 2 >/srv/b")
		w.control.order(saveOrder("s2", func(o *api.SaveOrder) { o.Tag = "v3" }))
		got := w.untilTask("s2")
		if v := w.shop.tagged("v3"); got.Stage != api.TaskDone || got.Script != nil || len(v) != 1 ||
			filesOn(t, v[0].files["disk.qcow2"]) != `{"/srv/a":"1\n","/srv/b":"2\n"}` {
			t.Errorf("got %+v, %+v", got, v)
		}
		time.Sleep(time.Second)
		w.checkRuns()
	})
}

// TestSaveOfASave: the third version is made from the second, whose state is not part of it.
func TestSaveOfASave(t *testing.T) {
	inWorld(t, sim.Options{}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		w.control.order(saveOrder("s1", nil))
		second := w.untilTask("s1").Version
		w.control.order(terminate("1"))
		w.until(api.PhaseTerminated)
		again := startOrder(func(o *api.StartOrder) { o.ContentID, o.Tag = second.ContentID, "v2" })
		again.Claim = "2"
		w.control.order(again)
		for w.control.status(idA).Claim != "2" || w.control.phase(idA) != api.PhaseRunning {
			time.Sleep(100 * time.Millisecond)
		}
		third := saveOrder("s2", func(o *api.SaveOrder) { o.Tag, o.SanityTest = "v3", true })
		third.Claim = "2"
		w.control.order(third)
		if got := w.untilTask("s2"); got.Stage != api.TaskDone {
			t.Fatalf("got %+v", got)
		}
		v := w.shop.tagged("v3")[0]
		names := []string{}
		for name := range v.files {
			names = append(names, name)
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{"disk.qcow2", "state.2"}) ||
			v.below["disk.qcow2"] != w.shop.tagged("v2")[0].roots["disk.qcow2"] {
			t.Errorf("pushed %v on %v", names, v.below)
		}
	})
}

// TestCheckVMIsNotCounted: a running sanity test is neither in the inventory nor in the usage.
func TestCheckVMIsNotCounted(t *testing.T) {
	inWorld(t, sim.Options{Exec: sim.DurationRange{Min: 15 * time.Second}}, func(w *world) {
		w.control.order(startOrder(nil))
		w.until(api.PhaseRunning)
		w.control.order(saveOrder("s1", func(o *api.SaveOrder) { o.SanityTest = true }))
		w.untilStage(api.TaskTesting)
		time.Sleep(10 * time.Second)
		vms := w.vms()
		if len(vms) != 2 || vms[1].ID != idA+"-check" || vms[1].UUID == vms[0].UUID || len(vms[1].Ports) != 0 {
			t.Errorf("VMs are %+v", vms)
		}
		for _, p := range w.control.seen() {
			if len(p.Held) > 1 || p.Usage != nil && p.Usage.VMs > 1 {
				t.Errorf("held %+v, usage %+v", p.Held, p.Usage)
			}
		}
		if got := w.untilTask("s1"); got.Stage != api.TaskDone {
			t.Errorf("got %+v", got)
		}
		w.checkRuns()
	})
}
