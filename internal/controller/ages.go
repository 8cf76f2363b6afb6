package controller

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/controller/lockorder"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/store"
)

// longestGap is the longest pause between two digests.
const longestGap = 15 * time.Second

// peerContacts has the node contacts that the other replicas report.
type peerContacts struct {
	c       *Controller
	replica string // of this process

	mu     lockorder.Mutex[lockorder.Peers] // guards others
	others map[string]peerDigest
}

// peerDigest is the last digest of one replica. Its times are by this process's clock.
type peerDigest struct {
	came  time.Time
	no    int64                 // of the digest
	alive bool                  // it was not the first digest: its replica is alive
	keeps bool                  // its replica held the lease
	nodes map[string]peerReport // by node id

	strange []record.OrphanReport // nodes with orphaned VMs
	vague   bool                  // there are more of these
	pulled  int64                 // bytes that its nodes have pulled since it runs
}

// strangely reports whether a digest contains orphaned VMs.
func (h peerDigest) strangely() bool { return len(h.strange) > 0 || h.vague }

func newAges(c *Controller) *peerContacts {
	return &peerContacts{c: c, replica: uuid.NewString(), others: map[string]peerDigest{}}
}

// every is the pause between two digests of one replica.
func (a *peerContacts) every() time.Duration { return min(a.c.opts.NodeTimeout/8, longestGap) }

// publish writes the digest of this replica's node contacts, as long as there is another replica. A
// replica without the lease knows that there is one; its digest, even an empty one, informs the
// leader.
func (a *peerContacts) publish(ctx context.Context) {
	tick := time.NewTicker(max(a.every(), ageUnit))
	defer tick.Stop()
	for no := int64(1); ; no++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if a.alone() {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, max(a.every(), time.Second))
		err := a.c.store.Commit(limited, store.Put(a.c.tables.Digests, a.replica, a.digest(no), store.Any))
		cancel()
		if err != nil && ctx.Err() == nil {
			a.c.log.WarnContext(ctx, "could not tell the other replicas which nodes are in contact", "error", err)
		}
	}
}

// alone reports whether no replica would read a digest: this one holds the lease and knows of no
// other.
func (a *peerContacts) alone() bool {
	if !a.c.keeping.Load() {
		return false
	}
	now := a.c.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.others {
		if h.alive && now.Sub(h.came) <= missing*a.every() {
			return false
		}
	}
	return true
}

// observe follows the digests of other replicas.
func (a *peerContacts) observe(events []store.Event) {
	for _, e := range events {
		switch d, ok := e.New.(*record.Digest); {
		case ok && e.ID != a.replica:
			a.hear(e.ID, d)
		case e.Kind == record.KindDigest && e.New == nil:
			a.forget(e.ID)
		}
	}
}

func (a *peerContacts) hear(replica string, d *record.Digest) {
	now := a.c.now()
	h := peerDigest{came: now, no: d.No, keeps: d.Keeps, nodes: readDigest(d,
		now), strange: d.Strange, vague: d.Vague, pulled: d.Pulled}
	a.mu.Lock()
	was, known := a.others[replica]
	h.alive = was.alive || known && was.no != h.no
	a.others[replica] = h
	a.mu.Unlock()
	if known && was.no != 0 {
		a.c.Usage.PulledElsewhere(h.pulled - was.pulled)
	}
	strange := h.strangely() || was.strangely() || !a.c.link.strangers.none()
	if strange || now.Before(a.c.settled()) {
		a.c.placer.TouchAll() // a node that another replica hears may take starts, and one with other VMs on it fewer
	}
	if strange {
		a.c.MACs.Retry()
	}
}

// forget drops a replica whose digest was removed.
func (a *peerContacts) forget(replica string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.others, replica)
}

// missing is the number of missed digests after which the state of a replica counts as unknown.
const missing = 3

// heard returns when a node was last in contact with another replica; zero when never. If the
// digests of a replica stop, its contacts are unknown: for its nodes, the time without contact
// counts from the moment at which the next digests were missed. If that replica was the leader, the
// new leader has started its timeouts again anyway.
func (a *peerContacts) heard(node string) (last time.Time) {
	now := a.c.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.others {
		t, ok := h.nodes[node]
		if !ok {
			continue
		}
		seen := t.seen
		if lost := h.came.Add(missing * a.every()); !lost.After(now) && !h.keeps {
			seen = lost
		}
		if seen.After(last) {
			last = seen
		}
	}
	return last
}

// elsewhere returns the report of another replica about a node, if that replica heard the node
// later than this one did, at here.
func (a *peerContacts) elsewhere(node string, here time.Time) (t peerReport, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.others {
		if other, has := h.nodes[node]; has && other.seen.After(here) {
			t, ok, here = other, true, other.seen
		}
	}
	return t, ok
}

// cacheJobProgress returns the progress of a node with a cache job, as other replicas report it.
func (a *peerContacts) cacheJobProgress(node, cacheJob string) (most float64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.others {
		most = max(most, h.nodes[node].pulls[cacheJob])
	}
	return most
}

// strangers returns the orphaned VMs on nodes that other replicas hear. vague reports whether there
// may be more than those replicas have reported; a replica that has stopped reporting does not
// count.
func (a *peerContacts) strangers() (list []record.OrphanReport, vague bool) {
	now := a.c.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.others {
		list = append(list, h.strange...)
		fresh := now.Sub(h.came) <= missing*a.every()
		vague = vague ||
			fresh && (h.vague || slices.ContainsFunc(h.strange, func(s record.OrphanReport) bool { return s.Vague }))
	}
	return list, vague
}

// hears reports whether another live replica has heard a node. The digest of one that died before
// this process began does not count.
func (a *peerContacts) hears(node string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.others {
		if _, ok := h.nodes[node]; ok && h.alive {
			return true
		}
	}
	return false
}

// tidy removes the digests of replicas that have been silent for so long that nothing depends on
// them.
func (a *peerContacts) tidy(ctx context.Context, w *record.Term, now time.Time) error {
	alone := a.alone()
	a.mu.Lock()
	var gone []string
	for replica := range a.c.tables.Digests.All() {
		if h, ok := a.others[replica]; replica == a.replica && alone ||
			(ok && now.Sub(h.came) > 2*a.c.opts.NodeTimeout+missing*a.every()) {
			gone = append(gone, replica)
			delete(a.others, replica)
		} else if !ok && replica != a.replica { // written before this process began
			a.others[replica] = peerDigest{came: now}
		}
	}
	a.mu.Unlock()
	for _, replica := range gone {
		if err := w.Commit(ctx, store.Delete(a.c.tables.Digests, replica, store.Any)); err != nil {
			return err
		}
	}
	return nil
}
