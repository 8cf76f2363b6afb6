package api

import "time"

// HistoryInstance is one instance of GET /api/v1/vm/history: it is terminated, and its record is kept for a
// day.
type HistoryInstance struct {
	InstanceID   string           `json:"instance_id"`
	Name         string           `json:"name,omitempty"`
	ExternalID   string           `json:"external_id,omitempty"`
	VMID         string           `json:"vmid"`          // UUID of the template
	TemplateName string           `json:"template_name"` // its name at that time
	Tag          string           `json:"tag"`
	Version      int              `json:"version"` // serial number of the version, 0-indexed
	Arch         string           `json:"arch,omitempty"`
	GroupID      string           `json:"group_id"`          // node group; "": any
	Owner        string           `json:"owner,omitempty"`   // user that requested it; "": root or anonymous
	NodeID       string           `json:"node_id,omitempty"` // absent when it was never placed
	NodeName     string           `json:"node_name,omitempty"`
	Message      string           `json:"message,omitempty"`     // the last one
	Failure      *InstanceFailure `json:"failure,omitempty"`     // why it was in Error; absent: it did not fail
	ScriptCode   *int             `json:"script_code,omitempty"` // exit code of the startup script
	TTL          int64            `json:"ttl,omitempty"`         // seconds
	CRTime       time.Time        `json:"cr_time"`               // when the instance was requested
	Placed       time.Time        `json:"placed,omitzero"`       // when a node was chosen
	Started      time.Time        `json:"started,omitzero"`      // when its VM came up
	Finished     time.Time        `json:"finished"`              // when it ended
	Transitions  []Transition     `json:"transitions"`           // the oldest first; at most 17
}

// Transition is a change of an instance's state, or within Scheduling of its phase.
type Transition struct {
	State   string    `json:"state"`
	Phase   string    `json:"phase"`             // that began with it: see Instance
	Time    time.Time `json:"time"`              // when the state began, in milliseconds
	Message string    `json:"message,omitempty"` // the last one of that state
}
