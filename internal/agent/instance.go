package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/journal"
)

// errEnding ends a step whose instance was ordered to terminate in the meantime.
var errEnding = errors.New("the instance is terminating")

// instance is one instance on this node. Only its worker moves it from phase to phase; orders may
// only set its end.
type instance struct {
	id                 string
	order              api.Order       // fixed
	foreign            bool            // fixed: accepted under another identity and never reported
	ending             context.Context // done when the instance is to be terminated
	cancelEnding       context.CancelFunc
	wake               chan struct{}   // has a value when the worker is to observe again
	taskOrdered        context.Context // done when a save or a restart was ordered
	signalTask         context.CancelFunc
	backgroundCommands *sync.WaitGroup // commands in the guest that the worker does not wait for
	left               chan struct{}   // closed when its worker has ended

	mu              sync.Mutex // guards the fields below
	state           journal.State
	takenOver       bool    // a start took its VM over: state is final, and another instance has its id
	journaledNumber int64   // state.No at the last durable write
	journaled       bool    // the journal has the order
	endNotJournaled bool    // state is an end that the journal does not have yet
	ackedNumber     int64   // the last number that the controller acknowledged
	pullProgress    float64 // 0..1, of the pull
	startHeld       bool    // the running VM is not reported yet, see holdStarted
	loss            error   // why its VM was ended before a complete template; nil: it was not
	taskReport      taskReport
	scriptOutput    scriptOutput
	shell           *waitingShell // of a standby; nil: none, or a script runs in it
}

// scriptOutput is what a startup script that runs has printed so far. The instance's mu guards it.
type scriptOutput struct {
	latest   api.ScriptOutput
	reported *api.ScriptOutput // what statuses have; nil: nothing. Its target is never changed
}

func newInstance(e journal.Entry) *instance {
	in := &instance{
		id: e.Order.InstanceID, order: e.CurrentOrder(), state: e.State, journaledNumber: e.State.Number,
		wake: make(chan struct{}, 1), left: make(chan struct{}), backgroundCommands: new(sync.WaitGroup),
	}
	in.ending, in.cancelEnding = context.WithCancel(context.Background())
	in.taskOrdered, in.signalTask = context.WithCancel(context.Background())
	if in.state.Ending {
		in.cancelEnding()
	}
	if in.state.Task != nil {
		in.signalTask()
	}
	return in
}

// untilTermination returns a context that ends with ctx or when the instance is to be terminated. It is for
// work that a termination cancels.
func (in *instance) untilTermination(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(in.ending, cancel)
	return ctx, func() { stop(); cancel() }
}

// onTermination calls do when the instance is to be terminated, but not when only the agent ends.
func (in *instance) onTermination(do func()) {
	context.AfterFunc(in.ending, func() {
		if in.snapshot().Ending { // otherwise only the worker ended
			do()
		}
	})
}

// wakeWorker makes the worker observe again.
func (in *instance) wakeWorker() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// snapshot copies the state.
func (in *instance) snapshot() journal.State {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.state
}

// status returns the status to report, and whether to report it. The mere acceptance is not
// reported, since the acknowledgement implies it; an ending instance reports only its end, and a
// silent one nothing.
func (in *instance) status() (status api.InstanceStatus, tell bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	s := api.InstanceStatus{
		InstanceID: in.id, Claim: in.state.Claim, No: in.state.Number, Phase: in.state.Phase,
		Message: in.state.Message, Failure: in.state.Failure, VM: in.state.VM, Script: in.state.Script,
		Task: in.taskReport.status(in.state.Task),
	}
	if s.Phase == api.PhasePulling {
		s.Progress = in.pullProgress
	}
	if s.Phase == api.PhaseRunning && s.Script == nil {
		s.ScriptOutput = in.scriptOutput.reported
	}
	over := s.Phase == api.PhaseTerminated
	held := in.startHeld && s.Phase == api.PhaseRunning
	return s, !in.state.Silent && s.Phase != api.PhaseAccepted && !held && (over || !in.state.Ending)
}

// recordAck records that the controller received a status. It reports whether that was the refusal of
// a task, after which the status of the running task must be sent again.
func (in *instance) recordAck(sent api.InstanceStatus) (refusal bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ackedNumber = max(in.ackedNumber, sent.No)
	if in.state.Phase == api.PhaseTerminated || in.needsTaskCleanupLocked() {
		in.wakeWorker()
	}
	return in.taskReport.recordAck(sent.Task)
}

// scriptState returns the condition of the startup script.
func (in *instance) scriptState(s journal.State) scriptCondition {
	switch {
	case in.order.Start == nil || in.order.Start.Script == nil || s.Script != nil:
		return noScript
	case s.ScriptBegun:
		return scriptBegun
	default:
		return scriptDue
	}
}

// startedHoldTime is how long a running VM is not reported while its monitored startup script may still
// fail: a client that stops polling at Started must not miss a script that fails immediately.
const startedHoldTime = 2 * time.Second

