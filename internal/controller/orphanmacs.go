package controller

import (
	"time"

	"github.com/buildyard/buildyard/internal/controller/macpool"
	"github.com/buildyard/buildyard/internal/farm"
)

// orphanMACs reports the addresses of orphaned VMs, on nodes of all replicas.
type orphanMACs struct{ c *Controller }

var _ macpool.Orphans = orphanMACs{}

// MACs implements macpool.Orphans.
func (o orphanMACs) MACs() map[farm.MAC]struct{} {
	list := map[farm.MAC]struct{}{}
	o.each(func(u orphan) {
		if a, ok := u.mac(); ok {
			list[a] = struct{}{}
		}
	})
	others, _ := o.c.ages.strangers()
	for _, s := range others {
		for _, a := range s.MACs {
			list[a] = struct{}{}
		}
	}
	return list
}

// each calls do for each orphaned VM that nodes have reported to this replica.
func (o orphanMACs) each(do func(orphan)) {
	if o.c.link.strangers.none() {
		return
	}
	for _, s := range o.c.link.all() {
		s.mu.Lock()
		for _, u := range s.unknown {
			do(u)
		}
		s.mu.Unlock()
	}
}

// strangerTime is how long a node has to send the details of an orphaned VM.
const strangerTime = time.Minute

// Unidentified implements macpool.Orphans.
func (o orphanMACs) Unidentified() bool {
	now := o.c.now()
	_, vague := o.c.ages.strangers()
	o.each(func(u orphan) { vague = vague || u.unidentified(now) })
	return vague
}

// Unreported implements macpool.Orphans.
func (o orphanMACs) Unreported() (node string, ok bool) {
	if !o.c.now().Before(o.c.settled()) {
		return "", false
	}
	for id, n := range o.c.tables.Nodes.All() {
		if n.State != farm.NodeOffline && o.c.besideOn(id).Untold {
			return n.Name, true
		}
	}
	return "", false
}
