package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// The pace of what a node writes that only describes: its description, its address, texts and progress of its
// instances. Transitions of instances that are placed on it are not paced, see meaning.
const (
	writeBurst = 6                // writes without a pause
	writeEvery = 10 * time.Second // one more
	writeTime  = 15 * time.Second // for writes that were put off
)

// pacedWrites is what a node has said and is written later: the last of everything. The mutex of its session
// guards it.
type pacedWrites struct {
	used     int       // writes of the burst
	since    time.Time // when the oldest of these was made, or last given back
	armed    bool      // a timer writes what follows
	info     *farm.NodeInfo
	host     string
	statuses map[string]api.InstanceStatus // instance id -> its last status
}

// dropWrite forgets what was put off and is replaced now.
func (s *session) dropWrite(forget func(*pacedWrites)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	forget(&s.writes)
}

func (w *pacedWrites) addStatuses(statuses map[string]api.InstanceStatus) {
	if w.statuses == nil {
		w.statuses = map[string]api.InstanceStatus{}
	}
	maps.Copy(w.statuses, statuses)
}

// takeWrite reports whether the node may write now, and counts the write.
func (s *session) takeWrite(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes.take(now)
}

func (w *pacedWrites) take(now time.Time) bool {
	if back := int(now.Sub(w.since) / writeEvery); w.used > 0 && back > 0 {
		w.used = max(w.used-back, 0)
		w.since = w.since.Add(time.Duration(back) * writeEvery)
	}
	if w.used == 0 {
		w.since = now
	}
	if w.used >= writeBurst {
		return false
	}
	w.used++
	return true
}

// mayWrite reports whether the node may write now. If not, later notes what is to be written as soon as it may.
func (c *Controller) mayWrite(ctx context.Context, s *session, later func(*pacedWrites)) bool {
	now := c.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &s.writes
	if w.take(now) {
		return true
	}
	if s.dropped {
		return false
	}
	later(w)
	if !w.armed {
		w.armed = true
		time.AfterFunc(max(w.since.Add(writeEvery).Sub(now), time.Millisecond), func() { c.writeLater(context.WithoutCancel(ctx), s) })
	}
	return false
}

// writeLater writes what was put off, as far as the node may write now. When that fails the node is asked for
// everything.
func (c *Controller) writeLater(ctx context.Context, s *session) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	s.mu.Lock()
	info, host := s.writes.info, s.writes.host
	s.writes.info, s.writes.host, s.writes.armed = nil, "", false
	s.mu.Unlock()
	node, _, ok := c.tables.Nodes.Get(s.node)
	if !ok {
		return
	}

	var err error
	if info != nil {
		err = c.storeInfo(ctx, s, info)
	}
	if err == nil && host != "" {
		err = c.greet(ctx, s, node, host)
	}
	if statuses := s.takeStatuses(); err == nil && len(statuses) > 0 {
		err = c.applyStatuses(ctx, s, statuses)
	}
	if err != nil {
		c.log.WarnContext(ctx, "write of a node's description failed; the node is asked for everything",
			"node", s.node, "error", err)
		s.mu.Lock()
		s.infoHash, s.heldHash = "", ""
		s.mu.Unlock()
	}
}

// takeStatuses returns the statuses that were put off, and forgets them.
func (s *session) takeStatuses() []api.InstanceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Collect(maps.Values(s.writes.statuses))
	s.writes.statuses = nil
	return list
}

// statusMeaning is what a status changes.
type statusMeaning int

const (
	nothing     statusMeaning = iota
	description               // texts, figures, progress
	transition                // all else: written immediately
)

// meaning returns what a status changes, by the records as this replica has them. A transition is what can happen a
// bounded number of times for each order: a change of state but that between Scheduling and Pulling, the end of a task
// or a recall, the first word of a VM or of the outcome of a script.
func (c *Controller) meaning(status api.InstanceStatus) statusMeaning {
	inst, _, ok := c.tables.Instances.Get(status.InstanceID)
	if !ok {
		return nothing
	}
	w := work{inst: inst}
	if inst.Task != nil && inst.Task.Kind == farm.TaskSave {
		if w.save, _, ok = c.tables.Saves.Get(inst.Task.ID); !ok {
			return transition // the store knows
		}
	}
	next := advance(w, status, c.now())
	if next == w {
		return nothing
	}
	n := next.inst
	pulls := func(s farm.InstanceState) bool { return s == farm.Scheduling || s == farm.Pulling }
	switch {
	case n.State != inst.State && !(pulls(n.State) && pulls(inst.State)),
		(n.Task == nil) != (inst.Task == nil), n.Recall != inst.Recall,
		(n.VM == nil) != (inst.VM == nil), (n.Script == nil) != (inst.Script == nil):
		return transition
	case w.save != nil && (next.save.Status != w.save.Status || (next.save.Script == nil) != (w.save.Script == nil)):
		return transition
	}
	return description
}