// holdStarted delays the report of a VM's start until its monitored startup script has ended, but
// at most by startedHoldTime. A script that runs at boot does not delay it.
func (a *Agent) holdStarted(in *instance) {
	script := in.order.Start.Script
	if script == nil || !script.Monitoring || script.AtBoot {
		return
	}
	in.mu.Lock()
	in.startHeld = true
	in.mu.Unlock()
	time.AfterFunc(startedHoldTime, func() {
		in.mu.Lock()
		in.startHeld = false
		in.mu.Unlock()
		a.outbox.add(in.id)
	})
}

// storeAndReport makes a new state durable and reports it. Once the termination was ordered, only the end
// itself may be reported.
func (a *Agent) storeAndReport(in *instance, edit func(*journal.State)) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	next := in.state
	edit(&next)
	if in.takenOver || in.state.Ending && next.Phase != api.PhaseTerminated {
		return errEnding
	}
	next.Number++
	if err := a.saveLocked(in, next); err != nil {
		return err
	}
	a.outbox.add(in.id)
	return nil
}

// storeState makes a state durable that need not be reported to the controller.
func (a *Agent) storeState(in *instance, edit func(*journal.State)) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.takenOver || in.state.Ending {
		return errEnding
	}
	next := in.state
	edit(&next)
	return a.saveLocked(in, next)
}

func (a *Agent) saveLocked(in *instance, next journal.State) error {
	if err := a.writeLocked(in, next); err != nil {
		return err
	}
	in.state = next
	return nil
}

// writeLocked makes a state durable. An ended instance that was never in the journal needs no
// entry: an agent that does not know it does it no harm.
func (a *Agent) writeLocked(in *instance, s journal.State) error {
	var err error
	switch {
	case in.journaled:
		err = a.opts.Journal.Save(in.id, s)
	case s.Phase != api.PhaseTerminated:
		err = a.opts.Journal.Accept(a.journalEntry(in.order, s))
		in.journaled = err == nil
	}
	if err != nil {
		return err
	}
	in.journaledNumber, in.endNotJournaled = s.Number, false
	return nil
}

// retryJournalWrite retries a write that failed before.
func (a *Agent) retryJournalWrite(in *instance) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.endNotJournaled {
		return nil
	}
	return a.writeLocked(in, in.state)
}

// recordEnd makes the end durable and reports it, once the VM is gone. If the disk has no free space for
// that, it removes the journal entry, which has the same effect.
func (a *Agent) recordEnd(in *instance) error {
	end := func(s *journal.State) {
		s.Phase, s.Message, s.VM, s.Ending = api.PhaseTerminated, "", factsOfGoneVM(s.VM), true
	}
	err := a.storeAndReport(in, end)
	if err == nil {
		return nil
	}
	if removed := a.opts.Journal.Remove(in.id); removed != nil {
		return errors.Join(err, removed)
	}
	in.mu.Lock()
	in.journaled = false
	in.mu.Unlock()
	return a.storeAndReport(in, end)
}

// setProgress reports the progress of a pull, without a durable write for each step.
func (a *Agent) setProgress(in *instance, at float64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.state.Phase == api.PhasePulling {
		a.advanceLocked(in, &in.pullProgress, at)
	}
}

// advanceLocked records a step of progress and reports it.
func (a *Agent) advanceLocked(in *instance, progress *float64, at float64) {
	step := at >= *progress+0.01 || (at >= 1 && *progress < 1)
	if in.takenOver || in.state.Ending || !step {
		return
	}
	if !a.nextNumberLocked(in) {
		return // the next step, or the end of the stage, reports it, too
	}
	*progress = at
	a.outbox.add(in.id)
}

// nextNumberLocked increments the number of the status without a durable write, unless none is reserved. It reports
// whether that succeeded.
func (a *Agent) nextNumberLocked(in *instance) bool {
	if !journal.IsNumberReserved(in.state.Number+1, in.journaledNumber) && a.saveLocked(in, in.state) != nil {
		return false
	}
	in.state.Number++
	return true
}

// orderTermination orders the termination of an instance. claim, when set, is the claim under which the end is
// reported; silent ends an instance that the controller disowned. The VM is removed even when the
// order cannot be made durable, since the disk may be full due to that very VM; the order must not
// be acknowledged while end returns an error.
func (a *Agent) orderTermination(in *instance, claim string, silent bool) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	next := in.state
	next.Ending, next.Silent = true, silent
	if claim != "" {
		next.Claim = claim
	}
	if next.Ending != in.state.Ending || next.Silent != in.state.Silent || next.Claim != in.state.Claim {
		next.Number++
		in.state, in.endNotJournaled = next, true
	}
	if next.Phase == api.PhaseTerminated {
		a.outbox.add(in.id)
	}
	in.cancelEnding()
	in.wakeWorker()
	if !in.endNotJournaled {
		return nil
	}
	return a.writeLocked(in, next)
}
