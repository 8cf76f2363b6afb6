package instancestatus

import (
	"cmp"
	"fmt"
	"reflect"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/nodeinput"
	"github.com/buildyard/buildyard/internal/farm"
)

// state is an instance with the request of its running save, as they were read; save is nil without
// one.
type state struct {
	inst *farm.Instance
	save *farm.SaveRequest

	rev, saveRev int64
}

// phaseEvents maps a node's phase to the events of an instance. A phase includes the events of
// those before it, since reports in between may have been lost or merged; events that an instance
// already had do nothing.
var phaseEvents = map[api.Phase][]farm.InstanceEvent{
	api.PhaseAccepted:   nil,
	api.PhasePulling:    {farm.PullProgress},
	api.PhaseStarting:   {farm.Pulled},
	api.PhaseRunning:    {farm.VMStarted},
	api.PhaseScriptOK:   {farm.VMStarted, farm.ScriptOK},
	api.PhaseFailed:     {farm.StartFailed},
	api.PhaseStopped:    {farm.VMStarted, farm.VMStoppedEvent},
	api.PhaseVanished:   {farm.VMStarted, farm.VMVanished},
	api.PhaseTerminated: {farm.TerminatedEvent},
}

// endPhases are the phases in which a node has nothing left of an instance.
var endPhases = map[api.Phase]bool{api.PhaseFailed: true, api.PhaseVanished: true, api.PhaseTerminated: true}

// eventsOf returns the events of a status for an instance. A failed script depends on its handler;
// a termination that was not requested is a VM that vanished.
func eventsOf(inst *farm.Instance, status api.InstanceStatus) []farm.InstanceEvent {
	failed := farm.ScriptFailed(inst.Options.ScriptOnFailure)
	switch {
	case status.Phase == api.PhaseScriptFailed:
		return []farm.InstanceEvent{farm.VMStarted, failed}
	case status.Phase == api.PhaseScriptEnded:
		return []farm.InstanceEvent{farm.VMStarted, failed, farm.ScriptStopped}
	case status.Phase == api.PhaseTerminated && inst.State != farm.Terminating:
		return phaseEvents[api.PhaseVanished]
	default:
		return phaseEvents[status.Phase]
	}
}

// Apply returns an instance that works on no save after a status of its node; the same record when the
// status changes nothing.
func Apply(inst *farm.Instance, status api.InstanceStatus, now time.Time) *farm.Instance {
	return apply(state{inst: inst}, status, now).inst
}

// apply returns an instance and its save after a status of its node; the same records when the status
// changes nothing. A final status is accepted whatever its number: a node that lost its
// journal counts from the start again. The result of a task is applied before the phase: a save
// that failed leads back to Started, and only from there to the state of the phase.
func apply(s state, status api.InstanceStatus, now time.Time) state {
	inst := s.inst
	earlier := status.No <= inst.StatusNumber && status.Phase != api.PhaseTerminated
	if earlier || inst.State == farm.Terminated {
		return s
	}
	n := inst.Clone()
	n.StatusNumber, n.Updated = max(status.No, inst.StatusNumber), now
	if status.VM != nil {
		n.VM = nodeinput.VMInfo(status.VM, n.VM)
	}
	if status.Script != nil {
		n.Script, n.ScriptOutput = nodeinput.ScriptResult(status.Script), nil
	} else if status.ScriptOutput != nil && n.Script == nil {
		n.ScriptOutput = nodeinput.ScriptOutput(status.ScriptOutput)
	}
	next := state{inst: n, save: s.save}
	if endPhases[status.Phase] {
		n.StartAborted = false
	}
	if status.Task != nil {
		next.applyTask(*status.Task, now)
	}
	for _, event := range eventsOf(n, status) {
		to, ok := farm.NextInstanceState(n.State, event)
		if !ok {
			continue
		}
		if to == farm.Errored && n.State != farm.Errored {
			n.Failure = failureOf(n, event, status)
		}
		n.EnterState(to, now)
		applyEvent(n, event, status, now)
	}
	n.FinishTask()
	next.save = next.save.AfterInstance(n, now)
	if next.save == s.save && isUnchanged(inst, n) {
		return s
	}
	return next
}

