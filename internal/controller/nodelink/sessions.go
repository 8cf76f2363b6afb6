package nodelink

import (
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

// Sessions has the state of each node whose agent polls this replica. Nothing of it is stored.
type Sessions struct {
	db     record.DB
	placer Placer

	mu     lockorder.Mutex[lockorder.NodeSessions] // guards byNode; each session has its own lock
	byNode map[string]*session

	orphans orphanIndex     // orphaned VMs on the nodes
	rollout *rolloutLimiter // of the nodes that pull for distributions
}

func newSessions(db record.DB, opts Options) *Sessions {
	return &Sessions{
		db: db, placer: opts.Placer, byNode: map[string]*session{},
		rollout: newRolloutLimiter(opts.DistributePulls),
	}
}

// session returns the session of a node; nil when the node does not exist: a late request must not
// bring the session of a removed one back.
func (n *Sessions) session(node string) *session {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.byNode[node]
	if s != nil {
		return s
	}
	if _, _, exists := n.db.Tables.Nodes.Get(node); !exists {
		return nil
	}
	s = &session{
		index: &n.orphans, rollout: n.rollout, node: node,
		orders: map[string]pendingOrder{}, orphans: map[string]orphan{}, wake: make(chan struct{}, 1),
	}
	n.byNode[node] = s
	return s
}

// Drop removes the session of a removed node; its waiting polls end.
func (n *Sessions) Drop(node string) {
	n.mu.Lock()
	s := n.byNode[node]
	delete(n.byNode, node)
	n.mu.Unlock()
	if s == nil {
		return
	}
	s.mu.Lock()
	s.dropped = true
	var orphans []string
	for id := range s.orphans {
		s.dropOrphanLocked(id)
		orphans = append(orphans, id)
	}
	s.mu.Unlock()
	s.signal()
	n.rollout.release(s)
	n.placer.Reconsider(orphans)
}

// Load reads the orders that were open before this process started.
func (n *Sessions) Load() {
	for _, inst := range n.db.Tables.Instances.All() {
		n.setOrder(inst)
	}
	for _, e := range n.db.Tables.CacheJobs.All() {
		n.setCacheJob(e)
	}
	for _, node := range n.db.Tables.Nodes.All() {
		n.followUpdate(nil, node)
	}
}

// Observe follows the records: an instance that needs an order wakes its node.
func (n *Sessions) Observe(events []store.Event) {
	for _, e := range events {
		switch {
		case e.Kind == record.KindNode && e.New == nil:
			n.Drop(e.ID) // also when another replica removed it
		case e.Kind == record.KindNode:
			old, _ := e.Old.(*farm.Node)
			if now, ok := e.New.(*farm.Node); ok {
				n.followUpdate(old, now)
			}
		case e.Kind == record.KindInstance:
			n.follow(e)
		case e.Kind == record.KindCacheJob:
			n.followCacheJob(e)
		case e.Kind == record.KindCacheJobResult:
			n.followCacheJobResult(e)
		}
	}
}

func (n *Sessions) follow(e store.Event) {
	if inst, ok := e.New.(*farm.Instance); ok {
		n.setOrder(inst)
	} else if old, ok := e.Old.(*farm.Instance); ok && old.NodeID != "" {
		if s := n.session(old.NodeID); s != nil {
			s.dropOrder(old.ID)
		}
	}
}

// setOrder updates the order that the node of an instance needs.
func (n *Sessions) setOrder(inst *farm.Instance) {
	if inst.NodeID == "" {
		return
	}
	s := n.session(inst.NodeID)
	if s == nil {
		return
	}
	kind := orderFor(inst)
	if kind == "" {
		s.clearOrder(inst)
		return
	}
	order := pendingOrder{kind: kind, claim: inst.Claim}
	if inst.Task != nil {
		order.task = inst.Task.ID
	}
	s.mu.Lock()
	s.dropOwnedLocked(inst)
	fresh := !s.orders[inst.ID].equals(order)
	if fresh {
		s.orders[inst.ID] = order
	}
	s.mu.Unlock()
	if fresh {
		s.signal()
	}
}

// Unacknowledged reports whether the node of an instance gets its orders here and has not
// acknowledged the one for it. Of a node that polls another replica this is not known.
func (n *Sessions) Unacknowledged(inst *farm.Instance) bool {
	s := n.find(inst.NodeID)
	if s == nil {
		return false
	}
	now := n.db.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.orders[inst.ID]
	return now.Sub(s.lastContactLocked(now)) <= ContactGap && !(d.acknowledged && d.claim == inst.Claim)
}

// usage returns the load that a node last reported, and when it was last in contact.
func (n *Sessions) usage(node string) (api.Usage, time.Time) {
	s := n.find(node)
	if s == nil {
		return api.Usage{}, time.Time{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usage, s.lastContactLocked(n.db.Now())
}

// HasContact reports whether a node is in contact with this replica.
func (n *Sessions) HasContact(node string) bool {
	_, contact := n.usage(node)
	return n.db.Now().Sub(contact) <= ContactGap
}

// find returns the session of a node; nil when it was never in contact.
func (n *Sessions) find(node string) *session {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.byNode[node]
}

// all returns every session.
func (n *Sessions) all() []*session {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.byNode))
}

// Signal makes the waiting poll of a node look for work.
func (n *Sessions) Signal(node string) {
	if s := n.find(node); s != nil {
		s.signal()
	}
}

// CountWrite counts a write of a node's record; farm.CodeTooMany when the node may not cause one now.
func (n *Sessions) CountWrite(node *farm.Node) error {
	if s := n.session(node.ID); s == nil || s.takeWrite(n.db.Now()) {
		return nil
	}
	return &farm.Error{
		Code: farm.CodeTooMany, RetryAfter: writeInterval,
		Message: fmt.Sprintf("Node %s changes too often; try again in %s", node.Name, writeInterval),
	}
}

// Pulling returns how many nodes pull for distributions.
func (n *Sessions) Pulling() int { return n.rollout.slots() }
