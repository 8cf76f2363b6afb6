package api

import "time"

// Pool is a warm pool: it keeps standbys of a template version, which starts claim.
type Pool struct {
	ID           string       `json:"id"`
	Name         string       `json:"name"`
	TemplateID   string       `json:"template_id"`
	TemplateName string       `json:"template_name"` // "" for a caller who does not see the template
	Tag          string       `json:"tag"`           // "": the newest version
	GroupID      *string      `json:"group_id"`      // null: for starts without a group
	MinIdle      int          `json:"min_idle"`
	Schedule     []PoolWindow `json:"schedule"`
	TimeZone     string       `json:"time_zone"` // "": UTC
	MaxAge       int64        `json:"max_age"`   // seconds; 0: unlimited
	Created      time.Time    `json:"created"`
	Updated      time.Time    `json:"updated"`

	Wanted  int    `json:"wanted"`  // standbys that the schedule sets at this time
	Ready   int    `json:"ready"`   // standbys that a start gets running
	Booting int    `json:"booting"` // standbys that are not ready yet
	Problem string `json:"problem,omitempty"`

	Stats PoolStats `json:"stats"`
	// Standbys are in the response about one pool only.
	Standbys []Standby `json:"standbys,omitempty"`
}

// PoolWindow is a time of the week with another number of standbys. The first one that applies decides.
type PoolWindow struct {
	Days    []string `json:"days,omitempty"` // on which it begins: mon, tue, wed, thu, fri, sat, sun; none: every day
	From    string   `json:"from"`           // HH:MM
	To      string   `json:"to"`             // HH:MM; not after From: on the next day
	MinIdle int      `json:"min_idle"`
}

// PoolStats are the sums of a pool since it was created.
type PoolStats struct {
	Hits         int64   `json:"hits"`          // starts that claimed a ready standby
	EarlyHits    int64   `json:"early_hits"`    // starts that claimed one which still booted
	Misses       int64   `json:"misses"`        // starts that fitted and found no standby
	SlotHours    float64 `json:"slot_hours"`    // that standbys have used a slot
	SavedSeconds float64 `json:"saved_seconds"` // that claimed standbys had been ahead of their starts, at most their boot
	Booted       int64   `json:"booted"`        // standbys that became ready
	Yielded      int64   `json:"yielded"`       // standbys that ended for a request without a free slot
	Replaced     int64   `json:"replaced"`      // standbys that ended for their age, version or node
	Failed       int64   `json:"failed"`        // standbys that failed
}

// Standby is a VM of a pool that no start has claimed.
type Standby struct {
	InstanceID string    `json:"instance_id"` // that of the instance which claims it; until then only the logs have it
	State      string    `json:"state"`
	Message    string    `json:"message,omitempty"`
	NodeID     string    `json:"node_id,omitempty"`
	NodeName   string    `json:"node_name,omitempty"`
	Created    time.Time `json:"created"`
	Started    time.Time `json:"started,omitzero"` // absent: it is not ready yet
}
