package api

import "time"

// Maintenance is the body of GET /api/v1/maintenance: whether everything that removes
// or gives up something by itself is paused.
type Maintenance struct {
	On     bool      `json:"on"`
	Since  time.Time `json:"since,omitzero"`
	Until  time.Time `json:"until,omitzero"` // ends by itself then; absent: only by hand
	Reason string    `json:"reason,omitempty"`
}

// BeginMaintenance is the body of POST /api/v1/maintenance.
type BeginMaintenance struct {
	For    string `json:"for,omitempty"` // how long, for example 2h; "": until DELETE /api/v1/maintenance
	Reason string `json:"reason,omitempty"`
}
