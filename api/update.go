package api

import "time"

// The route of agent packages, and routes below it.
const (
	PathPackages        = "/pkg"
	PathPackageManifest = PathPackages + "/manifest" // the available packages, see AgentPackage
)

// AgentPackage is one agent package that a controller has: an archive with a program for
// one platform.
type AgentPackage struct {
	Name    string `json:"name"` // of the file: below PathPackages
	Version string `json:"version"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Size    int64  `json:"size"`   // bytes
	SHA256  string `json:"sha256"` // hex, of the file
	// Signed contains all of the above, signed by its maker: one line of text. A node trusts nothing else.
	Signed string `json:"signed"`
}

// AgentUpdate asks an agent to install another version. It is in every response to a poll until the agent
// reports the result; an agent recognizes a repeated one by ID.
type AgentUpdate struct {
	ID      string       `json:"id"`      // of the update
	Package AgentPackage `json:"package"` // to be installed
	// Force allows a version that is older than the agent's.
	Force bool `json:"force,omitempty"`
	// Keys are the public keys of the makers of agent packages, as lines of base64, for a node that has none.
	Keys string `json:"keys,omitempty"`
}

// UpdateStage is how far an agent is with an update.
type UpdateStage string

// The stages, in their order. Success has no stage: the version of the next agent shows it.
const (
	UpdateLoading UpdateStage = "loading" // see Progress
	UpdateWaiting UpdateStage = "waiting" // for work that the change would interrupt; see Message
	UpdateSwapped UpdateStage = "swapped" // the new agent is about to begin
	UpdateFailed  UpdateStage = "failed"  // permanently, see Message; the agent is unchanged
)

// UpdateStatus is an agent's report on an update, with every poll after it received the request. It is a level.
type UpdateStatus struct {
	ID       string      `json:"id"` // of the update
	Stage    UpdateStage `json:"stage"`
	Progress float64     `json:"progress,omitempty"` // 0..1, of the download
	Message  string      `json:"message,omitempty"`  // why it waits or failed
}

// NodeUpdate is the update of a node's agent that is not done.
type NodeUpdate struct {
	Version string    `json:"version"`           // that it is to become
	Asked   time.Time `json:"asked"`             // when an operator requested it
	Begun   time.Time `json:"begun,omitzero"`    // of the running try; absent: none
	Tries   int       `json:"tries"`             // so far
	Next    time.Time `json:"next,omitzero"`     // of the next try; absent: one is running, or none follows
	Failure string    `json:"failure,omitempty"` // of the last try
}
