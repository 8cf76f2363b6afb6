package agent

import "github.com/buildyard/buildyard/api"

// action is what a worker does next with its instance.
type action string

// The actions. Those that end a phase define the next one in their step (actions.go).
const (
	doPull        action = "pull"         // make the version present
	doStart       action = "start"        // start the VM, or wait for one that starts
	doDiscard     action = "discard"      // remove a VM that must not exist, then observe again
	doScript      action = "script"       // run the startup script
	doUnknown     action = "unknown"      // a script began and its result is unknown
	doHandle      action = "handle"       // carry out the handler of a failed script
	doTask        action = "task"         // continue with a save or a restart
	doTaskLost    action = "task-lost"    // fail a save or a restart: no VM is left to work on
	doNoteStopped action = "note-stopped" // the VM stopped without a request
	doNoteGone    action = "note-gone"    // the VM no longer exists
	doRest        action = "rest"         // nothing until something changes
	doRemove      action = "remove"       // remove the VM permanently
	doSettle      action = "settle"       // nothing is left: wait for the controller's response, then forget
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
	noTask     taskCondition = iota // none was ordered, or it left the VM as it was
	taskDue                         // it needs the VM to run
	taskHolds                       // it continues whatever the VM does: it stopped the VM, or no longer needs it
	taskServed                      // a save is done: the VM only waits for its end
)

// observation is everything that a decision depends on.
type observation struct {
	Phase  api.Phase
	VM     vmCondition
	Ending bool // a termination was ordered
	Cached bool // the version is present
	Script scriptCondition
	Task   taskCondition
}

// The placeholders of the table: the rest of the observation decides which action they are.
const (
	needVersion action = "?version" // doPull, or doStart when the version is present
	needScript  action = "?script"  // doScript, doUnknown, or needTask when there is none
	needTask    action = "?task"    // the rest are rows of tasks
	ifStopped   action = "?stopped"
	ifGone      action = "?gone"
	ifIdle      action = "?idle"
)

// table maps a phase and the state of the VM to an action, while no termination is ordered.
var table = map[api.Phase][3]action{
	//                      no VM          VM up       VM down
	api.PhaseAccepted:     {needVersion, doDiscard, doDiscard},
	api.PhasePulling:      {needVersion, doDiscard, doDiscard},
	api.PhaseStarting:     {needVersion, doStart, doDiscard},
	api.PhaseRunning:      {ifGone, needScript, ifStopped},
	api.PhaseScriptOK:     {ifGone, needTask, ifStopped},
	api.PhaseScriptFailed: {doHandle, doHandle, doHandle},
	api.PhaseScriptEnded:  {ifIdle, ifIdle, ifIdle},
	api.PhaseFailed:       {ifIdle, doDiscard, doDiscard},
	api.PhaseStopped:      {doNoteGone, ifIdle, ifIdle},
	api.PhaseVanished:     {ifIdle, ifIdle, ifIdle},
	api.PhaseTerminated:   {doSettle, doRemove, doRemove},
}

// tasks resolves placeholders by the condition of a save or a restart.
var tasks = map[action][4]action{
	//         none           due            holds       served
	needTask:  {doRest, doTask, doTask, doRest},
	ifStopped: {doNoteStopped, doNoteStopped, doTask, doRest},
	ifGone:    {doNoteGone, doNoteGone, doTask, doRest},
	ifIdle:    {doRest, doTaskLost, doTaskLost, doRest},
}

// decide returns the next action. Termination has priority over everything, and the startup script
// comes before a task.
func decide(s observation) action {
	if s.Ending {
		if s.Phase == api.PhaseTerminated && s.VM == noVM {
			return doSettle
		}
		return doRemove
	}
	row, known := table[s.Phase]
	if !known {
		return doRest // a newer version wrote it; its VM may be working, and can be terminated
	}
	next := row[s.VM]
	switch {
	case next == needVersion && s.Cached:
		return doStart
	case next == needVersion:
		return doPull
	case next == needScript:
		next = [...]action{noScript: needTask, scriptDue: doScript, scriptBegun: doUnknown}[s.Script]
	}
	if row, depends := tasks[next]; depends {
		return row[s.Task]
	}
	return next
}
