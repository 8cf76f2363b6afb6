package api

import "time"

// UsageOther is key and name of the row of a UsageReport that sums up those with little usage.
const UsageOther = "other"

// UsageReport is the usage of a cloud by group, owner or template over a range.
type UsageReport struct {
	By    string     `json:"by"`    // ByGroup, ByOwner or ByTemplate
	Range string     `json:"range"` // RangeDay or RangeWeek
	From  time.Time  `json:"from"`
	To    time.Time  `json:"to"`
	Rows  []UsageRow `json:"rows"` // at most 101, those with the most instance hours first, other last
}

// UsageRow is the usage of one group, owner or template.
type UsageRow struct {
	Key   string `json:"key"` // id of the group or the template, or the owner; "": of none
	Name  string `json:"name"`
	Other bool   `json:"other,omitempty"` // it sums up those with little usage

	InstanceHours float64  `json:"instance_hours"` // hours in Started, summed over the instances
	Starts        int      `json:"starts"`
	Failures      int      `json:"failures"`            // instances that entered the state Error
	QueueP95      *float64 `json:"queue_p95,omitempty"` // seconds from a request to its placement; absent without one
	StartP95      *float64 `json:"start_p95,omitempty"` // seconds from a request to the running VM; absent without one
}
