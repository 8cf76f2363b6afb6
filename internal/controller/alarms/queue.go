package alarms

import (
	"fmt"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
)

// The conditions of the alarm of the queue.
const (
	queueWindow  = 5 * time.Minute // over which the queue has to grow
	queueMinWait = 5 * time.Minute // of the oldest pending instance
	maxNodeless  = 3               // groups without a node that have an alarm
)

// Queue watches whether the pending instances become more and wait longer.
type Queue struct {
	now      func() (depth int, oldest time.Duration)
	nodeless func() []NodelessGroup

	mu      sync.Mutex // guards the fields below
	samples []queueSample
	raised  bool
}

// queueSample is the queue at a moment.
type queueSample struct {
	at     time.Time
	depth  int
	oldest time.Duration
}

// NodelessGroup is a group for whose pending instances no node is Active.
type NodelessGroup struct {
	ID      string
	Name    string
	Pending int // instances
}

// NewQueue returns the watch of a queue. now returns the number of pending instances and how long the
// oldest has waited; nodeless returns the groups without a node, and is called while the alarm is active.
func NewQueue(now func() (depth int, oldest time.Duration), nodeless func() []NodelessGroup) *Queue {
	return &Queue{now: now, nodeless: nodeless}
}

// sample adds the present numbers, and decides whether the alarm is active. It begins when over the
// whole window the depth has risen and the oldest wait too, and ends when the oldest wait is short
// again or no instance waits.
func (q *Queue) sample(at time.Time) {
	depth, oldest := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.samples) > 1 && !q.samples[1].at.After(at.Add(-queueWindow)) {
		q.samples = q.samples[1:]
	}
	q.samples = append(q.samples, queueSample{at, depth, oldest})
	first := q.samples[0]
	grows := at.Sub(first.at) >= queueWindow && depth > first.depth && oldest > first.oldest
	q.raised = depth > 0 && oldest >= queueMinWait && (q.raised || grows)
}

// Alarms is the Source of the alarm of the queue. Groups without a node have one each, whose subject is their ID.
func (q *Queue) Alarms() []api.Alarm {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.raised {
		return nil
	}
	last := q.samples[len(q.samples)-1]
	list := []api.Alarm{{
		Name: api.AlarmQueueGrows, Count: last.depth,
		Message: fmt.Sprintf("The queue grows: %d instances are pending, the oldest for %s", last.depth,
			last.oldest.Round(time.Second)),
		Action: "Show why one waits: buildyard instance explain ID. Add nodes, or raise their capacity.",
	}}
	groups := q.nodeless()
	for _, g := range groups[:min(len(groups), maxNodeless)] {
		list = append(list, api.Alarm{
			Name: api.AlarmQueueGrows, Subject: g.ID, Count: g.Pending,
			Message: fmt.Sprintf("Group %s has no Active node, and instances wait for it: %d", g.Name, g.Pending),
			Action:  "Add a node to the group, or set its fallback group.",
		})
	}
	return list
}
