package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/failurecause"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

// taskStages are the stages of each kind of task with their step. A step ends with another stage, a
// failure, or the end of the task.
var taskStages = map[api.OrderKind]map[api.TaskStage]step{
	api.OrderSave: {
		api.TaskAccepted: (*Agent).beginSave,
		api.TaskScript:   (*Agent).saveScript,
		api.TaskSaving:   (*Agent).saveFiles,
		api.TaskTesting:  (*Agent).testSave,
		api.TaskPushing:  (*Agent).pushSave,
	},
	api.OrderRestart: {
		api.TaskAccepted: (*Agent).restartVM,
	},
}

// taskConditionOf returns what an instance's task needs of its VM.
func taskConditionOf(t *journal.Task) taskCondition {
	switch {
	case t == nil, t.Stage == api.TaskFailed:
		return noTask
	case t.Stage == api.TaskDone && t.Order.Kind == api.OrderSave:
		return taskSaveDone
	case t.IsOver():
		return noTask
	case t.Failure != nil, t.Saved != nil, t.Order.Kind == api.OrderRestart,
		t.Stage == api.TaskSaving && !t.Order.Save.Suspend:
		return taskIgnoresVM
	default:
		return taskNeedsVM
	}
}

// acceptTask journals a save or a restart. A task for an instance that is no longer on this node is
// acknowledged and has no effect: the instance's state is reported anyway.
func (a *Agent) acceptTask(in *instance, o api.Order) error {
	if in == nil {
		a.log.Warn("task ignored: its instance is not on this node", "instance_id", o.InstanceID, "kind",
			string(o.Kind))
		return nil
	}
	s := in.snapshot()
	switch {
	case s.Claim != o.Claim || s.Ending || in.order.Start == nil:
		a.log.Warn("task ignored: its instance is terminating or was placed again", "instance_id", in.id, "kind",
			string(o.Kind))
		return nil
	case s.Task != nil && s.Task.ID() == o.Task:
		a.outbox.add(in.id) // the controller may have lost the last report
		return nil
	case in.refusalReason(o.Task) != "":
		return a.rejectTask(in, o, in.refusalReason(o.Task))
	case !s.Task.IsOver():
		return a.rejectTask(in, o, taskInProgress)
	}
	t := &journal.Task{Order: o, Stage: api.TaskAccepted}
	if problem := malformedReason(o); problem != "" {
		t.Stage, t.Failure = api.TaskFailed, &journal.TaskFailure{Message: problem}
	}
	if err := a.removeScriptOutput(in, s.Task); err != nil {
		return err
	}
	err := a.storeAndReport(in, func(s *journal.State) { s.Task = t })
	switch {
	case errors.Is(err, errEnding):
		return nil
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return a.rejectTask(in, o, "The node's disk is full; remove VMs or templates from the node")
	case err == nil:
		a.log.Info("task accepted", "instance_id", in.id, "kind", string(o.Kind), "task", o.Task)
		in.signalTask()
		in.wakeWorker()
	}
	return err
}

// removeScriptOutput removes the output of a finished task, since another task follows.
func (a *Agent) removeScriptOutput(in *instance, t *journal.Task) error {
	in.mu.Lock()
	in.taskReport = taskReport{refusalReasons: in.taskReport.refusalReasons}
	in.mu.Unlock()
	if dir := a.saveDir(t); dir != "" {
		return os.RemoveAll(dir)
	}
	return nil
}

// malformedReason returns why no node can carry out an order; "" for a valid order.
func malformedReason(o api.Order) string {
	switch {
	case journal.CheckID(o.Task) != nil:
		return "The order's name has other characters than letters, digits, '.', '_' and '-'"
	case o.Kind == api.OrderSave && o.Save == nil, o.Kind == api.OrderRestart && o.Restart == nil:
		return "The order does not say what is to be done"
	default:
		return ""
	}
}

// taskInProgress is the reason for refusing a second task while one is in progress.
const taskInProgress = "Save or restart already in progress"

// rejectTask refuses a task permanently: the refusal is remembered, so that a duplicate of the
// order does not start it. That needs no durable write, since the reason may be that the disk is
// full.
func (a *Agent) rejectTask(in *instance, o api.Order, why string) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.taskReport.refusalReasons == nil {
		in.taskReport.refusalReasons = map[string]string{}
	}
	if !journal.IsNumberReserved(in.state.Number+1, in.journaledNumber) {
		if err := a.saveLocked(in, in.state); err != nil {
			return err
		}
	}
	in.taskReport.refusalReasons[o.Task] = why
	in.taskReport.pendingRefusal = &api.TaskStatus{ID: o.Task, Stage: api.TaskFailed, Message: firstBytes(why,
		maxMessageBytes)}
	in.state.Number++
	a.outbox.add(in.id)
	a.log.Warn("task rejected", "instance_id", in.id, "kind", string(o.Kind), "reason", why)
	return nil
}

// refusalReason returns the reason for which a task was refused before; "" if it was not.
func (in *instance) refusalReason(task string) string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.taskReport.refusalReasons[task]
}

