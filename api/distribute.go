package api

import "time"

// DistributeAnswer is the body of an accepted distribution.
type DistributeAnswer struct {
	RequestID string             `json:"request_id"`        // "" for a dry run
	Preview   *DistributePreview `json:"preview,omitempty"` // of a dry run only
}

// DistributePreview is what a distribution would do now, without doing it (dry_run). The nodes that match are those
// that have the version, those that would pull it, and those that cannot run it.
type DistributePreview struct {
	TemplateID string `json:"template_id"`
	Tag        string `json:"tag"`        // of the version
	Version    int    `json:"version"`    // serial number, 0-indexed
	Nodes      int    `json:"nodes"`      // that match
	Cached     int    `json:"cached"`     // that have the version
	ToPull     int    `json:"to_pull"`    // that would pull it, the offline ones included
	Unsuitable int    `json:"unsuitable"` // of another architecture, or for other guests
	Offline    int    `json:"offline"`    // of ToPull: they pull when they are back
	// NoSpace are the nodes of ToPull with less free disk space than the version; they may have to evict others.
	NoSpace int `json:"no_space"`
	// NodeBytes are the stored bytes of the whole version: the most that a node pulls. One that has another version of
	// the template pulls less.
	NodeBytes  int64 `json:"node_bytes"`
	TotalBytes int64 `json:"total_bytes"` // the most that all nodes pull
}

// Distribution is a distribution request, and its status on each node (GET /api/v1/registry/vm/distribute).
type Distribution struct {
	Request DistributionRequest `json:"request"`
	// Status has every addressed node, by its ID, from the first response on.
	Status map[string]DistributeStatus `json:"distribute_status"`
}

// DistributionRequest is the request of a distribution.
type DistributionRequest struct {
	RequestID     string    `json:"request_id"`
	TemplateID    string    `json:"template_id"`
	TimeRequested time.Time `json:"time_requested"`
	Tag           string    `json:"tag"`     // of the distributed version
	Version       int       `json:"version"` // serial number, 0-indexed
}

// DistributeStatus is the status of one node in a distribution.
type DistributeStatus struct {
	Status   bool    `json:"status"`          // the node has the version
	Error    string  `json:"error,omitempty"` // why it failed permanently
	Progress float64 `json:"progress"`        // 0..1
}

// RemoveAnswer is the body of DELETE /api/v1/registry/vm/remove.
type RemoveAnswer struct {
	RequestsSent int      `json:"requests_sent"` // number of requested nodes
	NodeIDs      []string `json:"node_ids"`      // of the requested nodes; never null
	RequestID    string   `json:"request_id"`    // "" without a requested node
}

// Removal is a removal request, and its status on each node (GET /api/v1/registry/vm/remove).
type Removal struct {
	Request RemovalRequest          `json:"request"`
	Status  map[string]RemoveStatus `json:"remove_status"` // by the ids of the nodes
}

// RemovalRequest is the request of a removal.
type RemovalRequest struct {
	RequestID     string    `json:"request_id"`
	TemplateID    string    `json:"template_id"`
	TimeRequested time.Time `json:"time_requested"` // when it was requested
}

// RemoveStatus is the result of a removal on one node.
type RemoveStatus struct {
	Status  bool   `json:"status"`          // nothing of the template is left
	Error   string `json:"error,omitempty"` // the rest, and the reason
	Removed int    `json:"removed"`         // versions
	Kept    int    `json:"kept"`            // versions that stay since they are in use
}
