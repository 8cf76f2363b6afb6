package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// Limits of a node's writes that only describe: its description, its address, texts and progress of
// its instances. Transitions of instances that are placed on it are not limited, see meaning.
const (
	writeBurst = 6                // writes without a pause
	writeEvery = 10 * time.Second // one more
	writeTime  = 15 * time.Second // for delayed writes
)

// pacedWrites holds the latest reports of a node that are written later. The mutex of its session
// guards it.
type pacedWrites struct {
	used     int       // writes of the burst
	since    time.Time // when the oldest of these was made, or one was last returned
	armed    bool      // a timer writes what follows
	info     *farm.NodeInfo
	base     *farm.NodeInfo // the record when info was delayed
	waited   bool           // info was delayed again for the statuses: it comes before them
	host     string
	statuses map[string]api.InstanceStatus // instance id -> its last status
}

// dropWrite removes a delayed write that a new one replaces.
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

// putBack keeps statuses whose write failed until the next write. Later ones of the same instances stay.
func (c *Controller) putBack(ctx context.Context, s *session, statuses []api.InstanceStatus) {
	if len(statuses) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := map[string]api.InstanceStatus{}
	for _, status := range statuses {
		if _, later := s.writes.statuses[status.InstanceID]; !later {
			old[status.InstanceID] = status
		}
	}
	s.writes.addStatuses(old)
	c.armLocked(ctx, s)
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

// mayWrite reports whether the node may write now. If not, later stores what is to be written as
// soon as it may.
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
	c.armLocked(ctx, s)
	return false
}

// armLocked starts a timer that writes the delayed reports as soon as the node may write.
func (c *Controller) armLocked(ctx context.Context, s *session) {
	w := &s.writes
	if w.armed || s.dropped {
		return
	}
	w.armed = true
	wait := max(w.since.Add(writeEvery).Sub(c.now()), time.Millisecond)
	time.AfterFunc(wait, func() { c.writeLater(context.WithoutCancel(ctx), s) })
}

// writeLater writes the delayed reports, as far as the node may write now. If that fails the node
// is asked for everything.
func (c *Controller) writeLater(ctx context.Context, s *session) {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	s.describing.Lock() // a poll with a newer report waits, and is written after this
	defer s.describing.Unlock()
	s.mu.Lock()
	w := &s.writes
	info, base, host, waited := w.info, w.base, w.host, w.waited
	w.info, w.base, w.host, w.waited, w.armed = nil, nil, "", false, false
	s.mu.Unlock()
	node, _, ok := c.tables.Nodes.Get(s.node)
	if !ok {
		return
	}

	statuses := func() error { return c.applyStatuses(ctx, s, s.takeStatuses()) }
	describe := func() error {
		putOff := func(w *pacedWrites) { w.info, w.base, w.waited = info, base, true }
		if info == nil || !c.mayWrite(ctx, s, putOff) {
			return nil
		}
		return c.writeInfo(ctx, s, info, base)
	}
	first, second := statuses, describe
	if waited {
		first, second = second, first
	}
	err := first()
	if err == nil {
		err = second()
	}
	if err == nil && host != "" && node.State != farm.NodeOffline { // Offline: its next poll has its address
		err = c.greet(ctx, s, node, host)
	}
	if err != nil {
		c.log.WarnContext(ctx, "write of a node's description failed; the node is asked for everything",
			"node", s.node, "error", err)
		s.mu.Lock()
		s.infoHash, s.heldHash = "", ""
		s.mu.Unlock()
	}
}

// takeStatuses removes and returns the delayed statuses.
func (s *session) takeStatuses() []api.InstanceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Collect(maps.Values(s.writes.statuses))
	s.writes.statuses = nil
	return list
}

// statusMeaning classifies the changes of a status.
type statusMeaning int

const (
	nothing     statusMeaning = iota
	description               // texts, numbers, progress
	transition                // all else: written immediately
)

// meaning returns what a status changes, by the records as this replica has them. A transition can
// happen a bounded number of times for each order: a change of state, but not that between
// Scheduling and Pulling nor that of a stopped VM that runs again; the end of what uses capacity on
// the node, of a task or of a recall; the first status of a VM before its start, or of the result
// of a script.
func (c *Controller) meaning(status api.InstanceStatus) statusMeaning {
	inst, _, ok := c.tables.Instances.Get(status.InstanceID)
	if !ok {
		return nothing
	}
	w := work{inst: inst}
	if inst.Task != nil && inst.Task.Kind == farm.TaskSave {
		if w.save, _, ok = c.tables.Saves.Get(inst.Task.ID); !ok {
			return transition // the store has it
		}
	}
	next := advance(w, status, c.now())
	if next == w {
		return nothing
	}
	n := next.inst
	pulls := func(s farm.InstanceState) bool { return s == farm.Scheduling || s == farm.Pulling }
	again := inst.State == farm.Stopped && (n.State == farm.Started || n.State == farm.Stopping)
	switch {
	case n.State != inst.State && !(pulls(n.State) && pulls(inst.State)) && !again,
		inst.UsesCapacity() && !n.UsesCapacity(),
		(n.Task == nil) != (inst.Task == nil), n.Recall != inst.Recall,
		n.VM != nil && inst.VM == nil && inst.Started.IsZero(), n.Script != nil && inst.Script == nil:
		return transition
	case w.save != nil && (next.save.Status != w.save.Status || (next.save.Script == nil) != (w.save.Script == nil)):
		return transition
	}
	return description
}
