package farm

import (
	"cmp"
	"fmt"
	"time"
)

// SaveRequest is a request to save a running instance as a template version.
type SaveRequest struct {
	ID        string      `json:"id"`
	Status    SaveStatus  `json:"status"`
	Request   SaveOptions `json:"request"`
	Registry  string      `json:"registry"` // pushed to
	NodeID    string      `json:"node_id"`
	Caller    string      `json:"caller,omitempty"` // whose limits it counts against; "": not known
	VMUUID    string      `json:"vm_uuid,omitempty"`
	Created   time.Time   `json:"created"`
	Updated   time.Time   `json:"updated"`
	Stage     string      `json:"stage,omitempty"`      // how far its node is, for people
	Progress  float64     `json:"progress,omitempty"`   // 0..1, of the push
	ContentID string      `json:"content_id,omitempty"` // of the version that was made

	ErrorMessage string `json:"error_message,omitempty"`
	ErrorType    string `json:"error_type,omitempty"` // of a failure that is not the script's
	ErrorCode    int    `json:"error_code,omitempty"` // exit code of the script that failed it

	// Script is the outcome of the script before the save, without its output, which
	// is kept apart because of its size: StdoutBytes and StderrBytes of it.
	Script      *ScriptResult `json:"script,omitempty"`
	StdoutBytes int           `json:"stdout_bytes,omitempty"`
	StderrBytes int           `json:"stderr_bytes,omitempty"`
}

// The types of the errors of saves that are not those of a script.
const (
	SaveErrorNode  = "save.Error"         // the node could not save or push
	SaveErrorEnded = "save.InstanceEnded" // the instance ended first
)

// AfterFailure returns the record of a save that ended in an error.
func (s *SaveRequest) AfterFailure(kind, message string, now time.Time) *SaveRequest {
	n := *s
	n.Status, _ = NextSaveState(s.Status, SaveFailed)
	n.ErrorMessage, n.ErrorType, n.Updated = message, kind, now
	return &n
}

// AfterInstance returns the record after a change of its instance, which is nil when that is removed: a
// pending save ends when its instance no longer works on it.
func (s *SaveRequest) AfterInstance(inst *Instance, now time.Time) *SaveRequest {
	if s == nil || s.Status != SavePending || inst.WorksOn(s.ID) {
		return s
	}
	return s.AfterFailure(SaveErrorEnded, endOfSave(inst), now)
}

// endOfSave returns why no agent works on a pending save any longer; inst is nil when the instance
// is removed.
func endOfSave(inst *Instance) string {
	switch {
	case inst == nil || inst.State == Terminating || inst.State == Terminated:
		return "The instance was terminated before the save had ended"
	case inst.State == Errored:
		return "The instance failed before the save had ended: " +
			cmp.Or(inst.Message, "its node does not say why")
	default:
		return fmt.Sprintf("The instance is %s and is no longer being saved", inst.State)
	}
}

// SaveOptions are the parameters of a save.
type SaveOptions struct {
	InstanceID            string `json:"instance_id"`
	Tag                   string `json:"tag"`
	TemplateID            string `json:"template_id"`                 // gets the tag
	NewTemplateName       string `json:"new_template_name,omitempty"` // the template is made; "": it exists
	Description           string `json:"description,omitempty"`
	Suspend               bool   `json:"suspend"`
	Scripted              bool   `json:"scripted,omitempty"` // a script runs before; it is kept apart, as a secret
	SanityTest            bool   `json:"sanity_test,omitempty"`
	RevertBeforePush      bool   `json:"revert_before_push,omitempty"`
	RevertTag             string `json:"revert_tag,omitempty"` // "": the latest
	CancelOnScriptFailure bool   `json:"cancel_on_script_failure,omitempty"`
}

// NodeTaskKind is an operation of a node on a running VM.
type NodeTaskKind string

// The task kinds.
const (
	TaskSave    NodeTaskKind = "save"
	TaskRestart NodeTaskKind = "restart"
)

