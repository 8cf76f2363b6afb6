package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const (
	// unknownGuard is the share of unknown VMs above which none is removed: that many
	// are rather the sign of a wrong data directory than of so many leaks.
	unknownGuard = 0.2
	// suspectVMs is how many unknown VMs make one node suspect where they are more
	// than that share of its own, however few they are of the whole cloud.
	suspectVMs = 3
	// judgeEvery is how often the share is counted anew, at most.
	judgeEvery = time.Second
	// maxAlarms bounds how many nodes the status names.
	maxAlarms = 10
	// alarmEvery is the least time between two alarms in the log.
	alarmEvery = time.Minute
)

// recount counts one more report of what nobody owns, and orders its removal when it
// was reported often and long enough, the guard lets it go, and the store itself says
// that it is nobody's. What an operator released needs none of the first three.
func (c *Controller) recount(ctx context.Context, s *session) {
	ripe, released := c.ripe(s)
	if len(ripe) > 0 && !c.maintenance() && c.mayRemove(ctx, s) {
		released = append(released, ripe...)
	}
	for _, id := range released {
		c.removeUnknown(ctx, s, id)
	}
}

// ripe counts a report, and gives what was reported often and long enough, and what an
// operator released.
func (c *Controller) ripe(s *session) (ripe, released []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unknown) == 0 {
		return nil, nil
	}
	now := c.now()
	for id, u := range s.unknown {
		u.reports++
		s.unknown[id] = u
		if _, ordered := s.due[id]; ordered || u.keeping {
			continue
		}
		switch {
		case c.isReleased(s.node, id):
			released = append(released, id)
		case u.reports >= c.opts.UnknownReports && now.Sub(c.afterMaintenance(u.since)) >= c.opts.UnknownAge:
			ripe = append(ripe, id)
		}
	}
	return ripe, released
}

// removeUnknown orders the removal of what no record owns, once the store itself says so.
func (c *Controller) removeUnknown(ctx context.Context, s *session, id string) {
	inst, _, err := c.tables.Instances.GetLinearizable(ctx, id)
	if err != nil || (inst != nil && inst.NodeID == s.node && inst.Live()) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u, still := s.unknown[id]
	if _, ordered := s.due[id]; ordered || !still || u.keeping {
		return
	}
	c.log.WarnContext(ctx, "removing a VM that nobody owns", "node", s.node, "instance", id)
	s.due[id] = due{kind: api.OrderTerminate}
	s.ring()
}

// judgement is what the share of unknown VMs of the whole cloud says.
type judgement struct {
	at            time.Time
	strange, held int
	silent        int      // nodes that should have said what they hold and did not
	tooMany       bool     // nothing may be removed
	wrong         []string // ids of the nodes on which nothing may be removed
}

// unknownJudge keeps the last judgement, so that many polls share one.
type unknownJudge struct {
	mu      sync.Mutex
	last    judgement
	alarmed pace
}

// judged counts what the nodes hold, at most once a second: it looks at every node
// and at no instance.
func (c *Controller) judged() judgement {
	now := c.now()
	c.judge.mu.Lock()
	defer c.judge.mu.Unlock()
	if j := c.judge.last; !j.at.IsZero() && now.Sub(j.at) < judgeEvery {
		return j
	}
	j := judgement{at: now}
	met := map[string]bool{}
	for _, s := range c.link.all() {
		strange, held, ok := c.share(s, now)
		if ok {
			met[s.node], j.strange, j.held = true, j.strange+strange, j.held+held
		}
		if suspect(strange, held) {
			j.wrong = append(j.wrong, s.node)
		}
	}
	if now.Sub(c.started) < c.opts.NodeTimeout {
		for id, node := range c.tables.Nodes.All() {
			if node.State != farm.NodeOffline && !met[id] {
				j.silent++
			}
		}
	}
	j.tooMany = exceeds(j.strange, j.held)
	c.judge.last = j
	return j
}

