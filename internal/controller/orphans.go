package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/lockorder"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

const (
	// unknownGuard is the share of orphaned VMs above which none is removed: such a number is more
	// likely caused by a wrong data directory than by leaks.
	unknownGuard = 0.2
	// suspectVMs is how many orphaned VMs make one node suspect where they are more than
	// unknownGuard of its VMs, however few they are of the whole cloud.
	suspectVMs = 3
	// judgeEvery is how often the share is counted again, at most.
	judgeEvery = time.Second
	// wrongNodes is the share of the nodes, one at least, that may report wrongly without an effect on the others.
	wrongNodes = 0.1
	// maxAlarms bounds how many nodes the status names.
	maxAlarms = 10
)

// countOrphans counts one more report of orphaned VMs. It orders a removal when the VM was reported
// often and long enough, the guard allows it, and the store itself has no record of it. For a VM
// that an operator released, the store check alone decides.
func (c *Controller) countOrphans(ctx context.Context, s *session) {
	ripe, released := c.removableOrphans(s)
	if len(ripe) > 0 && !c.Maintenance.On() && c.mayRemove(ctx, s) {
		released = append(released, ripe...)
	}
	for _, id := range released {
		c.removeUnknown(ctx, s, id)
	}
}

// removableOrphans counts a report, and returns the VMs that were reported often and long enough,
// and those that an operator released.
func (c *Controller) removableOrphans(s *session) (ripe, released []string) {
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
		case u.reports >= c.opts.UnknownReports && now.Sub(c.Maintenance.After(u.since)) >= c.opts.UnknownAge:
			ripe = append(ripe, id)
		}
	}
	return ripe, released
}

// removeUnknown orders the removal of an orphaned VM, once the store itself has no record of it.
func (c *Controller) removeUnknown(ctx context.Context, s *session, id string) {
	inst, _, err := c.tables.Instances.GetLinearizable(ctx, id)
	if err != nil || (inst != nil && inst.NodeID == s.node && inst.OnNode()) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u, still := s.unknown[id]
	if _, ordered := s.due[id]; ordered || !still || u.keeping {
		return
	}
	c.log.WarnContext(ctx, "removing orphaned VM", "node", s.node, "instance", id)
	s.due[id] = pendingOrder{kind: api.OrderTerminate}
	s.ring()
}

// orphanAssessment is the result of comparing the shares of orphaned VMs.
type orphanAssessment struct {
	at            time.Time
	strange, held int             // of the whole cloud
	silent        int             // nodes that should have sent their inventory and did not
	kept          map[string]bool // ids of the nodes on which nothing may be removed
	many          bool            // these are more than wrong nodes alone explain: the records are suspect
}

// orphanGuard caches the last evaluation, so that many polls share one.
type orphanGuard struct {
	mu      lockorder.Mutex[lockorder.OrphanGuard]
	last    orphanAssessment
	alarmed record.LogLimiter
}

// judged counts the VMs on the nodes, at most once per second: it reads every session and no
// instance.
func (c *Controller) judged() orphanAssessment {
	now := c.now()
	c.judge.mu.Lock()
	defer c.judge.mu.Unlock()
	if j := c.judge.last; !j.at.IsZero() && now.Sub(j.at) < judgeEvery {
		return j
	}
	var shares []nodeShare
	met := map[string]bool{}
	for _, s := range c.link.all() {
		if n, ok := c.share(s, now); ok {
			met[s.node], shares = true, append(shares, n)
		}
	}
	j := judgeShares(shares)
	j.at = now
	if now.Sub(c.started) < c.opts.NodeTimeout {
		for id, node := range c.tables.Nodes.All() {
			if node.State != farm.NodeOffline && !met[id] {
				j.silent++
			}
		}
	}
	c.judge.last = j
	return j
}

// nodeShare is how many of the VMs on a node are orphaned.
type nodeShare struct {
	node          string
	strange, held int
}

// exceeds reports whether too many VMs are orphaned for a leak.
func (n nodeShare) exceeds() bool {
	return n.strange > 0 && float64(n.strange) > unknownGuard*float64(n.held)
}

// suspect reports whether so many VMs of one node are orphaned that it must report wrongly.
func (n nodeShare) suspect() bool { return n.strange >= suspectVMs && n.exceeds() }

func (n nodeShare) minus(o nodeShare) nodeShare {
	return nodeShare{n.node, n.strange - o.strange, n.held - o.held}
}

