package farm

import (
	"encoding/json"
	"maps"
	"time"
)

// EventsDropped is a Buildyard event: Extra has in "count" how many events were dropped because
// they could not be delivered, and in "target" by which target.
const EventsDropped EventName = "EventsDropped"

// EventNodeDrained is a Buildyard event: nothing is left on a node that is drained.
const EventNodeDrained EventName = "NodeDrained"

// EventAudit is a Buildyard event: a caller made a change that no other event reports. Extra has
// the caller, the credential and the route.
const EventAudit EventName = "Audit"

// EventNodeScanned is a Buildyard event: the host scanner of a node has found other numbers than
// before. Extra has them in "counts".
const EventNodeScanned EventName = "NodeScanned"

// The groups of events by what they are about.
const (
	vmAction       = "vmAction"
	nodeAction     = "nodeAction"
	templateAction = "templateAction"
	logAction      = "logAction"
	auditAction    = "auditAction"
)

// eventSubTypes maps each event to its group.
var eventSubTypes = map[EventName]string{
	EventStartVM: vmAction, EventVMStarted: vmAction, EventVMFailedToStart: vmAction,
	EventTerminateVM: vmAction, EventVMTerminated: vmAction,
	EventDistribute: templateAction, EventTemplatePulled: templateAction, EventDeleteRegistryVM: templateAction,
	EventConfigNode: nodeAction, EventDeleteNode: nodeAction, EventNodeUnregistered: nodeAction,
	EventNodeDrained: nodeAction, EventNodeScanned: nodeAction, EventsDropped: logAction, EventAudit: auditAction,
}

// Actor is the caller of an API request. The zero value is an unknown caller.
type Actor struct {
	User    string `json:"user,omitempty"`     // user of the credential
	KeyID   string `json:"key_id,omitempty"`   // of the API key
	Address string `json:"address,omitempty"`  // without a port
	Request string `json:"request,omitempty"`  // id of the request
	ForUser string `json:"for_user,omitempty"` // user on whose behalf a program calls
}

// tell adds the actor to the keys of an event.
func (a Actor) tell(fields map[string]any) {
	for key, value := range map[string]string{
		"user": a.User, "key_id": a.KeyID, "address": a.Address, "request": a.Request, "for_user": a.ForUser,
	} {
		if value != "" {
			fields[key] = value
		}
	}
}

// Event is something that happened in the cloud, for its log. Its name determines its type.
type Event struct {
	Name       EventName
	InstanceID string // "": it is about no instance
	Time       time.Time
	Extra      map[string]any // further keys, none of those that every event has; values are JSON's
	By         Actor          // the caller
}

// Record returns the event as one line of the log, without the line's end: a JSON object with
// sorted keys. machine is the host of the controller that saw it.
func (e Event) Record(machine string) ([]byte, error) {
	kind, known := EventKinds[e.Name]
	if !known {
		kind = SystemAction
	}
	fields := make(map[string]any, len(e.Extra)+10)
	maps.Copy(fields, e.Extra)
	e.By.tell(fields)
	fields["instance_id"], fields["machineName"] = e.InstanceID, machine
	fields["name"], fields["type"], fields["sub_type"] = e.Name, kind, eventSubTypes[e.Name]
	fields["time"] = e.Time.Unix()
	return json.Marshal(fields) // sorts the keys
}
