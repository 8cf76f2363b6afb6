package nodelink

import (
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
)

// Orphans decides about the orphaned VMs: those on nodes without a record that owns them.
type Orphans struct {
	db       record.DB
	opts     Options
	sessions *Sessions
	peers    *Peers

	guard orphanGuard // evaluates their share
}

// Undecided is the message of an instance that is pending while it has an orphaned VM.
const Undecided = "An orphaned VM of this instance exists; resolve with: buildyard node adopt"

// Load returns the load of the orphaned VMs on a node, which use capacity too. complete reports
// whether the node has sent its inventory to this replica; an inventory sent to another replica
// counts when the node has been in contact with that replica since.
func (o *Orphans) Load(node string) (load sched.Load, complete bool) {
	seen := time.Time{}
	if s := o.sessions.find(node); s != nil {
		s.mu.Lock()
		load, complete, seen = s.orphanLoadLocked(), !s.inventoryAt.IsZero(), s.lastContactLocked(o.db.Now())
		s.mu.Unlock()
	}
	if other, ok := o.peers.LaterReport(node, seen); ok {
		load = loadOf(other.orphans)
	}
	return load, complete
}

// Usage returns the load of the orphaned VMs on a node. Shortly after the start of this process, a
// node that has not sent its inventory may have any number of them: it is unreported, and gets no
// starts until it has sent it, or another replica is in contact with it. A node that does neither
// needs no starts.
func (o *Orphans) Usage(node string) (load sched.Load, unreported bool) {
	load, complete := o.Load(node)
	young := o.db.Now().Before(o.opts.Settled)
	return load, !complete && young && !o.peers.HasContact(node)
}

// Exist reports whether a node has an orphaned VM of an instance.
func (o *Orphans) Exist(instance string) bool { return o.sessions.orphans.has(instance) }

// MACs implements macpool.Orphans.
func (o *Orphans) MACs() map[farm.MAC]struct{} {
	list := map[farm.MAC]struct{}{}
	o.each(func(u orphan) {
		if a, ok := u.mac(); ok {
			list[a] = struct{}{}
		}
	})
	others, _ := o.peers.orphans()
	for _, s := range others {
		for _, a := range s.MACs {
			list[a] = struct{}{}
		}
	}
	return list
}

// each calls do for each orphaned VM that nodes have reported to this replica.
func (o *Orphans) each(do func(orphan)) {
	if o.sessions.orphans.none() {
		return
	}
	for _, s := range o.sessions.all() {
		s.mu.Lock()
		for _, u := range s.orphans {
			do(u)
		}
		s.mu.Unlock()
	}
}

// detailTime is how long a node has to send the details of an orphaned VM.
const detailTime = time.Minute

// Unidentified implements macpool.Orphans.
func (o *Orphans) Unidentified() bool {
	now := o.db.Now()
	_, more := o.peers.orphans()
	o.each(func(u orphan) { more = more || u.unidentified(now) })
	return more
}

// Unreported implements macpool.Orphans.
func (o *Orphans) Unreported() (node string, ok bool) {
	if !o.db.Now().Before(o.opts.Settled) {
		return "", false
	}
	for id, n := range o.db.Tables.Nodes.All() {
		if n.State == farm.NodeOffline {
			continue
		}
		if _, unreported := o.Usage(id); unreported {
			return n.Name, true
		}
	}
	return "", false
}
