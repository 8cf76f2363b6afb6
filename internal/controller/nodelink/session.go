package nodelink

import (
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/lockorder"
	"github.com/buildyard/buildyard/internal/farm"
)

// session is the state of one node from its polls.
type session struct {
	index   *orphanIndex    // of all nodes
	rollout *rolloutLimiter // of all nodes

	describing lockorder.Mutex[lockorder.Description] // held while the description of the node is written

	mu            lockorder.Mutex[lockorder.NodeSession] // guards the fields below
	node          string
	boot          string // of the agent that polls for the node
	waiting       int    // polls
	disconnected  bool   // the last poll of boot was cut off
	dropped       bool   // the node was removed: its polls end
	lastContact   time.Time
	usage         api.Usage
	fills         map[string]api.DiskFill // instance id -> of its disks; replaced, never changed
	pulled        int64                   // bytes that the node has reported to this replica
	clock         nodeClock
	infoHash      string
	inventoryHash string
	inventoryAt   time.Time                  // when it last sent its inventory; zero: never
	vms           int                        // on the node, with a record or without
	orphans       map[string]orphan          // instance id, else VM id -> orphaned VM
	moreOrphans   int                        // of which only the number is stored
	orders        map[string]pendingOrder    // instance id -> the order it needs
	cacheJobs     map[string]pendingCacheJob // cache job id -> what the node is to be sent; nil: nothing
	consoles      map[string]pendingConsole  // session -> a console that the node is to show; nil: none
	wake          chan struct{}              // has a value when there may be new work
	lastPoll      *decodedPoll               // the last one that was short and unchanged; nil: none
	update        reportedUpdate
	writes        pacedWrites
}

// signal wakes the node's waiting poll.
func (s *session) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// takeoverAfter is how long an agent whose polls stopped, without a closed connection, blocks
// another agent with the same node id.
const takeoverAfter = 3 * time.Second

// recordContact records a contact of an agent. It refuses a second agent for the same node while the
// first one is in contact.
func (s *session) recordContact(boot string, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkAgentLocked(boot, now); err != nil {
		return err
	}
	if s.boot != boot {
		s.boot, s.infoHash, s.inventoryHash, s.update = boot, "", "", reportedUpdate{}
		s.resendOrdersLocked()
	}
	s.lastContact, s.disconnected = now, false
	if len(s.cacheJobs) > 0 {
		s.rollout.contact(s.node, now)
	}
	return nil
}

// resendOrdersLocked lets the acknowledged orders be sent once more to a new agent: its journal may
// be new as well. An agent that has them recognizes them as repeated.
func (s *session) resendOrdersLocked() {
	for id, d := range s.orders {
		d.acknowledged, d.sent = false, time.Time{}
		s.orders[id] = d
	}
	s.resendCacheJobsLocked()
}

// checkAgent refuses the reports of an agent whose node another agent serves.
func (s *session) checkAgent(boot string, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkAgentLocked(boot, now)
}

// checkAgentLocked returns the refusal of an agent whose node another agent serves.
func (s *session) checkAgentLocked(boot string, now time.Time) error {
	if s.boot == "" || s.boot == boot || s.waiting == 0 && (s.disconnected || now.Sub(s.lastContact) >= takeoverAfter) {
		return nil
	}
	return farm.Errorf(farm.CodeConflict,
		"Two agents use the identity of node %s: stop one of them", s.node)
}

// beginWait counts a waiting poll; the returned function ends it and records whether the agent
// disconnected.
func (s *session) beginWait() func(hungUp bool, now time.Time) {
	s.mu.Lock()
	s.waiting++
	boot := s.boot
	s.mu.Unlock()
	return func(hungUp bool, now time.Time) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiting--
		if s.boot != boot {
			return
		}
		s.disconnected = hungUp
		if !hungUp {
			s.lastContact = now
		}
	}
}

// removed reports whether the node is no longer in the cloud.
func (s *session) removed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// lastContactLocked returns the last contact: now while a poll waits.
func (s *session) lastContactLocked(now time.Time) time.Time {
	if s.waiting > 0 {
		return now
	}
	return s.lastContact
}
