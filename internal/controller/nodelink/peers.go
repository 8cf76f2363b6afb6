package nodelink

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/controller/lockorder"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/store"
)

// MaxDigestInterval is the longest pause between two digests.
const MaxDigestInterval = 15 * time.Second

// ContactGap is the longest time without contact after which a node still counts as in contact. For
// a node that polls another replica, this replica's information is as old as the last digest, and
// the next digest comes up to a MaxDigestInterval later. If only that gap were allowed such a node
// would seem out of contact before each digest, and what is delayed while a node is out of contact
// would be delayed indefinitely.
const ContactGap = 2 * MaxDigestInterval

// Peers has the node contacts that the other replicas report.
type Peers struct {
	db       record.DB
	opts     Options
	sessions *Sessions
	replica  string // of this process

	mu     lockorder.Mutex[lockorder.Peers] // guards others
	others map[string]peerDigest
}

// peerDigest is the last digest of one replica. Its times are by this process's clock.
type peerDigest struct {
	received time.Time
	no       int64                 // of the digest
	alive    bool                  // it was not the first digest: its replica is alive
	leader   bool                  // its replica held the lease
	nodes    map[string]PeerReport // by node id

	orphans []record.OrphanReport // nodes with orphaned VMs
	more    bool                  // there are more of these
	pulled  int64                 // bytes that its nodes have pulled since it runs

	nodesPulled map[string]int64 // node id -> the same of the node
}

// hasOrphans reports whether a digest contains orphaned VMs.
func (h peerDigest) hasOrphans() bool { return len(h.orphans) > 0 || h.more }

// countPulls returns the bytes that nodes have pulled since the previous digest. Nodes that are not in the
// new one keep their count, since they may come back.
func (h *peerDigest) countPulls(was peerDigest) (more map[string]int64) {
	more, h.nodesPulled = map[string]int64{}, maps.Clone(was.nodesPulled)
	if h.nodesPulled == nil {
		h.nodesPulled = map[string]int64{}
	}
	for node, t := range h.nodes {
		if t.pulled > h.nodesPulled[node] {
			more[node] = t.pulled - h.nodesPulled[node]
			h.nodesPulled[node] = t.pulled
		}
	}
	return more
}

func newPeers(db record.DB, opts Options, sessions *Sessions) *Peers {
	return &Peers{
		db: db, opts: opts, sessions: sessions, replica: uuid.NewString(), others: map[string]peerDigest{},
	}
}

// interval is the pause between two digests of one replica.
func (p *Peers) interval() time.Duration { return min(p.opts.NodeTimeout/8, MaxDigestInterval) }

// Publish writes the digest of this replica's node contacts, as long as there is another replica. A
// replica without the lease knows that there is one; its digest, even an empty one, informs the
// leader.
func (p *Peers) Publish(ctx context.Context) {
	tick := time.NewTicker(max(p.interval(), ageUnit))
	defer tick.Stop()
	for no := int64(1); ; no++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if p.alone() {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, max(p.interval(), time.Second))
		err := p.db.Store.Commit(limited, store.Put(p.db.Tables.Digests, p.replica, p.digest(no), store.Any))
		cancel()
		if err != nil && ctx.Err() == nil {
			p.db.Log.WarnContext(ctx, "reporting node contacts to other replicas failed", "error", err)
		}
	}
}

// alone reports whether no replica would read a digest: this one holds the lease and knows of no
// other.
func (p *Peers) alone() bool {
	if !p.opts.IsLeader() {
		return false
	}
	now := p.db.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.others {
		if h.alive && now.Sub(h.received) <= missedDigests*p.interval() {
			return false
		}
	}
	return true
}

// Observe follows the digests of other replicas.
func (p *Peers) Observe(events []store.Event) {
	for _, e := range events {
		switch d, ok := e.New.(*record.Digest); {
		case ok && e.ID != p.replica:
			p.setDigest(e.ID, d)
		case e.Kind == record.KindDigest && e.New == nil:
			p.dropDigest(e.ID)
		}
	}
}

