package api

import "time"

// The ranges of GET /api/v1/stats/series; GET /api/v1/stats/usage has the last two.
const (
	RangeHour    = "1h"
	RangeQuarter = "6h" // of a day
	RangeDay     = "24h"
	RangeWeek    = "7d"
)

// What GET /api/v1/stats/series (node or group) and GET /api/v1/stats/usage (all but nodes) list.
const (
	ByNode     = "node"
	ByGroup    = "group"
	ByOwner    = "owner"
	ByTemplate = "template"
)

// MaxSparklines is the largest number of nodes or groups of one request for sparklines.
const MaxSparklines = 100

// Series is the load of a cloud, a node or a group over a time range, in steps. Steps without data have no
// point.
type Series struct {
	Range   string        `json:"range"` // requested range
	Step    int           `json:"step"`  // seconds
	From    time.Time     `json:"from"`
	To      time.Time     `json:"to"`
	NodeID  string        `json:"node_id,omitempty"`  // of a series of a node
	GroupID string        `json:"group_id,omitempty"` // of a series of a group
	Points  []SeriesPoint `json:"points"`             // the oldest first; the last one may be of a step that continues
	By      string        `json:"by,omitempty"`       // ByNode or ByGroup: Series instead of Points
	Series  []Sparkline   `json:"series,omitzero"`    // in the order of the IDs of the request, of groups by name
}

// SeriesPoint is one step of a series.
type SeriesPoint struct {
	Time      time.Time `json:"time"`                // when the step begins
	Samples   int       `json:"samples"`             // measurements, one each 10 s; fewer: a part is missing
	Running   float64   `json:"running"`             // instances in Started on nodes that report, mean
	Queue     float64   `json:"queue"`               // requests that waited for a node, mean; 0 for a node
	QueuePeak int       `json:"queue_peak"`          // the most that waited at a time
	Starts    int       `json:"starts"`              // VMs that came up
	Failures  int       `json:"failures"`            // instances that entered the state Error
	StartP50  *float64  `json:"start_p50,omitempty"` // median start time in seconds; absent without starts
	StartP95  *float64  `json:"start_p95,omitempty"` // 95th percentile of the start time in seconds
	Pulled    int64     `json:"pulled"`              // bytes of templates that nodes got from registries

	// Means over the step, in VMs and nodes. They are absent where nodes were not counted.
	SlotsUsed    *float64 `json:"slots_used,omitempty"`
	Capacity     *float64 `json:"capacity,omitempty"` // of the nodes that accept starts
	ActiveNodes  *float64 `json:"active_nodes,omitempty"`
	OfflineNodes *float64 `json:"offline_nodes,omitempty"`
	// The fewest active and the most offline nodes at a time.
	ActiveNodesMin  *int `json:"active_nodes_min,omitempty"`
	OfflineNodesMax *int `json:"offline_nodes_max,omitempty"`

	// Utilization of the host of a node, 0 to 1, mean. They are absent where the node reported none, and for
	// the cloud and groups.
	CPUUtil *float64 `json:"cpu_util,omitempty"`
	RAMUtil *float64 `json:"ram_util,omitempty"`
}

// Sparkline is the load of one node or group in few numbers. Each list has one number for each step since
// Series.From; null: not measured.
type Sparkline struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	Running     []*float64 `json:"running"`
	SlotsUsed   []*float64 `json:"slots_used"`
	Capacity    []*float64 `json:"capacity"`
	ActiveNodes []*float64 `json:"active_nodes"` // of a node the share of the step
	Starts      []*float64 `json:"starts"`
	Failures    []*float64 `json:"failures"`
	Queue       []*float64 `json:"queue,omitempty"`    // of a group
	CPUUtil     []*float64 `json:"cpu_util,omitempty"` // of a node, 0 to 1
	RAMUtil     []*float64 `json:"ram_util,omitempty"` // the same

	Now *GroupLoad `json:"now,omitempty"` // of a group
}

// GroupLoad is the load of a group when it was requested.
type GroupLoad struct {
	Nodes       int   `json:"nodes"`
	ActiveNodes int   `json:"active_nodes"`
	Pending     int   `json:"pending"` // instances that request the group and wait for a node
	Slots       Slots `json:"slots"`   // of all its nodes; Free: of those that accept starts
}
