package controller

import (
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// The minutes that the figures of the statistics are of.
const (
	queueMinutes = 10
	taskMinutes  = 5
	anHour       = 60
)

// shownNodeStates are the states in which clients see nodes.
var shownNodeStates = append([]farm.NodeState{farm.NodeDrain}, farm.NodeStates...)

// Stats returns how busy the cloud is. It looks at the nodes and at what waits, and at no
// other instance.
func (c *Controller) Stats() api.ControllerStats {
	now := c.now()
	t, sums := c.tally, c.tally.count(now)
	nodes, capacity := c.nodeCount()
	return api.ControllerStats{
		AverageQueueTime: t.placements.Last(now, queueMinutes).Mean(),
		TasksPerSecond:   t.placements.Rate(now, taskMinutes) + t.ends.Rate(now, taskMinutes),
		Instances:        sums.states, Nodes: nodes, Capacity: capacity, CapacityUsed: sums.slots,
		QueueDepth: sums.queue, OldestWait: seconds(sums.oldest),
		StartsLastHour:       t.starts.Last(now, anHour).Count,
		FailuresLastHour:     t.failures.Last(now, anHour).Count,
		TerminationsLastHour: t.ends.Last(now, anHour).Count,
		Uptime:               seconds(now.Sub(c.started)),
	}
}

// seconds shows a time; one that a clock set back made negative is none.
func seconds(d time.Duration) float64 { return max(d, 0).Round(time.Millisecond).Seconds() }

// nodeCount returns the nodes by the state that is shown, and how many VMs those that take
// starts may run.
func (c *Controller) nodeCount() (states map[string]int, capacity int) {
	states = make(map[string]int, len(shownNodeStates))
	for _, s := range shownNodeStates {
		states[string(s)] = 0
	}
	for id, n := range c.tables.Nodes.All() {
		states[string(n.Shown())]++
		if n.TakesStarts() {
			capacity += n.Slots(c.infoOn(id))
		}
	}
	return states, capacity
}
