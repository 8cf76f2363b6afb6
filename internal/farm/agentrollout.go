package farm

import (
	"slices"
	"time"
)

// RolloutState is the state of a rollout of agent packages.
type RolloutState string

// The states of a rollout. In all but RolloutRunning no update of it begins.
const (
	RolloutRunning   RolloutState = "Running"
	RolloutPaused    RolloutState = "Paused"    // by an operator
	RolloutStopped   RolloutState = "Stopped"   // automatically, after failures or because a package was replaced
	RolloutAborted   RolloutState = "Aborted"   // permanently, by an operator
	RolloutCompleted RolloutState = "Completed" // every node that is in contact has its package
)

// AgentRollout is an operator's rollout of the present agent packages to all nodes. Like a Node it is replaced and
// never changed in place.
type AgentRollout struct {
	ID        string           `json:"id"`
	State     RolloutState     `json:"state"`
	Reason    string           `json:"reason,omitempty"` // why it was paused or stopped
	Packages  []RolloutPackage `json:"packages"`
	Started   time.Time        `json:"started"`
	StartedBy string           `json:"started_by,omitempty"` // name of the caller
	Changed   time.Time        `json:"changed"`              // when State changed

	CanaryGroups []string      `json:"canary_groups,omitempty"` // IDs; their nodes come first
	CanaryWait   time.Duration `json:"canary_wait,omitempty"`   // how long they must be Active before the others follow
	BatchPercent int           `json:"batch_percent,omitempty"` // nodes that update at a time; 0: BatchNodes
	BatchNodes   int           `json:"batch_nodes,omitempty"`
	MaxFailures  int           `json:"max_failures"` // failed nodes with which it continues

	// Accepted are the nodes whose failures an operator has seen: a rollout that was resumed does not count them.
	Accepted []string `json:"accepted,omitempty"`
}

// RolloutPackage is a package of a rollout.
type RolloutPackage struct {
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
}

// IsOpen reports whether the rollout can continue.
func (r *AgentRollout) IsOpen() bool {
	return r != nil && (r.State == RolloutRunning || r.State == RolloutPaused || r.State == RolloutStopped)
}

// WithState returns the rollout in another state.
func (r *AgentRollout) WithState(state RolloutState, reason string, now time.Time) *AgentRollout {
	next := *r
	next.State, next.Reason, next.Changed = state, reason, now
	return &next
}

// PackageFor returns the package of a node; false when the rollout has none for its platform.
func (r *AgentRollout) PackageFor(info *NodeInfo) (RolloutPackage, bool) {
	i := slices.IndexFunc(r.Packages, func(p RolloutPackage) bool { return p.OS == info.OS && p.Arch == info.Arch })
	if i < 0 || info.OS == "" {
		return RolloutPackage{}, false
	}
	return r.Packages[i], true
}

// Batch returns how many of a number of nodes update at a time.
func (r *AgentRollout) Batch(nodes int) int {
	if r.BatchNodes > 0 {
		return r.BatchNodes
	}
	return max(1, nodes*r.BatchPercent/100)
}