// judgeShares finds the nodes on which nothing may be removed. Nodes may report falsely: the VMs of
// each node are counted together with those of all others except the wrong ones, which are the
// tenth of the nodes (at least one) with the most orphaned VMs.
func judgeShares(shares []nodeShare) orphanAssessment {
	j := orphanAssessment{kept: map[string]bool{}}
	shares = slices.Clone(shares)
	slices.SortFunc(shares, func(a, b nodeShare) int {
		return cmp.Or(cmp.Compare(b.strange, a.strange), cmp.Compare(a.node, b.node))
	})
	wrong := max(1, int(float64(len(shares))*wrongNodes))
	all := nodeShare{}
	for _, n := range shares {
		all.strange, all.held = all.strange+n.strange, all.held+n.held
	}
	worst := nodeShare{} // those of the first ones
	for _, n := range shares[:min(wrong, len(shares))] {
		worst.strange, worst.held = worst.strange+n.strange, worst.held+n.held
	}
	for i, n := range shares {
		others := all.minus(worst)
		if i < wrong { // it is one of them: the next node takes its position, and its own VMs count
			others.strange, others.held = others.strange+n.strange, others.held+n.held
			if wrong < len(shares) && shares[wrong].strange > 0 {
				others = others.minus(shares[wrong])
			}
		}
		if n.suspect() || n.strange > 0 && others.exceeds() {
			j.kept[n.node] = true
		}
	}
	j.strange, j.held, j.many = all.strange, all.held, len(j.kept) > wrong
	return j
}

// share returns the share of one node; ok is false for one that has not sent its inventory, or that
// is no longer in contact. VMs that an operator released do not count as orphaned, since they are
// being removed.
func (c *Controller) share(s *session, now time.Time) (n nodeShare, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.met.IsZero() || now.Sub(s.seenLocked(now)) >= c.opts.NodeTimeout {
		return n, false
	}
	n = nodeShare{s.node, s.unkept, s.holds}
	for id := range s.unknown {
		if !c.isReleased(s.node, id) {
			n.strange++
		}
	}
	return n, true
}

// mayRemove is the guard against a controller with the wrong records and against a node that
// reports wrongly. It allows nothing before every node that should be in contact has reported, or
// one full timeout has passed since the start.
func (c *Controller) mayRemove(ctx context.Context, s *session) bool {
	j := c.judged()
	if j.silent > 0 {
		return false
	}
	n, _ := c.share(s, j.at) // the evaluation may be a second old
	if !j.kept[s.node] && !n.suspect() {
		return true
	}
	switch {
	case !c.alarmDue():
	case j.many:
		c.log.ErrorContext(ctx, "orphan removal suspended: VMs of many nodes are orphaned; "+
			"check the data directory, then decide with: buildyard node adopt",
			"alarm", api.AlarmOrphans, "nodes", len(j.kept), "unknown", j.strange, "held", j.held)
	default:
		c.log.ErrorContext(ctx,
			"orphan removal suspended: many VMs of a node are orphaned; decide with: buildyard node adopt",
			"alarm", api.AlarmOrphans, "node", s.node, "unknown", n.strange, "held", n.held)
	}
	return false
}

// alarmDue reports whether the last alarm in the log is long enough ago.
func (c *Controller) alarmDue() bool {
	_, due := c.judge.alarmed.Due(1, c.now())
	return due
}

// unknownAlarms returns the pending decisions about orphaned VMs as alarms: one for each node, or
// one for all when there are so many that the records are suspect.
func (c *Controller) unknownAlarms() (list []api.Alarm) {
	j := c.judged()
	if j.many {
		message := fmt.Sprintf("%d of %d VMs are orphaned; "+
			"those of %d nodes are kept until an operator decides: buildyard node adopt",
			j.strange, j.held, len(j.kept))
		return alarmOf(api.AlarmOrphans, message, "Keep or remove them: buildyard node adopt.")
	}
	for _, id := range slices.Sorted(maps.Keys(j.kept))[:min(len(j.kept), maxAlarms)] {
		node, _, ok := c.tables.Nodes.Get(id)
		s := c.link.find(id)
		if !ok || s == nil {
			continue
		}
		n, _ := c.share(s, j.at)
		list = append(list, api.Alarm{
			Name: api.AlarmOrphans, Subject: id, Action: "Keep or remove them: buildyard node adopt " + node.Name + ".",
			Message: fmt.Sprintf("%d of %d VMs of node %s are orphaned and are kept until an operator decides: "+
				"buildyard node adopt %s",
				n.strange, n.held, node.Name, node.Name),
		})
	}
	return list
}

// keepReleased is how long a release is valid if the VM is not seen to be removed.
const keepReleased = 7 * 24 * time.Hour

func (c *Controller) isReleased(node, id string) bool {
	_, _, ok := c.tables.Released.Get(record.ReleasedOrphanID(node, id))
	return ok
}

// forgetReleased deletes the records of released VMs that are removed.
func (c *Controller) forgetReleased(ctx context.Context, node string, gone []string) {
	for _, id := range gone {
		if !c.isReleased(node, id) {
			continue
		}
		if err := c.store.Commit(ctx, store.Delete(c.tables.Released, record.ReleasedOrphanID(node, id),
			store.Any)); err != nil {
			c.log.WarnContext(ctx, "could not forget a released VM; it is forgotten later", "instance", id, "error",
				err)
		}
	}
}

// tidyReleased deletes the records of VMs that were released long ago.
func (c *Controller) tidyReleased(ctx context.Context, w *record.Term, now time.Time) error {
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
