package farm

// Phase is what happens to an instance, in more detail than its state. The set is closed, and its names are part
// of the API.
type Phase string

// The phases.
const (
	PhaseQueued        Phase = "queued"         // waits for a node
	PhasePlaced        Phase = "placed"         // a node was chosen and has not begun yet
	PhasePulling       Phase = "pulling"        // the node pulls the template version
	PhaseBooting       Phase = "booting"        // the version is on the node, and the VM is created and boots
	PhaseStartupScript Phase = "startup_script" // the VM runs, and its monitored startup script has not ended
	PhaseRunning       Phase = "running"        // the VM runs
	PhaseRestarting    Phase = "restarting"     // the VM is ended by force and boots again
	PhaseSaving        Phase = "saving"         // the VM is saved as a version of a template
	PhaseStopping      Phase = "stopping"       // the VM stops, since its startup script failed
	PhaseStopped       Phase = "stopped"        // the VM is stopped
	PhaseTerminating   Phase = "terminating"    // the VM is removed
	PhaseTerminated    Phase = "terminated"     // nothing of the VM is left
	PhaseFailed        Phase = "failed"         // the instance is in Error
)

// Phases lists the phases, in the order in which they usually come.
var Phases = []Phase{
	PhaseQueued, PhasePlaced, PhasePulling, PhaseBooting, PhaseStartupScript, PhaseRunning, PhaseRestarting,
	PhaseSaving, PhaseStopping, PhaseStopped, PhaseTerminating, PhaseTerminated, PhaseFailed,
}

// phaseOfState maps each state to its phase as far as the state alone determines it.
var phaseOfState = map[InstanceState]Phase{
	Scheduling: PhaseQueued, Pulling: PhasePulling, Started: PhaseRunning, Stopping: PhaseStopping,
	Stopped: PhaseStopped, Terminating: PhaseTerminating, Terminated: PhaseTerminated, Errored: PhaseFailed,
	Pushing: PhaseSaving,
}

// Phase returns the phase of the instance.
func (i *Instance) Phase() Phase {
	switch {
	case i.State == Scheduling && !i.BootStarted.IsZero():
		return PhaseBooting
	case i.State == Scheduling && i.NodeID != "":
		return PhasePlaced
	case i.State == Started && i.Task != nil && i.Task.Kind == TaskRestart:
		return PhaseRestarting
	case i.State == Started && i.runsStartupScript():
		return PhaseStartupScript
	default:
		return phaseOfState[i.State]
	}
}

// PhaseTransition is a transition with the phase that began with it.
type PhaseTransition struct {
	Transition
	Phase Phase
}

// WithPhases adds the phases to the transitions of an instance. booted is when its VM began to boot: on a node
// that already had the template version that is not a change of state, so an entry is added for it.
func WithPhases(list []Transition, booted int64) []PhaseTransition {
	out := make([]PhaseTransition, 0, len(list)+1)
	afterPull, added := false, booted <= 0
	if !added && (len(list) == 0 || list[0].At > booted) { // its first state, Scheduling, is not recorded
		out = append(out, PhaseTransition{Transition{State: Scheduling, At: booted}, PhaseBooting})
		added = true
	}
	for n, t := range list {
		phase := phaseOfState[t.State]
		if t.State == Scheduling && afterPull {
			phase, added = PhaseBooting, true
		}
		afterPull = t.State == Pulling
		out = append(out, PhaseTransition{t, phase})
		isLast := n == len(list)-1 || list[n+1].At > booted
		if !added && t.State == Scheduling && booted >= t.At && isLast {
			out = append(out, PhaseTransition{Transition{State: Scheduling, At: booted}, PhaseBooting})
			added = true
		}
	}
	return out
}
