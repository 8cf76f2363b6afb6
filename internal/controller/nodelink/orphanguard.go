package nodelink

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
)

const (
	// maxOrphanShare is the share of orphaned VMs above which none is removed: such a number is more
	// likely caused by a wrong data directory than by leaks.
	maxOrphanShare = 0.2
	// suspectOrphans is how many orphaned VMs make one node suspect where they are more than
	// maxOrphanShare of its VMs, however few they are of the whole cloud.
	suspectOrphans = 3
	// assessInterval is how often the share is counted again, at most.
	assessInterval = time.Second
	// suspectNodes is the share of the nodes, one at least, that may report wrongly without an effect on the others.
	suspectNodes = 0.1
	// maxAlarms bounds how many nodes the status names.
	maxAlarms = 10
)

// assessment is the result of comparing the shares of orphaned VMs.
type assessment struct {
	at           time.Time
	orphans, vms int             // of the whole cloud
	silent       int             // nodes that should have sent their inventory and did not
	kept         map[string]bool // ids of the nodes on which nothing may be removed
	many         bool            // these are more than wrong nodes alone explain: the records are suspect
}

// orphanGuard caches the last evaluation, so that many polls share one.
type orphanGuard struct {
	mu      lockorder.Mutex[lockorder.OrphanGuard]
	last    assessment
	alarmed record.LogLimiter
}

// assess counts the VMs on the nodes, at most once per second: it reads every session and no
// instance.
func (o *Orphans) assess() assessment {
	now := o.db.Now()
	o.guard.mu.Lock()
	defer o.guard.mu.Unlock()
	if j := o.guard.last; !j.at.IsZero() && now.Sub(j.at) < assessInterval {
		return j
	}
	var shares []nodeOrphanCount
	reported := map[string]bool{}
	for _, s := range o.sessions.all() {
		if n, ok := o.share(s, now); ok {
			reported[s.node], shares = true, append(shares, n)
		}
	}
	j := assessOrphanRatios(shares)
	j.at = now
	if now.Before(o.opts.Settled) {
		for id, node := range o.db.Tables.Nodes.All() {
			if node.State != farm.NodeOffline && !reported[id] {
				j.silent++
			}
		}
	}
	o.guard.last = j
	return j
}

// nodeOrphanCount is how many of the VMs on a node are orphaned.
type nodeOrphanCount struct {
	node         string
	orphans, vms int
}

// exceeds reports whether too many VMs are orphaned for a leak.
func (n nodeOrphanCount) exceeds() bool {
	return n.orphans > 0 && float64(n.orphans) > maxOrphanShare*float64(n.vms)
}

// suspect reports whether so many VMs of one node are orphaned that it must report wrongly.
func (n nodeOrphanCount) suspect() bool { return n.orphans >= suspectOrphans && n.exceeds() }

func (n nodeOrphanCount) minus(o nodeOrphanCount) nodeOrphanCount {
	return nodeOrphanCount{n.node, n.orphans - o.orphans, n.vms - o.vms}
}

// assessOrphanRatios finds the nodes on which nothing may be removed. Nodes may report falsely: the VMs of
// each node are counted together with those of all others except the wrong ones, which are the
// tenth of the nodes (at least one) with the most orphaned VMs.
func assessOrphanRatios(shares []nodeOrphanCount) assessment {
	j := assessment{kept: map[string]bool{}}
	shares = slices.Clone(shares)
	slices.SortFunc(shares, func(a, b nodeOrphanCount) int {
		return cmp.Or(cmp.Compare(b.orphans, a.orphans), cmp.Compare(a.node, b.node))
	})
	wrong := max(1, int(float64(len(shares))*suspectNodes))
	all := nodeOrphanCount{}
	for _, n := range shares {
		all.orphans, all.vms = all.orphans+n.orphans, all.vms+n.vms
	}
	worst := nodeOrphanCount{} // those of the first ones
	for _, n := range shares[:min(wrong, len(shares))] {
		worst.orphans, worst.vms = worst.orphans+n.orphans, worst.vms+n.vms
	}
	for i, n := range shares {
		others := all.minus(worst)
		if i < wrong { // it is one of them: the next node takes its position, and its own VMs count
			others.orphans, others.vms = others.orphans+n.orphans, others.vms+n.vms
			if wrong < len(shares) && shares[wrong].orphans > 0 {
				others = others.minus(shares[wrong])
			}
		}
		if n.suspect() || n.orphans > 0 && others.exceeds() {
			j.kept[n.node] = true
		}
	}
	j.orphans, j.vms, j.many = all.orphans, all.vms, len(j.kept) > wrong
	return j
}

