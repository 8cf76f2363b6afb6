package agent

import "github.com/buildyard/buildyard/api"

// action is what a worker does next with its instance.
type action string

// The actions. Those that end a phase define the next one in their step (actions.go).
const (
	doPull               action = "pull"         // make the version present
	doStart              action = "start"        // start the VM, or wait for one that starts
	doDiscard            action = "discard"      // remove a VM that must not exist, then observe again
	doScript             action = "script"       // run the startup script
	doConcludeLostScript action = "unknown"      // a script began and its result is unknown
	doFailHandler        action = "handle"       // carry out the handler of a failed script
	doTask               action = "task"         // continue with a save or a restart
	doTaskLost           action = "task-lost"    // fail a save or a restart: no VM is left to work on
	doRecordStopped      action = "note-stopped" // the VM stopped without a request
	doRecordGone         action = "note-gone"    // the VM no longer exists
	doWait               action = "rest"         // nothing until something changes
	doRemove             action = "remove"       // remove the VM permanently
	doAwaitEndAck        action = "settle"       // nothing is left: wait for the controller's response, then forget
)

// vmCondition is the state of an instance's VM as the driver reports it.
type vmCondition int

// The conditions of a VM.
const (
	noVM vmCondition = iota
	vmUp
	vmDown
)

// scriptCondition is the progress of the startup script.
type scriptCondition int

// The script's states.
const (
	noScript    scriptCondition = iota // none was ordered, or its result is known
	scriptDue                          // ordered and not begun
	scriptBegun                        // begun, and its result is not known
)

// taskCondition describes what a save or a restart needs of the VM.
type taskCondition int

// The task's states.
const (
	noTask        taskCondition = iota // none was ordered, or it left the VM as it was
	taskNeedsVM                        // it needs the VM to run
	taskIgnoresVM                      // it continues whatever the VM does: it stopped the VM, or no longer needs it
	taskSaveDone                       // a save is done: the VM only waits for its end
)

// observation is everything that a decision depends on.
type observation struct {
	Phase     api.Phase
	VM        vmCondition
	Ending    bool // a termination was ordered
	Startable bool // the version is present, or enough of it
	Script    scriptCondition
	Task      taskCondition
}

// The placeholders of the table: the rest of the observation decides which action they are.
const (
	resolveVersion action = "?version" // doPull, or doStart when the version is present
	resolveScript  action = "?script"  // doScript, doConcludeLostScript, or resolveTask when there is none
	resolveTask    action = "?task"    // the rest are rows of tasks
	resolveStopped action = "?stopped"
	resolveGone    action = "?gone"
	resolveIdle    action = "?idle"
)

// phaseActions maps a phase and the state of the VM to an action, while no termination is ordered.
var phaseActions = map[api.Phase][3]action{
	//                      no VM          VM up       VM down
	api.PhaseAccepted:     {resolveVersion, doDiscard, doDiscard},
	api.PhasePulling:      {resolveVersion, doDiscard, doDiscard},
	api.PhaseStarting:     {resolveVersion, doStart, doDiscard},
	api.PhaseRunning:      {resolveGone, resolveScript, resolveStopped},
	api.PhaseScriptOK:     {resolveGone, resolveTask, resolveStopped},
	api.PhaseScriptFailed: {doFailHandler, doFailHandler, doFailHandler},
	api.PhaseScriptEnded:  {resolveIdle, resolveIdle, resolveIdle},
	api.PhaseFailed:       {resolveIdle, doDiscard, doDiscard},
	api.PhaseStopped:      {doRecordGone, resolveIdle, resolveIdle},
	api.PhaseVanished:     {resolveIdle, resolveIdle, resolveIdle},
	api.PhaseTerminated:   {doAwaitEndAck, doRemove, doRemove},
}

// taskActions resolves placeholders by the condition of a save or a restart.
var taskActions = map[action][4]action{
	//         none           due            holds       served
	resolveTask:    {doWait, doTask, doTask, doWait},
	resolveStopped: {doRecordStopped, doRecordStopped, doTask, doWait},
	resolveGone:    {doRecordGone, doRecordGone, doTask, doWait},
	resolveIdle:    {doWait, doTaskLost, doTaskLost, doWait},
}

// decideAction returns the next action. Termination has priority over everything, and the startup script
// comes before a task.
func decideAction(s observation) action {
	if s.Ending {
		if s.Phase == api.PhaseTerminated && s.VM == noVM {
			return doAwaitEndAck
		}
		return doRemove
	}
	row, known := phaseActions[s.Phase]
	if !known {
		return doWait // a newer version wrote it; its VM may be working, and can be terminated
	}
	next := row[s.VM]
	switch {
	case next == resolveVersion && s.Startable:
		return doStart
	case next == resolveVersion:
		return doPull
	case next == resolveScript:
		next = [...]action{noScript: resolveTask, scriptDue: doScript, scriptBegun: doConcludeLostScript}[s.Script]
	}
	if row, depends := taskActions[next]; depends {
		return row[s.Task]
	}
	return next
}
