package usage

import (
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// The minutes that the statistics cover.
const (
	queueMinutes = 10
	taskMinutes  = 5
	anHour       = 60
)

// shownNodeStates are the states in which clients see nodes.
var shownNodeStates = append([]farm.NodeState{farm.NodeDrain}, farm.NodeStates...)

// Stats returns the utilization of the cloud. It reads the nodes and the pending instances, and no
// other instance.
func (u *Usage) Stats() api.ControllerStats {
	now := u.db.Now()
	t, sums := u.counters, u.counters.count(now)
	nodes, capacity := u.nodeCount()
	return api.ControllerStats{
		AverageQueueTime: t.placements.Last(now, queueMinutes).Mean(),
		TasksPerSecond:   t.placements.Rate(now, taskMinutes) + t.ends.Rate(now, taskMinutes),
		Instances:        sums.States, Nodes: nodes, Capacity: capacity, CapacityUsed: sums.Slots,
		QueueDepth: sums.Queue, OldestWait: seconds(sums.Oldest),
		StartsLastHour:       t.starts.Last(now, anHour).Count,
		FailuresLastHour:     t.failures.Last(now, anHour).Count,
		TerminationsLastHour: t.ends.Last(now, anHour).Count,
		Uptime:               seconds(now.Sub(u.opts.Started)),
	}
}

// seconds converts a duration; a negative one, from a clock that was set back, becomes 0.
func seconds(d time.Duration) float64 { return max(d, 0).Round(time.Millisecond).Seconds() }

// nodeCount returns the nodes by the displayed state, and how many VMs those that take starts may
// run.
func (u *Usage) nodeCount() (states map[string]int, capacity int) {
	states = make(map[string]int, len(shownNodeStates))
	for _, s := range shownNodeStates {
		states[string(s)] = 0
	}
	for id, n := range u.db.Tables.Nodes.All() {
		states[string(n.VisibleState())]++
		if n.AcceptsStarts() {
			info, _, ok := u.db.Tables.Infos.Get(id)
			if !ok {
				info = &farm.NodeInfo{}
			}
			capacity += n.VMLimit(info)
		}
	}
	return states, capacity
}
