package controller

import (
	"sync"

	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/controller/placement"
	"github.com/buildyard/buildyard/internal/farm"
)

// blocker keeps instances from the scheduler that need more than a node.
type blocker struct{ c *Controller }

var _ placement.Blocker = blocker{}

// Blocked implements placement.Blocker: an operator has to decide about the orphaned VM of the
// instance first, or it waits for a MAC address.
func (b blocker) Blocked(i *farm.Instance) bool {
	return i.AwaitsPlacement() && b.c.Link.Orphans.Exist(i.ID) || b.c.MACs.Lacks(i)
}

// Reasons implements placement.Blocker.
func (b blocker) Reasons() func(i *farm.Instance) string {
	addresses := sync.OnceValue(b.c.MACs.Reasons)
	return func(i *farm.Instance) string {
		if b.c.Link.Orphans.Exist(i.ID) {
			return nodelink.Undecided
		}
		if why := addresses(); why != nil {
			return why(i)
		}
		return "" // it is not blocked any longer
	}
}

// Usage returns the usage of a node by VMs without a record.
func (b blocker) Usage(node string) placement.OtherUsage {
	load, unreported := b.c.Link.Orphans.Usage(node)
	return placement.OtherUsage{Orphans: load, Unreported: unreported}
}
