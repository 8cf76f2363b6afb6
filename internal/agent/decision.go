package agent

import "github.com/buildyard/buildyard/api"

// action is what a worker does next with its instance.
type action string

// The actions. Those that end a phase say which in their step (steps.go).
const (
	doPull        action = "pull"         // make the version present
	doStart       action = "start"        // start the VM, or wait for one that starts
	doDiscard     action = "discard"      // remove a VM that must not be there, then look again
	doScript      action = "script"       // run the startup script
	doUnknown     action = "unknown"      // a script began and nobody knows how it ended
	doHandle      action = "handle"       // carry out the handler of a failed script
	doTask        action = "task"         // go on with a save or a restart
	doTaskLost    action = "task-lost"    // fail a save or a restart: no VM is left to work on
	doNoteStopped action = "note-stopped" // the VM stopped by itself
	doNoteGone    action = "note-gone"    // the VM no longer exists
	doRest        action = "rest"         // nothing until something changes
	doRemove      action = "remove"       // remove the VM permanently
	doSettle      action = "settle"       // nothing is left: wait for the answer, then forget
)

// vmCondition is what the driver says of an instance's VM.
type vmCondition int

// What can be seen.
const (
	noVM vmCondition = iota
	vmUp
	vmDown
)

// scriptCondition is how far the startup script is.
type scriptCondition int

// The script's states.
const (
	noScript    scriptCondition = iota // none was ordered, or its outcome is known
	scriptDue                          // ordered and not begun
	scriptBegun                        // begun, and its outcome is not known
)

// taskCondition is what a save or a restart needs of the VM.
type taskCondition int

// The task's states.
const (
	noTask     taskCondition = iota // none was ordered, or it left the VM as it was
	taskDue                         // it needs the VM to run
	taskHolds                       // it continues whatever the VM does: it stopped it itself, or needs it no more
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

// The placeholders of the table: which action they are depends on the rest of the sight.
const (
	needVersion action = "?version" // doPull, or doStart when the version is present
	needScript  action = "?script"  // doScript, doUnknown, or needTask when there is none
	needTask    action = "?task"    // the rest are rows of tasks
	ifStopped   action = "?stopped"
	ifGone      action = "?gone"
	ifIdle      action = "?idle"
)

// table says what to do in each phase by what is seen of the VM, while nobody asked
// for the end.
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

// tasks says what to do by how a save or a restart stands.
var tasks = map[action][4]action{
	//         none           due            holds       served
	needTask:  {doRest, doTask, doTask, doRest},
	ifStopped: {doNoteStopped, doNoteStopped, doTask, doRest},
	ifGone:    {doNoteGone, doNoteGone, doTask, doRest},
	ifIdle:    {doRest, doTaskLost, doTaskLost, doRest},
}

// decide returns the next action. Termination beats everything, and the startup script
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
		return doRest // a newer program wrote it; its VM may be at work, and can be ended
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
