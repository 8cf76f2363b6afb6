package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/journal"
)

// errEnding ends a step whose instance was ordered to terminate meanwhile.
var errEnding = errors.New("the instance is ending")

// instance is one instance on this node. Its worker alone moves it from phase to
// phase; orders may only set its end.
type instance struct {
	id       string
	order    api.Order       // fixed
	alien    bool            // fixed: accepted under another identity; nobody hears of it
	ending   context.Context // is over when the instance is to go
	kill     context.CancelFunc
	wake     chan struct{}   // has a value when the worker shall look again
	tasked   context.Context // is over when a save or a restart was ordered
	noteTask context.CancelFunc
	alone    sync.WaitGroup // commands in the guest that the worker does not wait for

	mu       sync.Mutex // guards the fields below
	state    journal.State
	saved    int64   // state.No at the last durable write
	kept     bool    // the journal has the order
	dirty    bool    // state is an end that the journal does not have yet
	answered int64   // the last number that the controller answered
	progress float64 // 0..1, of the pull
	held     bool    // the running VM is not reported yet, see holdStarted
	task     taskReport
}

func newInstance(e journal.Entry) *instance {
	in := &instance{
		id: e.Order.InstanceID, order: e.Order, state: e.State, saved: e.State.No,
		wake: make(chan struct{}, 1),
	}
	in.ending, in.kill = context.WithCancel(context.Background())
	in.tasked, in.noteTask = context.WithCancel(context.Background())
	if in.state.Ending {
		in.kill()
	}
	if in.state.Task != nil {
		in.noteTask()
	}
	return in
}

// life returns a context that ends with ctx or when the instance is to go: what a
// termination cancels runs under it.
func (in *instance) life(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(in.ending, cancel)
	return ctx, func() { stop(); cancel() }
}

// whenEnding calls do when the instance is to go; the end of the agent alone is not that.
func (in *instance) whenEnding(do func()) {
	context.AfterFunc(in.ending, func() {
		if in.snapshot().Ending { // else only the worker ended
			do()
		}
	})
}

// wakeWorker makes the worker look again.
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

// status is what the controller is told. Not worth telling is the bare acceptance,
// which the acknowledgement says; an ending instance says nothing but its end; a
// silent one nothing at all.
func (in *instance) status() (status api.InstanceStatus, tell bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	s := api.InstanceStatus{
		InstanceID: in.id, Claim: in.state.Claim, No: in.state.No, Phase: in.state.Phase,
		Message: in.state.Message, VM: in.state.VM, Script: in.state.Script, Task: in.task.status(in.state.Task),
	}
	if s.Phase == api.PhasePulling {
		s.Progress = in.progress
	}
	over := s.Phase == api.PhaseTerminated
	held := in.held && s.Phase == api.PhaseRunning
	return s, !in.state.Silent && s.Phase != api.PhaseAccepted && !held && (over || !in.state.Ending)
}

// answer notes that the controller has a status. It says whether that was the refusal
// of a task, behind which the one that continues is to be told again.
func (in *instance) answer(sent api.InstanceStatus) (refusal bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.answered = max(in.answered, sent.No)
	if in.state.Phase == api.PhaseTerminated || in.needsCleanupLocked() {
		in.wakeWorker()
	}
	return in.task.answer(sent.Task)
}

// scriptState returns how far the startup script is.
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

// startedHold is how long a running VM is not reported while its monitored startup script may
// still fail: a client that stops polling at Started must not miss a script that fails at once.
const startedHold = 2 * time.Second

// holdStarted keeps the start of a VM from being reported until its monitored startup script has
// ended, but no longer than startedHold. A script that runs at boot is not waited for.
func (a *Agent) holdStarted(in *instance) {
	script := in.order.Start.Script
	if script == nil || !script.Monitoring || script.AtBoot {
		return
	}
	in.mu.Lock()
	in.held = true
	in.mu.Unlock()
	time.AfterFunc(startedHold, func() {
		in.mu.Lock()
		in.held = false
		in.mu.Unlock()
		a.out.mark(in.id)
	})
}

// change makes a new state durable and has it reported. Once the end was ordered,
// nothing but the end itself may be said any more.
func (a *Agent) change(in *instance, edit func(*journal.State)) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	next := in.state
	edit(&next)
	if in.state.Ending && next.Phase != api.PhaseTerminated {
		return errEnding
	}
	next.No++
	if err := a.saveLocked(in, next); err != nil {
		return err
	}
	a.out.mark(in.id)
	return nil
}

// mark makes a state durable that the controller need not hear of.
func (a *Agent) mark(in *instance, edit func(*journal.State)) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.state.Ending {
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

// writeLocked makes a state durable. What is over and was never in the journal
// needs no entry: an agent that knows nothing of it does it no harm.
func (a *Agent) writeLocked(in *instance, s journal.State) error {
	var err error
	switch {
	case in.kept:
		err = a.opts.Journal.Save(in.id, s)
	case s.Phase != api.PhaseTerminated:
		err = a.opts.Journal.Accept(a.entry(in.order, s))
		in.kept = err == nil
	}
	if err != nil {
		return err
	}
	in.saved, in.dirty = s.No, false
	return nil
}

// durable tries once more to write what could not be written before.
func (a *Agent) durable(in *instance) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.dirty {
		return nil
	}
	return a.writeLocked(in, in.state)
}

// over makes the end durable and has it reported, once the VM is gone. A disk that
// has no room for that still lets go of the entry, which says as much.
func (a *Agent) over(in *instance) error {
	end := func(s *journal.State) {
		s.Phase, s.Message, s.VM, s.Ending = api.PhaseTerminated, "", gone(s.VM), true
	}
	err := a.change(in, end)
	if err == nil {
		return nil
	}
	if removed := a.opts.Journal.Remove(in.id); removed != nil {
		return errors.Join(err, removed)
	}
	in.mu.Lock()
	in.kept = false
	in.mu.Unlock()
	return a.change(in, end)
}

// setProgress reports how far a pull is, without a durable write for each step.
func (a *Agent) setProgress(in *instance, at float64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.state.Phase == api.PhasePulling {
		a.advanceLocked(in, &in.progress, at)
	}
}

// advanceLocked notes a step of progress and has it reported.
func (a *Agent) advanceLocked(in *instance, progress *float64, at float64) {
	step := at >= *progress+0.01 || (at >= 1 && *progress < 1)
	if in.state.Ending || !step {
		return
	}
	if !journal.Reserved(in.state.No+1, in.saved) && a.saveLocked(in, in.state) != nil {
		return // the next step, or the end of the stage, says it too
	}
	in.state.No++
	*progress = at
	a.out.mark(in.id)
}

// end orders an instance away. claim, when given, is what the end is reported
// under; silent ends one that the controller disowned. The VM goes even when the
// order cannot be made durable, since a full disk may be full of that very VM; the
// error says that the order must not be acknowledged yet.
func (a *Agent) end(in *instance, claim string, silent bool) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	next := in.state
	next.Ending, next.Silent = true, silent
	if claim != "" {
		next.Claim = claim
	}
	if next.Ending != in.state.Ending || next.Silent != in.state.Silent || next.Claim != in.state.Claim {
		next.No++
		in.state, in.dirty = next, true
	}
	if next.Phase == api.PhaseTerminated {
		a.out.mark(in.id)
	}
	in.kill()
	in.wakeWorker()
	if !in.dirty {
		return nil
	}
	return a.writeLocked(in, next)
}
