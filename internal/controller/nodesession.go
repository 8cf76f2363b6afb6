package controller

import (
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/lockorder"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// nodeSessions is the controller's side of the node API: the state of each node's agent while it
// polls. Nothing of it is stored; after a restart every node sends its description again and every
// order that is still needed is sent again.
type nodeSessions struct {
	c *Controller

	mu       lockorder.Mutex[lockorder.NodeSessions] // guards sessions; each session has its own lock
	sessions map[string]*session

	strangers orphanIndex     // orphaned VMs on the nodes
	waves     *rolloutLimiter // of the nodes that pull for distributions
}

func newLink(c *Controller) *nodeSessions {
	return &nodeSessions{c: c, sessions: map[string]*session{}, waves: newWaves(c.opts.DistributeAtOnce)}
}

// session is the state of one node from its polls.
type session struct {
	strangers *orphanIndex    // of all nodes
	waves     *rolloutLimiter // of all nodes

	describing lockorder.Mutex[lockorder.Description] // held while the description of the node is written

	mu        lockorder.Mutex[lockorder.NodeSession] // guards what follows
	node      string
	boot      string // of the agent that polls for the node
	parked    int    // waiting polls
	left      bool   // the last poll of boot was cut off
	dropped   bool   // the node was removed: its polls end
	seen      time.Time
	usage     api.Usage
	infoHash  string
	heldHash  string
	due       map[string]pendingOrder // instance id -> the order it needs
	cacheJobs map[string]cacheJobDue  // cache job id -> what the node is to be sent; nil: nothing
	unknown   map[string]orphan       // instance id, else VM id -> orphaned VM
	unkept    int                     // more of these, of which only the number is stored
	holds     int                     // VMs on the node, with a record or without
	met       time.Time               // when it last sent its inventory; zero: never
	wake      chan struct{}           // has a value when there may be new orders
	heard     *decodedPoll            // the last poll that was short and unchanged; nil: none
	update    reportedUpdate
	writes    pacedWrites
	consoles  map[string]pendingConsole // session -> a console that the node is to show; nil: none
}

// pendingOrder is an order that a node has not carried out yet.
type pendingOrder struct {
	kind  api.OrderKind
	claim string
	task  string    // of a save or a restart
	sent  time.Time // zero: not yet
	taken bool      // it is in the node's journal and is not sent again
}

// session returns the session of a node; nil when the node does not exist: a late request must not
// bring the session of a removed one back.
func (l *nodeSessions) session(node string) *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sessions[node]
	if s == nil && l.c.nodeExists(node) {
		s = &session{
			strangers: &l.strangers, waves: l.waves,
			node: node, due: map[string]pendingOrder{}, unknown: map[string]orphan{}, wake: make(chan struct{}, 1),
		}
		l.sessions[node] = s
	}
	return s
}

// drop removes the session of a removed node; its waiting polls end.
func (l *nodeSessions) drop(node string) {
	l.mu.Lock()
	s := l.sessions[node]
	delete(l.sessions, node)
	l.mu.Unlock()
	if s == nil {
		return
	}
	s.mu.Lock()
	s.dropped = true
	var unknown []string
	for id := range s.unknown {
		s.dropUnknownLocked(id)
		unknown = append(unknown, id)
	}
	s.mu.Unlock()
	s.ring()
	l.waves.leave(s)
	l.c.placer.Reconsider(unknown)
}

func (s *session) ring() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// load reads the orders that were open before this process started.
func (l *nodeSessions) load() {
	for _, inst := range l.c.tables.Instances.All() {
		l.want(inst)
	}
	for _, e := range l.c.tables.CacheJobs.All() {
		l.wantCacheJob(e)
	}
	for _, n := range l.c.tables.Nodes.All() {
		l.followUpdate(nil, n)
	}
}

// observe follows the records: an instance that needs an order wakes its node.
func (l *nodeSessions) observe(events []store.Event) {
	for _, e := range events {
		switch {
		case e.Kind == record.KindNode && e.New == nil:
			l.drop(e.ID) // also when another replica removed it
		case e.Kind == record.KindNode:
			old, _ := e.Old.(*farm.Node)
			if now, ok := e.New.(*farm.Node); ok {
				l.followUpdate(old, now)
			}
		case e.Kind == record.KindInstance:
			l.follow(e)
		case e.Kind == record.KindCacheJob:
			l.followCacheJob(e)
		case e.Kind == record.KindCacheJobResult:
			l.followOutcome(e)
		}
	}
}

func (l *nodeSessions) follow(e store.Event) {
	if inst, ok := e.New.(*farm.Instance); ok {
		l.want(inst)
	} else if old, ok := e.Old.(*farm.Instance); ok && old.NodeID != "" {
		if s := l.session(old.NodeID); s != nil {
			s.drop(old.ID)
		}
	}
}

// taskOrders are the orders of the tasks.
var taskOrders = map[farm.TaskKind]api.OrderKind{
	farm.TaskSave: api.OrderSave, farm.TaskRestart: api.OrderRestart,
}

// orderFor returns the kind of order that a node needs for an instance as it is; "" for none.
func orderFor(inst *farm.Instance) api.OrderKind {
	switch {
	case inst.State == farm.Terminating, inst.Recall:
		return api.OrderTerminate
	case inst.State == farm.Scheduling && inst.StatusNo == 0:
		return api.OrderStart
	case inst.Task != nil:
		return taskOrders[inst.Task.Kind]
	default:
		return ""
	}
}

