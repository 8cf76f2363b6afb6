package alarms

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
)

// The conditions of the alarm of the queue.
const (
	queueWindow  = 5 * time.Minute // over which the queue has to grow
	queueMinWait = 5 * time.Minute // of the oldest pending instance
	maxNodeless  = 3               // groups without a node that its text names
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

// Alarms is the Source of the alarm of the queue.
func (q *Queue) Alarms() []api.Alarm {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.raised {
		return nil
	}
	last := q.samples[len(q.samples)-1]
	var message strings.Builder
	fmt.Fprintf(&message, "The queue grows: %d instances are pending, the oldest for %s",
		last.depth, last.oldest.Round(time.Second))
	action := "Show why one waits: buildyard instance explain ID. Add nodes, or raise their capacity."
	if groups := q.nodeless(); len(groups) > 0 {
		for _, g := range groups[:min(len(groups), maxNodeless)] {
			fmt.Fprintf(&message, "; %d are for group %s, which has no Active node", g.Pending, g.Name)
		}
		action = fmt.Sprintf("Add a node to group %s, or set its fallback group. %s", groups[0].Name, action)
	}
	return []api.Alarm{{
		Name: api.AlarmQueueGrows, Count: last.depth,
		Message: message.String(), Action: action,
	}}
}
