package controller

import (
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/controller/placement"
	"github.com/buildyard/buildyard/internal/farm"
)

// blocker keeps instances from the scheduler that need more than a node.
type blocker struct{ c *Controller }

var _ placement.Blocker = blocker{}

// Blocked implements placement.Blocker: an operator has to decide about the orphaned VM of the
// instance first, or it waits for a MAC address.
func (b blocker) Blocked(i *farm.Instance) bool {
	return i.Waiting() && b.c.link.strangers.has(i.ID) || b.c.MACs.Lacks(i)
}

// Reasons implements placement.Blocker.
func (b blocker) Reasons() func(i *farm.Instance) string {
	addresses := sync.OnceValue(b.c.MACs.Reasons)
	return func(i *farm.Instance) string {
		if b.c.link.strangers.has(i.ID) {
			return undecided
		}
		if why := addresses(); why != nil {
			return why(i)
		}
		return "" // it is not blocked any longer
	}
}

// besideOn returns the usage of a node that has no record. Shortly after the start of this process,
// a node that has not sent its inventory may have any number of orphaned VMs: it gets no starts
// until it has sent it, or another replica hears it. A node that does neither needs no starts.
func (c *Controller) besideOn(node string) placement.OtherUsage {
	foreign, told := c.foreign(node)
	young := c.now().Before(c.settled())
	return placement.OtherUsage{Foreign: foreign, Untold: !told && young && !c.ages.hears(node)}
}

// settled returns when a node that should be in contact has been heard, or is Offline.
func (c *Controller) settled() time.Time { return c.started.Add(c.opts.NodeTimeout) }