func (l *nodeSessions) want(inst *farm.Instance) {
	if inst.NodeID == "" {
		return
	}
	s := l.session(inst.NodeID)
	if s == nil {
		return
	}
	kind := orderFor(inst)
	if kind == "" {
		s.forget(inst)
		return
	}
	want := pendingOrder{kind: kind, claim: inst.Claim}
	if inst.Task != nil {
		want.task = inst.Task.ID
	}
	s.mu.Lock()
	s.ownedLocked(inst)
	fresh := !s.due[inst.ID].same(want)
	if fresh {
		s.due[inst.ID] = want
	}
	s.mu.Unlock()
	if fresh {
		s.ring()
	}
}

// forget processes a record that needs no order.
func (s *session) forget(inst *farm.Instance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ownedLocked(inst)
	delete(s.due, inst.ID)
}

// drop withdraws the order for an instance whose record is removed.
func (s *session) drop(instance string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.due, instance)
}

// untaken reports whether the node of an instance gets its orders here and has not acknowledged the
// one for it. Of a node that polls another replica this is not known.
func (l *nodeSessions) untaken(inst *farm.Instance) bool {
	s := l.find(inst.NodeID)
	if s == nil {
		return false
	}
	now := l.c.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.due[inst.ID]
	return now.Sub(s.seenLocked(now)) <= contactGap && !(d.taken && d.claim == inst.Claim)
}

// same reports whether two pending orders are the same order.
func (d pendingOrder) same(o pendingOrder) bool {
	return d.kind == o.kind && d.claim == o.claim && d.task == o.task
}

// acknowledge marks the orders that the node has in its journal. A terminate order is sent again
// until the node reports that it is done, but not before the resend time has passed.
func (s *session) acknowledge(acks []api.Ack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range acks {
		d, ok := s.due[a.InstanceID]
		if ok && d.kind != api.OrderTerminate && d.same(pendingOrder{kind: a.Kind, claim: a.Claim, task: a.Task}) {
			d.taken = true
			s.due[a.InstanceID] = d
		}
	}
}

// has records that a node has an instance: it received the start order, perhaps from an earlier
// controller process.
func (s *session) has(h api.InventoryItem) {
	s.acknowledge([]api.Ack{{InstanceID: h.InstanceID, Claim: h.Claim, Kind: api.OrderStart}})
}

// maxOrders bounds one response; the rest comes with the next poll.
const maxOrders = 200

// take marks the orders that are to be sent now and returns them with the time at which the next
// one is due again.
func (s *session) take(now time.Time, resend time.Duration) (ids []string, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, d := range s.due {
		if d.taken {
			continue
		}
		if again := d.sent.Add(resend); !d.sent.IsZero() && now.Before(again) {
			if next.IsZero() || again.Before(next) {
				next = again
			}
			continue
		}
		if len(ids) == maxOrders {
			return ids, now
		}
		d.sent = now
		s.due[id] = d
		ids = append(ids, id)
	}
	return ids, next
}

// takenOverAfter is how long an agent whose polls stopped, without a closed connection, blocks
// another agent with the same node id.
const takenOverAfter = 3 * time.Second

// contact records a contact of an agent. It refuses a second agent for the same node while the
// first one is in contact.
func (s *session) contact(boot string, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.rivalLocked(boot, now); err != nil {
		return err
	}
	if s.boot != boot {
		s.boot, s.infoHash, s.heldHash, s.update = boot, "", "", reportedUpdate{}
		s.offerAgainLocked()
	}
	s.seen, s.left = now, false
	if len(s.cacheJobs) > 0 {
		s.waves.heard(s.node, now)
	}
	return nil
}

// offerAgainLocked lets the acknowledged orders be sent once more to a new agent: its journal may
// be new as well. An agent that has them recognizes them as repeated.
func (s *session) offerAgainLocked() {
	for id, d := range s.due {
		d.taken, d.sent = false, time.Time{}
		s.due[id] = d
	}
	s.offerCacheJobsLocked()
}

// mayReport refuses the reports of an agent whose node another agent serves.
func (s *session) mayReport(boot string, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rivalLocked(boot, now)
}

// rivalLocked returns the refusal of an agent whose node another agent serves.
func (s *session) rivalLocked(boot string, now time.Time) error {
	if s.boot == "" || s.boot == boot || s.parked == 0 && (s.left || now.Sub(s.seen) >= takenOverAfter) {
		return nil
	}
	return farm.Errorf(farm.CodeConflict,
		"Another agent already speaks for node %s; a node id must not be used twice: stop one of them", s.node)
}

// park counts a waiting poll; the returned function ends it and records whether the agent
// disconnected.
func (s *session) park() func(hungUp bool, now time.Time) {
	s.mu.Lock()
	s.parked++
	boot := s.boot
	s.mu.Unlock()
	return func(hungUp bool, now time.Time) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.parked--
		if s.boot != boot {
			return
		}
		s.left = hungUp
		if !hungUp {
			s.seen = now
		}
	}
}

// removed reports whether the node is no longer in the cloud.
func (s *session) removed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// usage returns the load that a node last reported, and when it was last in contact.
func (l *nodeSessions) usage(node string) (api.Usage, time.Time) {
	s := l.find(node)
	if s == nil {
		return api.Usage{}, time.Time{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usage, s.seenLocked(l.c.now())
}

// seenLocked returns the last contact: now while a poll waits.
func (s *session) seenLocked(now time.Time) time.Time {
	if s.parked > 0 {
		return now
	}
	return s.seen
}
