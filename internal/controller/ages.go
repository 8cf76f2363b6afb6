package controller

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/internal/store"
)

// Digest says how long ago each node was in contact with one replica. Only replicas
// that do not hold the lease write theirs: whoever gives the verdicts must know what
// the others hear, and where there are no others nothing is written.
type Digest struct {
	No    int64  `json:"no"`    // grows, so that no two are equal
	Nodes []byte `json:"nodes"` // 16 bytes of the node's id, 2 of the age in units of ageUnit, and so on
}

const (
	ageUnit    = 100 * time.Millisecond
	ageBytes   = 18
	maxAges    = 40000 // nodes of a digest, so that it fits a transaction
	longestGap = 15 * time.Second
)

// ages is what the other replicas have heard of the nodes.
type ages struct {
	c       *Controller
	replica string // of this process

	mu     sync.Mutex // guards others
	others map[string]heardBy
}

// heardBy is the last digest of one replica. Its times are of our own clock.
type heardBy struct {
	came  time.Time
	no    int64                // of the digest
	alive bool                 // it was not the first one: its replica lives
	nodes map[string]time.Time // node id -> last contact
}

func newAges(c *Controller) *ages {
	return &ages{c: c, replica: uuid.NewString(), others: map[string]heardBy{}}
}

// every is the pause between two digests of one replica.
func (a *ages) every() time.Duration { return min(a.c.opts.NodeTimeout/8, longestGap) }

// publish writes what this replica hears, as long as another one gives the verdicts.
func (a *ages) publish(ctx context.Context) {
	tick := time.NewTicker(max(a.every(), ageUnit))
	defer tick.Stop()
	for no := int64(1); ; no++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		nodes := a.digest()
		if a.c.keeping.Load() || len(nodes) == 0 {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, max(a.every(), time.Second))
		err := a.c.store.Commit(limited, store.Put(a.c.tables.Digests, a.replica, &Digest{No: no, Nodes: nodes}, store.Any))
		cancel()
		if err != nil && ctx.Err() == nil {
			a.c.log.WarnContext(ctx, "could not tell the other replicas which nodes are in contact", "error", err)
		}
	}
}

// digest writes out the nodes that this replica has heard within their time-out.
func (a *ages) digest() []byte {
	now := a.c.now()
	var b []byte
	for node, seen := range a.c.link.contacts() {
		age := now.Sub(seen)
		id, err := uuid.Parse(node)
		if err != nil || age > a.c.opts.NodeTimeout || len(b) == maxAges*ageBytes {
			continue
		}
		units := min(age/ageUnit, 1<<16-1)
		b = binary.BigEndian.AppendUint16(append(b, id[:]...), uint16(units))
	}
	return b
}

// observe follows the digests of other replicas.
func (a *ages) observe(events []store.Event) {
	for _, e := range events {
		switch d, ok := e.New.(*Digest); {
		case ok && e.ID != a.replica:
			a.hear(e.ID, d)
		case e.Kind == kindDigest && e.New == nil:
			a.forget(e.ID)
		}
	}
}

func (a *ages) hear(replica string, d *Digest) {
	now := a.c.now()
	h := heardBy{came: now, no: d.No, nodes: make(map[string]time.Time, len(d.Nodes)/ageBytes)}
	for b := d.Nodes; len(b) >= ageBytes; b = b[ageBytes:] {
		age := time.Duration(binary.BigEndian.Uint16(b[16:])) * ageUnit
		h.nodes[uuid.UUID(b[:16]).String()] = now.Add(-age)
	}
	a.mu.Lock()
	was, known := a.others[replica]
	h.alive = was.alive || known && was.no != h.no
	a.others[replica] = h
	a.mu.Unlock()
	if now.Before(a.c.settled()) {
		a.c.placer.touchAll() // a node that somebody hears may take starts
	}
}

// forget drops a replica whose digest was removed.
func (a *ages) forget(replica string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.others, replica)
}

// missing is after how many digests that did not come a replica counts as unknown.
const missing = 3

// heard gives when a node was last in contact with another replica; zero when never.
// What a replica knows whose digests stay away is not known: for the nodes that it
// heard, silence counts from the moment at which the next digests were missed.
func (a *ages) heard(node string) (last time.Time) {
	now := a.c.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.others {
		seen, ok := h.nodes[node]
		if !ok {
			continue
		}
		if lost := h.came.Add(missing * a.every()); !lost.After(now) {
			seen = lost
		}
		if seen.After(last) {
			last = seen
		}
	}
	return last
}

// hears says whether another replica that lives has heard a node. The digest of one that
// died before this process began tells nothing of now.
func (a *ages) hears(node string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.others {
		if _, ok := h.nodes[node]; ok && h.alive {
			return true
		}
	}
	return false
}

// tidy forgets replicas that have been silent for so long that nothing depends on them.
func (a *ages) tidy(ctx context.Context, w store.Writer, now time.Time) error {
	a.mu.Lock()
	var gone []string
	for replica := range a.c.tables.Digests.All() {
		if h, ok := a.others[replica]; replica == a.replica || (ok && now.Sub(h.came) > 2*a.c.opts.NodeTimeout+missing*a.every()) {
			gone = append(gone, replica)
			delete(a.others, replica)
		} else if !ok { // written before this process began
			a.others[replica] = heardBy{came: now}
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
