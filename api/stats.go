package api

// ControllerStats is how busy a cloud is, as the replica that is asked has seen it since
// it runs. Its numbers are never negative, and every key is always there.
type ControllerStats struct {
	AverageQueueTime float64 `json:"average_queue_time"` // seconds from the request to a node, of the last 10 minutes' placements
	TasksPerSecond   float64 `json:"tasks_per_second"`   // placements and ends of VMs, of the last 5 minutes

	Instances    map[string]int `json:"instances"`     // by state, all states
	Nodes        map[string]int `json:"nodes"`         // by state, all states
	Capacity     int            `json:"capacity"`      // VMs that the nodes which take starts may run
	CapacityUsed int            `json:"capacity_used"` // VMs that take room, on all nodes
	QueueDepth   int            `json:"queue_depth"`   // requests that wait for a node
	OldestWait   float64        `json:"oldest_wait"`   // seconds that the first of them has waited

	StartsLastHour       int     `json:"starts_last_hour"`   // VMs that came up
	FailuresLastHour     int     `json:"failures_last_hour"` // instances that went to Error
	TerminationsLastHour int     `json:"terminations_last_hour"`
	Uptime               float64 `json:"uptime"` // seconds
}