// share returns the share of one node; ok is false for one that has not sent its inventory, or that
// is no longer in contact. VMs that an operator released do not count as orphaned, since they are
// being removed.
func (o *Orphans) share(s *session, now time.Time) (n nodeOrphanCount, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inventoryAt.IsZero() || now.Sub(s.lastContactLocked(now)) >= o.opts.NodeTimeout {
		return n, false
	}
	n = nodeOrphanCount{s.node, s.moreOrphans, s.vms}
	for id := range s.orphans {
		if !o.IsReleased(s.node, id) {
			n.orphans++
		}
	}
	return n, true
}

// mayRemove is the guard against a controller with the wrong records and against a node that
// reports wrongly. It allows nothing before every node that should be in contact has reported, or
// one full timeout has passed since the start.
func (o *Orphans) mayRemove(ctx context.Context, s *session) bool {
	j := o.assess()
	if j.silent > 0 {
		return false
	}
	n, _ := o.share(s, j.at) // the evaluation may be a second old
	if !j.kept[s.node] && !n.suspect() {
		return true
	}
	switch {
	case !o.alarmDue():
	case j.many:
		o.db.Log.ErrorContext(ctx, "orphan removal suspended: VMs of many nodes are orphaned; "+
			"check the data directory, then decide with: buildyard node adopt",
			"alarm", api.AlarmOrphans, "nodes", len(j.kept), "orphaned_vms", j.orphans, "vms", j.vms)
	default:
		o.db.Log.ErrorContext(ctx,
			"orphan removal suspended: many VMs of a node are orphaned; decide with: buildyard node adopt",
			"alarm", api.AlarmOrphans, "node_id", s.node, "orphaned_vms", n.orphans, "vms", n.vms)
	}
	return false
}

// alarmDue reports whether the last alarm in the log is long enough ago.
func (o *Orphans) alarmDue() bool {
	_, due := o.guard.alarmed.Due(1, o.db.Now())
	return due
}

// Alarms returns the pending decisions about orphaned VMs as alarms: one for each node, or
// one for all when there are so many that the records are suspect.
func (o *Orphans) Alarms() (list []api.Alarm) {
	j := o.assess()
	if j.many {
		message := fmt.Sprintf("%d of %d VMs are orphaned; "+
			"those of %d nodes are kept until an operator decides: buildyard node adopt",
			j.orphans, j.vms, len(j.kept))
		return []api.Alarm{{
			Name: api.AlarmOrphans, Message: message, Action: "Keep or remove them: buildyard node adopt.",
		}}
	}
	for _, id := range slices.Sorted(maps.Keys(j.kept))[:min(len(j.kept), maxAlarms)] {
		node, _, ok := o.db.Tables.Nodes.Get(id)
		s := o.sessions.find(id)
		if !ok || s == nil {
			continue
		}
		n, _ := o.share(s, j.at)
		list = append(list, api.Alarm{
			Name: api.AlarmOrphans, Subject: id, Action: "Keep or remove them: buildyard node adopt " + node.Name + ".",
			Message: fmt.Sprintf("%d of %d VMs of node %s are orphaned and are kept until an operator decides: "+
				"buildyard node adopt %s",
				n.orphans, n.vms, node.Name, node.Name),
		})
	}
	return list
}

// Total returns the number of orphaned VMs on the nodes.
func (o *Orphans) Total() int { return o.assess().orphans }