// runTaskStage carries out the current stage of a save or a restart, or rolls it back.
func (a *Agent) runTaskStage(ctx context.Context, in *instance, vm hv.VM) error {
	t := in.snapshot().Task
	if t.Failure != nil {
		return a.rollbackTask(ctx, in, vm)
	}
	stage := taskStages[t.Order.Kind][t.Stage]
	if stage == nil {
		return a.failTask(ctx, in, "This node's program is older than the one that began the task")
	}
	return stage(a, ctx, in, vm)
}

// changeTask makes a new state of the task durable and reports it, however long that takes: what
// was done must not be done again.
func (a *Agent) changeTask(ctx context.Context, in *instance, edit func(*journal.Task)) error {
	return a.retryUntilDone(ctx, in, "saving how far a task is", func() error {
		return a.storeAndReport(in, func(s *journal.State) {
			t := *s.Task
			edit(&t)
			s.Task = &t
		})
	})
}

// failTask durably records that the task fails; the next step rolls it back.
func (a *Agent) failTask(ctx context.Context, in *instance, format string, args ...any) error {
	return a.failTaskWith(ctx, in,
		journal.TaskFailure{Message: firstBytes(fmt.Sprintf(format, args...), maxMessageBytes)})
}

func (a *Agent) failTaskWith(ctx context.Context, in *instance, f journal.TaskFailure) error {
	a.log.Warn("task failed", "instance_id", in.id, "reason", f.Message)
	err := a.changeTask(ctx, in, func(t *journal.Task) { t.Failure = &f })
	if err == nil {
		a.queueFailureLog(in, string(in.snapshot().Task.Order.Kind), f.Message)
	}
	return err
}

// endTask ends the task. Its files except the script's output are removed first, and with them its
// secrets.
func (a *Agent) endTask(ctx context.Context, in *instance, edit func(*journal.State, *journal.Task)) error {
	err := a.retryUntilDone(ctx, in, "ending a task", func() error {
		return a.storeAndReport(in, func(s *journal.State) {
			t := *s.Task
			edit(s, &t)
			t.Order, t.Saved = withoutSecrets(t.Order), nil
			s.Task = &t
		})
	})
	if err != nil {
		return err
	}
	a.log.Info("task finished", "instance_id", in.id, "stage", string(in.snapshot().Task.Stage))
	return nil
}

func withoutSecrets(o api.Order) api.Order {
	if o.Save != nil {
		save := *o.Save
		save.Script, o.Save = nil, &save
	}
	if o.Restart != nil {
		o.Restart = &api.RestartOrder{}
	}
	return o
}

// lostTaskReasons maps a phase to the reason why no task can be carried out in it.
var lostTaskReasons = map[api.Phase]string{
	api.PhaseScriptEnded: "The startup script failed",
	api.PhaseFailed:      "The VM was not started",
	api.PhaseStopped:     "The VM does not run",
	api.PhaseVanished:    "VM no longer exists on its node",
}

// failLostTask fails a task whose VM is gone or stopped.
func (a *Agent) failLostTask(ctx context.Context, in *instance, _ hv.VM) error {
	if err := a.removeSaveFiles(ctx, in); err != nil {
		return err
	}
	return a.endTask(ctx, in, func(s *journal.State, t *journal.Task) {
		f := journal.TaskFailure{Message: lostTaskReasons[s.Phase]}
		if t.Failure != nil {
			f = *t.Failure
		}
		if s.Message != "" && s.Message != f.Message {
			f.Message += ": " + s.Message
		}
		t.Stage, t.Failure = api.TaskFailed, &f
	})
}

// rollbackTask undoes a failed task: the VM runs again, and nothing else of the task is left.
func (a *Agent) rollbackTask(ctx context.Context, in *instance, vm hv.VM) error {
	if err := a.removeSaveFiles(ctx, in); err != nil {
		return err
	}
	t := in.snapshot().Task
	again, err := vm, error(nil)
	if stoppedBy(t) && vm.ID != "" {
		again, err = a.restartFromDisk(ctx, in, vm)
		if ctx.Err() != nil || in.ending.Err() != nil {
			return ctx.Err()
		}
	}
	return a.endTask(ctx, in, func(s *journal.State, t *journal.Task) {
		f := *t.Failure
		if again.ID != "" {
			s.VM = a.currentVMFacts(again, s.VM)
		}
		if err != nil {
			s.Phase = api.PhaseStopped
			s.Message = firstBytes("The VM was shut down to be saved and does not start again: "+err.Error(),
				maxMessageBytes)
			s.Failure = failurecause.Of(err, farm.StepSave)
			f.Message = firstBytes(f.Message+". "+s.Message, 2*maxMessageBytes)
		}
		t.Stage, t.Failure = api.TaskFailed, &f
	})
}

// stoppedBy reports whether a task may have stopped the VM.
func stoppedBy(t *journal.Task) bool {
	return t.Order.Kind == api.OrderSave && !t.Order.Save.Suspend &&
		(t.Stage == api.TaskSaving || t.Stage == api.TaskPushing)
}

const answerTimeout = 30 * time.Second // of a guest that is asked whether it responds

