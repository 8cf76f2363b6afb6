package farm

// InstanceEvent moves an instance.
type InstanceEvent string

// The instance events. A failed script is three events, one per fail handler, and ScriptStopped is
// the end of the stop that handler 0 requests.
const (
	Placed             InstanceEvent = "placed"
	PullProgress       InstanceEvent = "pull-progress"
	Pulled             InstanceEvent = "pulled"
	VMStarted          InstanceEvent = "started"
	StartFailed        InstanceEvent = "start-failed"
	ScriptOK           InstanceEvent = "script-ok"
	ScriptFailedStop   InstanceEvent = "script-failed(stop)"
	ScriptFailedKeep   InstanceEvent = "script-failed(keep)"
	ScriptFailedDelete InstanceEvent = "script-failed(delete)"
	ScriptStopped      InstanceEvent = "script-stopped"
	VMStoppedEvent     InstanceEvent = "vm-stopped"
	VMVanished         InstanceEvent = "vm-vanished"
	NodeLost           InstanceEvent = "node-lost"
	NodeBack           InstanceEvent = "node-back"
	SaveBegun          InstanceEvent = "save-begun"
	SaveDone           InstanceEvent = "save-done"
	SaveFailed         InstanceEvent = "save-failed"
	Restart            InstanceEvent = "restart"
	Restarted          InstanceEvent = "restarted"
	Terminate          InstanceEvent = "terminate"
	TerminatedEvent    InstanceEvent = "terminated"
	Expired            InstanceEvent = "expired"
)

// InstanceEvents lists every instance event.
var InstanceEvents = []InstanceEvent{
	Placed, PullProgress, Pulled, VMStarted, StartFailed, ScriptOK, ScriptFailedStop,
	ScriptFailedKeep, ScriptFailedDelete, ScriptStopped, VMStoppedEvent, VMVanished,
	NodeLost, NodeBack, SaveBegun, SaveDone, SaveFailed, Restart, Restarted,
	Terminate, TerminatedEvent, Expired,
}

// instanceTransitions holds every edge of an instance's life. A pair that is absent is
// void: the event means nothing in that state (it is late, repeated or beaten by a
// termination) and changes nothing. An edge to the same state is an event that
// belongs there and changes other fields of the record.
//
// Termination wins over everything: no edge leaves Terminating but to Terminated.
var instanceTransitions = map[InstanceState]map[InstanceEvent]InstanceState{
	Scheduling: {
		Placed: Scheduling, PullProgress: Pulling, Pulled: Scheduling,
		VMStarted: Started, StartFailed: Errored,
		NodeLost: Scheduling, NodeBack: Scheduling,
		Terminate: Terminating, Expired: Errored,
	},
	Pulling: {
		PullProgress: Pulling, Pulled: Scheduling, VMStarted: Started, StartFailed: Errored,
		NodeLost: Pulling, NodeBack: Pulling,
		Terminate: Terminating, Expired: Errored,
	},
	Started: {
		ScriptOK: Started, ScriptFailedStop: Stopping, ScriptFailedKeep: Errored, ScriptFailedDelete: Errored,
		VMStoppedEvent: Errored, VMVanished: Errored,
		NodeLost: Started, NodeBack: Started,
		SaveBegun: Pushing, Restart: Started, Restarted: Started,
		Terminate: Terminating, Expired: Errored,
	},
	Stopping: {
		ScriptStopped: Errored, VMStoppedEvent: Stopped, VMVanished: Errored,
		NodeLost: Stopping, NodeBack: Stopping,
		Terminate: Terminating, Expired: Errored,
	},
	Stopped: {
		VMVanished: Errored, NodeLost: Stopped, NodeBack: Stopped,
		SaveBegun: Pushing, VMStarted: Started,
		Terminate: Terminating, Expired: Errored,
	},
	Pushing: {
		VMVanished: Errored, NodeLost: Pushing, NodeBack: Pushing,
		SaveDone: Terminating, SaveFailed: Started,
		Terminate: Terminating, Expired: Errored,
	},
	Errored: {
		VMStoppedEvent: Errored, VMVanished: Errored, NodeLost: Errored, NodeBack: Errored,
		Terminate: Terminating,
	},
	Terminating: {
		NodeLost: Terminating, NodeBack: Terminating, TerminatedEvent: Terminated,
	},
	Terminated: {
		Expired: InstanceRemoved,
	},
}

// NextInstanceState returns the state of an instance after an event; ok is false when
// the event is void in that state and nothing changes.
func NextInstanceState(s InstanceState, e InstanceEvent) (to InstanceState, ok bool) {
	to, ok = instanceTransitions[s][e]
	if !ok {
		return s, false
	}
	return to, true
}

// ScriptFailed returns the event of a monitored script that failed, by its handler.
func ScriptFailed(h ScriptFailureAction) InstanceEvent {
	switch h {
	case KeepVM:
		return ScriptFailedKeep
	case DeleteVM:
		return ScriptFailedDelete
	default:
		return ScriptFailedStop
	}
}

// SaveStatus is the state of a save-image request.
type SaveStatus string

// The save-request states.
const (
	SavePending   SaveStatus = "pending"
	SaveSucceeded SaveStatus = "done"
	SaveError     SaveStatus = "error"
)

// SaveStatuses lists every save-request state.
var SaveStatuses = []SaveStatus{SavePending, SaveSucceeded, SaveError}

// NextSaveState returns the state of a save request after an event; ok is false when the
// event is void there. A request that ended never moves again.
func NextSaveState(s SaveStatus, e InstanceEvent) (to SaveStatus, ok bool) {
	if s != SavePending {
		return s, false
	}
	switch e {
	case SaveBegun:
		return SavePending, true
	case SaveDone:
		return SaveSucceeded, true
	case SaveFailed, Terminate, VMVanished, Expired:
		return SaveError, true
	default:
		return s, false
	}
}