// NodeTask is the task of a node for the VM of an instance; it stays in the record until the node has
// reported its end.
type NodeTask struct {
	ID   string       `json:"id"` // of a save: that of its SaveRequest
	Kind NodeTaskKind `json:"kind"`
	// Restart is what a restart changes.
	Restart *RestartOptions `json:"restart,omitempty"`
}

// stateDuringTask maps the kind of a task to the state of an instance with such a task.
var stateDuringTask = map[NodeTaskKind]InstanceState{TaskSave: Pushing, TaskRestart: Started}

// FinishTask removes the task of an instance whose state is not, or no longer, the one that belongs
// to the task. It must follow every change of a state, before the record is stored.
func (i *Instance) FinishTask() {
	if i.Task != nil && stateDuringTask[i.Task.Kind] != i.State {
		i.Task = nil
	}
}

// RestartOptions are the parameters of a restart; nil fields stay as they are.
type RestartOptions struct {
	USBDevice   *string `json:"usb_device,omitempty"`
	VNCPassword *string `json:"vnc_password,omitempty"` // a secret
	Device      string  `json:"device,omitempty"`       // location of the device that USBDevice gets it
}

// APIKey is an API key: its public half only. What it points to is never changed: a change makes a
// new record.
type APIKey struct {
	ID         string    `json:"id"`
	Groups     []string  `json:"groups"`     // names of permission groups
	PublicKey  []byte    `json:"public_key"` // PKIX DER
	Created    time.Time `json:"created"`
	Expires    time.Time `json:"expires"`
	Generation string    `json:"generation"` // random; a key that is made again under its id has another
}

// Expired reports whether the key has expired.
func (k APIKey) Expired(now time.Time) bool { return !now.Before(k.Expires) }

// ResourcePermission grants a permission group rights on one node or template.
type ResourcePermission struct {
	ID          string       `json:"id"`
	IDType      string       `json:"id_type"` // "id" unless said otherwise
	Type        ResourceType `json:"type"`
	Permissions []Permission `json:"permissions"`
}

// USBCount is how many devices of one name are free and in use.
type USBCount struct {
	Available int `json:"available"`
	Busy      int `json:"busy"`
}

// MACAddress is one managed address; Instance is "" when it is free. Only those that are
// in use have a record, under their address.
type MACAddress struct {
	Address    string `json:"address"` // capital letters, colons
	InstanceID string `json:"instance,omitempty"`
}

// DiskInfo is the space of a registry's disk, in bytes.
type DiskInfo struct {
	Free  int64 `json:"free"`
	Total int64 `json:"total"`
}

// EventKind is the type of a logged event.
type EventKind string

// The event kinds of the event log.
const (
	APIAction    EventKind = "apiAction"
	SystemAction EventKind = "systemAction"
)

// EventName names what happened.
type EventName string

// The events of the event log.
const (
	EventStartVM          EventName = "StartVM"
	EventVMStarted        EventName = "VMStarted"
	EventVMFailedToStart  EventName = "VMFailedToStart"
	EventTerminateVM      EventName = "TerminateVM"
	EventVMTerminated     EventName = "VMTerminated"
	EventDistribute       EventName = "DistributeTemplateToNodes"
	EventTemplatePulled   EventName = "TemplatePulled"
	EventDeleteRegistryVM EventName = "DeleteRegistryVm"
	EventConfigNode       EventName = "ConfigNode"
	EventDeleteNode       EventName = "DeleteNode"
	EventNodeUnregistered EventName = "NodeUnregistered"
)

// EventKinds maps each event to its kind.
var EventKinds = map[EventName]EventKind{
	EventStartVM: APIAction, EventVMStarted: SystemAction, EventVMFailedToStart: SystemAction,
	EventTerminateVM: APIAction, EventVMTerminated: SystemAction, EventDistribute: APIAction,
	EventTemplatePulled: SystemAction, EventDeleteRegistryVM: APIAction, EventConfigNode: APIAction,
	EventDeleteNode: APIAction, EventNodeUnregistered: SystemAction, EventAudit: APIAction,
}
