package sched

import (
	"cmp"
	"time"
)

// versionClass is the requests of one version inside a request group, and the nodes that have some
// of its content. All other nodes are rated as for the rest of the request group.
type versionClass struct {
	group            *requestGroup
	version          version
	nodesWithContent nodeHeap
	pendingCount     int

	ownQueues      *fairQueue // its own queues, nil unless it had to wait for its version
	placeableSince time.Time  // when it could first be placed, but far from its version; zero: it could not yet
	isDeferred     bool       // it waits for its version
	retryLocality  bool       // while deferred: a node that has its version got better
	heapPos        int        // in Index.deferredClasses
}

func (c *versionClass) setHeapPos(pos int) { c.heapPos = pos }

// before orders waiting classes by the end of their wait.
func (c *versionClass) before(o *versionClass) bool {
	if d := c.placeableSince.Compare(o.placeableSince); d != 0 {
		return d < 0
	}
	return cmp.Less(c.version.contentID, o.version.contentID)
}

// scoreNode returns the score of a node that can take a request of the class now and has some content of
// its version.
func (c *versionClass) scoreNode(n *node) (Score, bool) {
	s, ok := c.group.scoreNode(n)
	if !ok {
		return s, false
	}
	s.Locality, s.MissingBytes = n.localityOf(c.version)
	return s, s.Locality != NothingCached
}

// updateNode adds a node that can take requests of the request group, or removes it.
func (c *versionClass) updateNode(n *node) {
	if s, ok := c.scoreNode(n); ok {
		c.nodesWithContent.setScore(n, s)
	} else {
		c.nodesWithContent.removeNode(n)
	}
}

// queuesToJoin returns the queues that the class's requests join.
func (c *versionClass) queuesToJoin() *fairQueue {
	if c.ownQueues != nil {
		return c.ownQueues
	}
	return c.group.mainQueue
}