// restartFromDisk starts a VM from its disks, unless it runs.
func (a *Agent) restartFromDisk(ctx context.Context, in *instance, vm hv.VM) (hv.VM, error) {
	if vm.Status == hv.Running && a.completeVMStart(ctx, in) == nil {
		return vm, nil
	}
	restarter, able := a.opts.Driver.(hv.Restarter)
	if !able {
		return vm, errNoRestart
	}
	return a.restartWith(ctx, in, func(ctx context.Context) (hv.VM, error) {
		return restarter.Restart(ctx, in.id, nil)
	})
}

var errNoRestart = errors.New("the hypervisor driver of this node cannot restart VMs")

// restartWith runs do with a time limit and returns the resulting VM, also when do failed.
func (a *Agent) restartWith(ctx context.Context, in *instance, do func(context.Context) (hv.VM, error)) (hv.VM, error) {
	life, done := in.untilTermination(ctx)
	defer done()
	limited, cancel := context.WithTimeout(life, bootTimeout(in.order.Start)+startTimeoutMargin+stopTimeout)
	defer cancel()
	vm, err := do(limited)
	if err == nil || life.Err() != nil {
		return vm, err
	}
	ask, cancelAsk := context.WithTimeout(life, observeTimeout)
	defer cancelAsk()
	now, lost := a.opts.Driver.Get(ask, in.id)
	if lost != nil && !errors.Is(lost, hv.ErrNotFound) {
		err = errors.Join(err, lost)
	}
	return now, err
}

// completeVMStart completes the start of a VM during which an agent may have been killed: its guest answers,
// and it has its USB devices.
func (a *Agent) completeVMStart(ctx context.Context, in *instance) error {
	if err := a.checkGuestResponds(ctx, in, in.id); err != nil {
		return err
	}
	spec, err := a.vmSpec(in)
	if err != nil {
		return err
	}
	life, done := in.untilTermination(ctx)
	defer done()
	limited, cancel := context.WithTimeout(life, answerTimeout)
	defer cancel()
	_, err = a.opts.Driver.Start(limited, spec) // it runs: this completes its start
	return err
}

// checkGuestResponds asks a guest to run one program.
func (a *Agent) checkGuestResponds(ctx context.Context, in *instance, id string) error {
	life, done := in.untilTermination(ctx)
	defer done()
	limited, cancel := context.WithTimeout(life, answerTimeout)
	defer cancel()
	r, err := a.opts.Driver.Exec(limited, id, hv.Command{
		Path: "/bin/sh", Args: []string{"-c", ":"}, Timeout: answerTimeout, // macOS has no /bin/true
	})
	switch {
	case err != nil:
		return err
	case r.TimedOut:
		return fmt.Errorf("no response from the guest within %s", answerTimeout)
	case r.Code != 0:
		return fmt.Errorf("the check command in the guest failed with exit code %d", r.Code)
	}
	return nil
}

// saveDir returns the directory of a save: the output of its script, and in a subdirectory the
// files that the driver made. It returns "" when the task has no directory.
func (a *Agent) saveDir(t *journal.Task) string {
	if t == nil || t.Order.Kind != api.OrderSave || a.opts.SaveDir == "" || journal.CheckID(t.ID()) != nil {
		return ""
	}
	return filepath.Join(a.opts.SaveDir, t.ID())
}

func (a *Agent) saveFilesDir(t *journal.Task) string { return filepath.Join(a.saveDir(t), "files") }

// removeSaveFiles removes what a save made, except the output of its script.
func (a *Agent) removeSaveFiles(ctx context.Context, in *instance) error {
	t := in.snapshot().Task
	if a.saveDir(t) == "" {
		return nil
	}
	if err := a.removeTestVM(ctx, in, t); err != nil {
		return err
	}
	in.mu.Lock()
	keep := in.taskReport.scriptOutput != nil
	in.mu.Unlock()
	if keep {
		return os.RemoveAll(a.saveFilesDir(t))
	}
	return os.RemoveAll(a.saveDir(t))
}

// removeSaveDir removes everything that belongs to a save.
func (a *Agent) removeSaveDir(ctx context.Context, in *instance) error {
	t := in.snapshot().Task
	dir := a.saveDir(t)
	if dir == "" {
		return nil
	}
	return errors.Join(a.removeTestVM(ctx, in, t), os.RemoveAll(dir))
}

// recoverSaves reads the script output that an earlier agent stored, and removes directories without
// an instance.
func (a *Agent) recoverSaves(held []*instance) {
	known := map[string]bool{}
	for _, in := range held {
		t := in.snapshot().Task
		if dir := a.saveDir(t); dir != "" {
			known[filepath.Base(dir)] = true
			in.taskReport.scriptOutput = readOutput(dir, t.Script)
		}
	}
	list, err := os.ReadDir(a.opts.SaveDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) && a.opts.SaveDir != "" {
		a.log.Warn("listing leftover saves failed", "error", err)
	}
	for _, item := range list {
		if known[item.Name()] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(a.opts.SaveDir, item.Name())); err != nil {
			a.log.Warn("removing a leftover save failed", "save", item.Name(), "error", err)
		}
	}
}
