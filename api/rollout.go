package api

import "time"

// PathRollout is the route of the rollout of agent packages.
const PathRollout = "/api/v1/node/rollout"

// AgentRollout is a rollout of agent packages to all nodes: the body of GET PathRollout.
type AgentRollout struct {
	ID        string           `json:"id"`
	State     string           `json:"state"`            // Running, Paused, Stopped, Aborted or Completed
	Reason    string           `json:"reason,omitempty"` // why it is in that state, or what it waits for
	Packages  []RolloutPackage `json:"packages"`
	Started   time.Time        `json:"started"`
	StartedBy string           `json:"started_by,omitempty"` // name of the caller
	Changed   time.Time        `json:"changed"`              // when State changed

	CanaryGroups []string `json:"canary_groups,omitempty"` // IDs of the node groups whose nodes come first
	CanaryWait   int      `json:"canary_wait"`             // seconds that they must be Active before the others follow
	BatchPercent int      `json:"batch_percent,omitempty"` // of the nodes that are in contact, at a time
	BatchNodes   int      `json:"batch_nodes,omitempty"`   // at a time, instead of BatchPercent
	MaxFailures  int      `json:"max_failures"`            // failed nodes with which it continues

	Counts map[string]int `json:"counts"` // number of nodes by stage
	Nodes  []RolloutNode  `json:"nodes"`
}

// RolloutPackage is a package of a rollout.
type RolloutPackage struct {
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Version string `json:"version"`
}

// RolloutNode is how far a node is with a rollout.
type RolloutNode struct {
	NodeID       string `json:"node_id"`
	NodeName     string `json:"node_name"`
	Stage        string `json:"stage"` // pending, offline, updating, updated, failed, lost or skipped
	Canary       bool   `json:"canary"`
	AgentVersion string `json:"agent_version,omitempty"` // the present one
	Reason       string `json:"reason,omitempty"`        // why it waits, failed or was skipped
}

// StartRollout is the body of POST PathRollout.
type StartRollout struct {
	CanaryGroups []string `json:"canary_groups,omitempty"` // names or IDs of node groups whose nodes come first
	CanaryWait   string   `json:"canary_wait,omitempty"`   // how long they must be Active, for example 10m
	BatchPercent int      `json:"batch_percent,omitempty"` // of the nodes that are in contact; default 10
	BatchNodes   int      `json:"batch_nodes,omitempty"`   // instead of BatchPercent
	MaxFailures  int      `json:"max_failures,omitempty"`  // failed nodes with which it continues; default 0
}

// ChangeRollout is the body of PUT PathRollout.
type ChangeRollout struct {
	Action string `json:"action"`           // pause, resume or abort
	Reason string `json:"reason,omitempty"` // shown with the rollout
}
