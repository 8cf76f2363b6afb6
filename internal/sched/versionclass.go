package sched

import (
	"cmp"
	"time"
)

// versionClass is the requests of one version inside a request group, and the nodes that have some
// of its content. All other nodes are rated as for the rest of the request group.
type versionClass struct {
	pool    *requestGroup
	version version
	near    nodeHeap
	waiting int

	line  *fairQueue // its own queues, nil unless it had to wait for its version
	since time.Time  // when it could first be placed, but far from its version; zero: it could not yet
	held  bool       // it waits for its version
	warm  bool       // while deferred: a node that has its version got better
	pos   int        // in Index.deferredClasses
}

func (c *versionClass) moved(pos int) { c.pos = pos }

// before orders waiting classes by the end of their wait.
func (c *versionClass) before(o *versionClass) bool {
	if d := c.since.Compare(o.since); d != 0 {
		return d < 0
	}
	return cmp.Less(c.version.content, o.version.content)
}

// rate returns the score of a node that can take a request of the class now and has some content of
// its version.
func (c *versionClass) rate(n *node) (Score, bool) {
	s, ok := c.pool.rate(n)
	if !ok {
		return s, false
	}
	s.Locality, s.Missing = n.has(c.version)
	return s, s.Locality != NothingCached
}

// look adds a node that can take requests of the request group, or removes it.
func (c *versionClass) look(n *node) {
	if s, ok := c.rate(n); ok {
		c.near.put(n, s)
	} else {
		c.near.drop(n)
	}
}

// queues returns the queues that the class's requests join.
func (c *versionClass) queues() *fairQueue {
	if c.line != nil {
		return c.line
	}
	return c.pool.main
}
