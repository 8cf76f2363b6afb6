package api

import "time"

// DistributeAnswer is the body of a distribution that was accepted.
type DistributeAnswer struct {
	RequestID string `json:"request_id"`
}

// Distribution is a request to have a version on nodes, and how far each of them is
// (GET /api/v1/registry/vm/distribute).
type Distribution struct {
	Request DistributionRequest `json:"request"`
	// Status has every addressed node, by its id, from the first answer on.
	Status map[string]DistributeStatus `json:"distribute_status"`
}

// DistributionRequest is the request of a distribution.
type DistributionRequest struct {
	RequestID     string    `json:"request_id"`
	TemplateID    string    `json:"template_id"`
	TimeRequested time.Time `json:"time_requested"`
	Tag           string    `json:"tag"`
	Version       int       `json:"version"` // serial number, 0-indexed
}

// DistributeStatus is how far one node is with a distribution.
type DistributeStatus struct {
	Status   bool    `json:"status"`          // the node has the version
	Error    string  `json:"error,omitempty"` // why it has not, permanently
	Progress float64 `json:"progress"`        // 0..1
}

// RemoveAnswer is the body of DELETE /api/v1/registry/vm/remove.
type RemoveAnswer struct {
	RequestsSent int      `json:"requests_sent"`
	NodeIDs      []string `json:"node_ids"`   // of the requested nodes; never null
	RequestID    string   `json:"request_id"` // "" without a requested node
}

// Removal is a request to remove a template from nodes, and how far each of them is
// (GET /api/v1/registry/vm/remove).
type Removal struct {
	Request RemovalRequest          `json:"request"`
	Status  map[string]RemoveStatus `json:"remove_status"` // by the ids of the nodes
}

// RemovalRequest is the request of a removal.
type RemovalRequest struct {
	RequestID     string    `json:"request_id"`
	TemplateID    string    `json:"template_id"`
	TimeRequested time.Time `json:"time_requested"`
}

// RemoveStatus is the result of a removal on one node.
type RemoveStatus struct {
	Status  bool   `json:"status"`          // nothing of the template is left
	Error   string `json:"error,omitempty"` // what is left, and why
	Removed int    `json:"removed"`         // versions
	Kept    int    `json:"kept"`            // versions that stay since they are in use
}