func (p *Peers) setDigest(replica string, d *record.Digest) {
	now := p.db.Now()
	h := peerDigest{
		received: now, no: d.No, leader: d.Keeps, nodes: readDigest(d, now),
		orphans: d.Orphans, more: d.Vague, pulled: d.Pulled,
	}
	p.mu.Lock()
	was, known := p.others[replica]
	h.alive = was.alive || known && was.no != h.no
	more := h.countPulls(was)
	p.others[replica] = h
	p.mu.Unlock()
	if known && was.no != 0 {
		p.opts.Pulls.PulledElsewhere(h.pulled - was.pulled)
		for node, bytes := range more {
			p.opts.Pulls.NodePulledElsewhere(node, bytes)
		}
	}
	orphans := h.hasOrphans() || was.hasOrphans() || !p.sessions.orphans.none()
	if orphans || now.Before(p.opts.Settled) {
		// a node that another replica hears may take starts, and one with other VMs on it fewer
		p.opts.Placer.TouchAll()
	}
	if orphans {
		p.opts.RetryMACs()
	}
}

// dropDigest drops a replica whose digest was removed.
func (p *Peers) dropDigest(replica string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.others, replica)
}

// missedDigests is the number of missed digests after which the state of a replica counts as unknown.
const missedDigests = 3

// LastContact returns when a node was last in contact with another replica; zero when never. If the
// digests of a replica stop, its contacts are unknown: for its nodes, the time without contact
// counts from the moment at which the next digests were missed. If that replica was the leader, the
// new leader has started its timeouts again anyway.
func (p *Peers) LastContact(node string) (last time.Time) {
	now := p.db.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.others {
		t, ok := h.nodes[node]
		if !ok {
			continue
		}
		seen := t.LastContact
		if lost := h.received.Add(missedDigests * p.interval()); !lost.After(now) && !h.leader {
			seen = lost
		}
		if seen.After(last) {
			last = seen
		}
	}
	return last
}

// LaterReport returns the report of another replica about a node, if the node was in contact
// with that one later than here, when it was with this one.
func (p *Peers) LaterReport(node string, here time.Time) (t PeerReport, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.others {
		if other, has := h.nodes[node]; has && other.LastContact.After(here) {
			t, ok, here = other, true, other.LastContact
		}
	}
	return t, ok
}

// cacheJobProgress returns the progress of a node with a cache job, as other replicas report it.
func (p *Peers) cacheJobProgress(node, cacheJob string) (most float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.others {
		most = max(most, h.nodes[node].pulls[cacheJob])
	}
	return most
}

// orphans returns the orphaned VMs on nodes that poll other replicas. more reports whether there
// may be more than those replicas have reported; a replica that has stopped reporting does not
// count.
func (p *Peers) orphans() (list []record.OrphanReport, more bool) {
	now := p.db.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.others {
		list = append(list, h.orphans...)
		fresh := now.Sub(h.received) <= missedDigests*p.interval()
		more = more ||
			fresh && (h.more || slices.ContainsFunc(h.orphans, func(s record.OrphanReport) bool { return s.Vague }))
	}
	return list, more
}

// HasContact reports whether a node was in contact with another live replica. The digest of a replica
// that died before this process began does not count.
func (p *Peers) HasContact(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.others {
		if _, ok := h.nodes[node]; ok && h.alive {
			return true
		}
	}
	return false
}

// Prune removes the digests of replicas that have been silent for so long that nothing depends on
// them.
func (p *Peers) Prune(ctx context.Context, w *record.Term, now time.Time) error {
	alone := p.alone()
	p.mu.Lock()
	var gone []string
	for replica := range p.db.Tables.Digests.All() {
		if h, ok := p.others[replica]; replica == p.replica && alone ||
			(ok && now.Sub(h.received) > 2*p.opts.NodeTimeout+missedDigests*p.interval()) {
			gone = append(gone, replica)
			delete(p.others, replica)
		} else if !ok && replica != p.replica { // written before this process began
			p.others[replica] = peerDigest{received: now}
		}
	}
	p.mu.Unlock()
	for _, replica := range gone {
		if err := w.Commit(ctx, store.Delete(p.db.Tables.Digests, replica, store.Any)); err != nil {
			return err
		}
	}
	return nil
}