// defaultFailures are the failures of events for which a node has reported none. An empty step is that of the
// instance.
var defaultFailures = map[farm.InstanceEvent]farm.Failure{
	farm.StartFailed:        {Class: farm.FailureUnknown},
	farm.ScriptFailedKeep:   {Class: farm.FailureStartupScript, Step: farm.StepStartupScript},
	farm.ScriptFailedDelete: {Class: farm.FailureStartupScript, Step: farm.StepStartupScript},
	farm.ScriptStopped:      {Class: farm.FailureStartupScript, Step: farm.StepStartupScript},
	farm.VMStoppedEvent:     {Class: farm.FailureGuestStopped},
	farm.VMVanished:         {Class: farm.FailureVMLost},
}

// failureOf returns why an event puts an instance into Error: what its node reports, or what follows from the event
// for a node whose agent reports none. A script that failed has the class of a script whatever ended its VM.
func failureOf(n *farm.Instance, event farm.InstanceEvent, status api.InstanceStatus) *farm.Failure {
	f := defaultFailures[event]
	f.Class, f.Step = cmp.Or(f.Class, farm.FailureUnknown), cmp.Or(f.Step, n.CurrentStep())
	if status.Failure == nil || f.Class == farm.FailureStartupScript {
		return &f
	}
	return farm.ReportedFailure(status.Failure.Class, status.Failure.Step, f.Step)
}

// isUnchanged reports whether two records differ in nothing but the status number and the time,
// which alone do not justify a write.
func isUnchanged(a, b *farm.Instance) bool {
	if a.State != b.State {
		return false
	}
	x := b.Clone()
	x.StatusNumber, x.Updated = a.StatusNumber, a.Updated
	return reflect.DeepEqual(a, x)
}

// applyEvent changes the fields that depend on an event.
func applyEvent(n *farm.Instance, event farm.InstanceEvent, status api.InstanceStatus, now time.Time) {
	switch event {
	case farm.PullProgress:
		n.PullProgress, n.Message, n.BootStarted = min(max(status.Progress, 0), 1), "", time.Time{}
	case farm.Pulled:
		if n.BootStarted.IsZero() {
			n.BootStarted = now
		}
		if n.PullProgress > 0 { // else it was cached on the node: no progress to report
			n.PullProgress = 1
		}
	case farm.VMStarted:
		if n.Started.IsZero() {
			n.Started = now
		}
		n.PullProgress, n.Message = 1, ""
	case farm.ScriptFailedStop, farm.ScriptFailedKeep, farm.ScriptFailedDelete:
		n.Message = scriptMessage(n.Script, status.Message)
	case farm.StartFailed:
		n.Message, n.VM = cmp.Or(status.Message, "The VM could not be started"), nil
	case farm.VMStoppedEvent:
		n.Message = cmp.Or(status.Message, "The VM stopped without being asked to")
		markVM(n, farm.VMStopped, now)
	case farm.VMVanished:
		n.Message = cmp.Or(n.Message, status.Message, "VM no longer exists on its node")
		markVM(n, farm.VMDeleted, now)
	case farm.TerminatedEvent:
		n.Finished = now
		markVM(n, farm.VMDeleted, now)
	}
}

func scriptMessage(r *farm.ScriptResult, message string) string {
	if message != "" || r == nil {
		return cmp.Or(message, "startup script failed")
	}
	return fmt.Sprintf("startup script exit code %d", r.ExitCode)
}

func markVM(n *farm.Instance, status farm.VMStatus, now time.Time) {
	if n.VM == nil || n.VM.Status == status {
		return
	}
	vm := *n.VM
	vm.Status = status
	if vm.Stopped.IsZero() || vm.Stopped.Before(vm.Started) {
		vm.Stopped = now
	}
	n.VM = &vm
}
