package api

import "time"

// Maintenance is the body of GET /api/v1/maintenance: whether all automatic removals and timeouts are paused.
type Maintenance struct {
	On     bool      `json:"on"`             // whether it is active
	Since  time.Time `json:"since,omitzero"` // when it began
	Until  time.Time `json:"until,omitzero"` // when it ends automatically; absent: only on request
	Reason string    `json:"reason,omitempty"`
}

// BeginMaintenance is the body of POST /api/v1/maintenance.
type BeginMaintenance struct {
	For    string `json:"for,omitempty"` // how long, for example 2h; "": until DELETE /api/v1/maintenance
	Reason string `json:"reason,omitempty"`
}

// OrphanedVM is one element of GET /api/v1/node/adopt: a VM on a node that has no owning record.
type OrphanedVM struct {
	NodeID     string    `json:"node_id"`
	NodeName   string    `json:"node_name"`
	ID         string    `json:"id"`                    // names it in an adoption
	InstanceID string    `json:"instance_id,omitempty"` // that the node reports for it
	VMID       string    `json:"vm_id,omitempty"`       // ID of the VM on its node
	Name       string    `json:"name,omitempty"`
	Template   string    `json:"template,omitempty"` // name of the template that it was started from
	Tag        string    `json:"tag,omitempty"`
	Status     string    `json:"status,omitempty"` // of the VM; absent until the node has reported it
	Since      time.Time `json:"since"`            // when this controller first saw it
	Fate       string    `json:"fate"`             // undecided, released or removing
}

// The fates of orphaned VMs.
const (
	FateUndecided = "undecided" // removed automatically later, unless there are too many
	FateReleased  = "released"  // an operator has allowed its removal
	FateRemoving  = "removing"  // its node was ordered to remove it
)

// OrphanDecision is the body of POST /api/v1/node/adopt.
type OrphanDecision struct {
	Node   string   `json:"node"`          // id or name
	Action string   `json:"action"`        // keep or remove
	VMs    []string `json:"vms,omitempty"` // OrphanedVM.ID; none: all of the node
	DryRun bool     `json:"dry_run,omitempty"`
}

// OrphanOutcome is one element of the answer to an OrphanDecision.
type OrphanOutcome struct {
	ID      string `json:"id"`            // of the orphaned VM
	Outcome string `json:"outcome"`       // kept, removed or refused
	Why     string `json:"why,omitempty"` // reason of a refusal
}
