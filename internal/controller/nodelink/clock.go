package nodelink

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

const (
	clockSamples    = 5 // polls whose offsets are compared
	minClockSamples = 3 // before an offset is known: a single poll may have been delayed
	maxClockOffset  = 100 * 365 * 24 * time.Hour
	maxClockAlarms  = 10 // nodes that have an alarm each
)

// nodeClock is the difference of a node's clock from the controller's. A poll takes some time to arrive, which makes a
// node seem late; the median of several ignores single delays.
type nodeClock struct {
	offsets [clockSamples]time.Duration // of the last polls
	count   int                         // of polls, those that were replaced included
}

// add adds the time at which a node sent a poll that arrived now.
func (c *nodeClock) add(sent, now time.Time) {
	if sent.IsZero() {
		return
	}
	offset := min(max(sent.Sub(now), -maxClockOffset), maxClockOffset)
	c.offsets[c.count%clockSamples] = offset
	c.count++
}

// offset returns by how much the node's clock is ahead; known is false before enough polls.
func (c *nodeClock) offset() (median time.Duration, known bool) {
	n := min(c.count, clockSamples)
	if n < minClockSamples {
		return 0, false
	}
	sorted := slices.Clone(c.offsets[:n])
	slices.Sort(sorted)
	return sorted[n/2].Round(time.Second), true
}

// recordClock records when an agent sent a poll that arrived now; a zero time is not known.
func (s *session) recordClock(sent, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.add(sent, now)
}

// ClockOffset returns by how much the clock of a node is ahead of this replica's, in whole seconds. It is known while
// the node is in contact with this replica.
func (n *Sessions) ClockOffset(node string) (offset time.Duration, known bool) {
	s := n.find(node)
	if s == nil {
		return 0, false
	}
	now := n.db.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.lastContactLocked(now)) > ContactGap {
		return 0, false
	}
	return s.clock.offset()
}

// ClockAlarms returns an alarm for each node whose clock differs, the largest difference first.
func (n *Sessions) ClockAlarms() (list []api.Alarm) {
	type difference struct {
		node   *farm.Node
		offset time.Duration
	}
	var found []difference
	for _, s := range n.all() {
		offset, _ := n.ClockOffset(s.node)
		node, _, ok := n.db.Tables.Nodes.Get(s.node)
		if ok && offset.Abs() > api.MaxClockOffset {
			found = append(found, difference{node, offset})
		}
	}
	slices.SortFunc(found, func(a, b difference) int {
		return cmp.Or(cmp.Compare(b.offset.Abs(), a.offset.Abs()), cmp.Compare(a.node.ID, b.node.ID))
	})
	for i, d := range found {
		if i == maxClockAlarms {
			return append(list, api.Alarm{
				Name:    api.AlarmNodeClock,
				Message: fmt.Sprintf("The clocks of %d more nodes differ from the controller's", len(found)-i),
				Action:  "Show them: buildyard node list -o wide.",
			})
		}
		direction := "ahead of"
		if d.offset < 0 {
			direction = "behind"
		}
		list = append(list, api.Alarm{
			Name: api.AlarmNodeClock, Subject: d.node.ID,
			Message: fmt.Sprintf("The clock of node %s is %s %s the controller's",
				d.node.Name, d.offset.Abs(), direction),
			Action: "Synchronize the clocks of node and controller by NTP; check the controller's first.",
		})
	}
	return list
}
