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
	doNoteStopped action = "note-stopped" // the VM stopped by itself
	doNoteGone    action = "note-gone"    // the VM is not there any more
	doRest        action = "rest"         // nothing until something changes
	doRemove      action = "remove"       // remove the VM for good
	doSettle      action = "settle"       // nothing is left: wait for the answer, then forget
)

// vmSeen is what the driver says of an instance's VM.
type vmSeen int

// What can be seen. A suspended VM counts as down: part 1 starts none from a state.
const (
	noVM vmSeen = iota
	vmUp
	vmDown
)

// scriptSeen is how far the startup script is.
type scriptSeen int

// The script's states.
const (
	noScript    scriptSeen = iota // none was ordered, or its outcome is known
	scriptDue                     // ordered and not begun
	scriptBegun                   // begun, and its outcome is not known
)

// sight is everything that a decision depends on.
type sight struct {
	Phase  api.Phase
	VM     vmSeen
	Ending bool // a termination was ordered
	Cached bool // the version is present
	Script scriptSeen
}

// The placeholders of the table: which action they are depends on the rest of the sight.
const (
	needVersion action = "?version" // doPull, or doStart when the version is present
	needScript  action = "?script"  // doScript, doUnknown, or doRest when there is none
)

// table says what to do in each phase by what is seen of the VM, while nobody asked
// for the end.
var table = map[api.Phase][3]action{
	//                      no VM          VM up       VM down
	api.PhaseAccepted:     {needVersion, doDiscard, doDiscard},
	api.PhasePulling:      {needVersion, doDiscard, doDiscard},
	api.PhaseStarting:     {needVersion, doStart, doDiscard},
	api.PhaseRunning:      {doNoteGone, needScript, doNoteStopped},
	api.PhaseScriptOK:     {doNoteGone, doRest, doNoteStopped},
	api.PhaseScriptFailed: {doHandle, doHandle, doHandle},
	api.PhaseScriptEnded:  {doRest, doRest, doRest},
	api.PhaseFailed:       {doRest, doDiscard, doDiscard},
	api.PhaseStopped:      {doNoteGone, doRest, doRest},
	api.PhaseVanished:     {doRest, doRest, doRest},
	api.PhaseTerminated:   {doSettle, doRemove, doRemove},
}

// decide gives the next action. Termination beats everything.
func decide(s sight) action {
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
	switch a := row[s.VM]; a {
	case needVersion:
		if s.Cached {
			return doStart
		}
		return doPull
	case needScript:
		return [...]action{noScript: doRest, scriptDue: doScript, scriptBegun: doUnknown}[s.Script]
	default:
		return a
	}
}
