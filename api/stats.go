package api

// ControllerStats is the load of a cloud, as the answering replica has seen it since its start. Its numbers are
// never negative, and every key is always present.
type ControllerStats struct {
	// seconds from the request to a node, of the last 10 minutes' placements
	AverageQueueTime float64 `json:"average_queue_time"`
	TasksPerSecond   float64 `json:"tasks_per_second"` // placements and ends of VMs, of the last 5 minutes

	Instances    map[string]int `json:"instances"`     // by state, all states
	Nodes        map[string]int `json:"nodes"`         // by state, all states
	Capacity     int            `json:"capacity"`      // VMs that nodes which accept placements may run
	CapacityUsed int            `json:"capacity_used"` // VMs that use capacity, on all nodes
	QueueDepth   int            `json:"queue_depth"`   // requests that wait for a node
	OldestWait   float64        `json:"oldest_wait"`   // seconds that the first of them has waited
	Slots        Slots          `json:"slots"`         // of all nodes

	StartsLastHour       int     `json:"starts_last_hour"`   // VMs that came up
	FailuresLastHour     int     `json:"failures_last_hour"` // instances that went to Error
	TerminationsLastHour int     `json:"terminations_last_hour"`
	Uptime               float64 `json:"uptime"` // seconds
}