// share gives how much of what a node holds nobody owns; ok is false for one that has
// not said it, or that is not in contact any more. What an operator released does not
// count as unknown: it is going.
func (c *Controller) share(s *session, now time.Time) (strange, held int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.met.IsZero() || now.Sub(s.seenLocked(now)) >= c.opts.NodeTimeout {
		return 0, 0, false
	}
	for id := range s.unknown {
		if !c.isReleased(s.node, id) {
			strange++
		}
	}
	return strange, s.holds, true
}

func exceeds(strange, held int) bool {
	return strange > 0 && float64(strange) > unknownGuard*float64(held)
}

// suspect says whether a node of which so much is unknown reports wrongly.
func suspect(strange, held int) bool { return strange >= suspectVMs && exceeds(strange, held) }

// mayRemove is the guard against a controller with the wrong records and against a
// node that reports wrongly. Nothing is judged before every node that should be there
// has reported, or one full time-out has passed since the start.
func (c *Controller) mayRemove(ctx context.Context, s *session) bool {
	j := c.judged()
	strange, held, _ := c.share(s, j.at)
	wrong := suspect(strange, held)
	switch {
	case j.silent > 0:
		return false
	case j.tooMany && c.alarmDue():
		c.log.ErrorContext(ctx, "ALARM: many VMs belong to nobody; none is removed: is this the right data directory? If it is, decide with: buildyard node adopt",
			"unknown", j.strange, "held", j.held)
	case wrong && c.alarmDue():
		c.log.ErrorContext(ctx, "ALARM: many VMs of a node belong to nobody; none of them is removed: decide with: buildyard node adopt",
			"node", s.node, "unknown", strange, "held", held)
	}
	return !j.tooMany && !wrong
}

// alarmDue says whether the last alarm in the log is long enough ago.
func (c *Controller) alarmDue() bool {
	_, due := c.judge.alarmed.due(1, c.now())
	return due
}

// unknownAlarms returns what an operator has to decide about VMs that nobody owns.
func (c *Controller) unknownAlarms() (list []api.Alarm) {
	j := c.judged()
	if j.tooMany {
		message := fmt.Sprintf("%d of %d VMs belong to nobody and are kept until an operator decides: buildyard node adopt", j.strange, j.held)
		return alarmOf(api.AlarmOrphans, message, "Keep or remove them: buildyard node adopt.")
	}
	for _, id := range slices.Sorted(slices.Values(j.wrong))[:min(len(j.wrong), maxAlarms)] {
		if node, _, ok := c.tables.Nodes.Get(id); ok {
			list = append(list, api.Alarm{
				Name: api.AlarmOrphans, Subject: id, Action: "Keep or remove them: buildyard node adopt " + node.Name + ".",
				Message: fmt.Sprintf("many VMs of node %s belong to nobody and are kept until an operator decides: buildyard node adopt %s", node.Name, node.Name),
			})
		}
	}
	return list
}

// Released is the word of an operator that a VM which nobody owns goes in spite of the
// guard.
type Released struct {
	At time.Time `json:"at"`
}

// keepReleased is how long such a word holds where the VM is not seen to go.
const keepReleased = 7 * 24 * time.Hour

func releasedID(node, id string) string { return node + "." + id }

func (c *Controller) isReleased(node, id string) bool {
	_, _, ok := c.tables.Released.Get(releasedID(node, id))
	return ok
}

// forgetReleased drops what was released and is gone.
func (c *Controller) forgetReleased(ctx context.Context, node string, gone []string) {
	for _, id := range gone {
		if !c.isReleased(node, id) {
			continue
		}
		if err := c.store.Commit(ctx, store.Delete(c.tables.Released, releasedID(node, id), store.Any)); err != nil {
			c.log.WarnContext(ctx, "could not forget a released VM; it is forgotten later", "instance", id, "error", err)
		}
	}
}

// tidyReleased drops what was released long ago.
func (c *Controller) tidyReleased(ctx context.Context, w *reign, now time.Time) error {
	for id, r := range c.tables.Released.All() {
		if now.Sub(r.At) <= keepReleased {
			continue
		}
		if err := w.Commit(ctx, store.Delete(c.tables.Released, id, store.Any)); err != nil {
			return err
		}
	}
	return nil
}
