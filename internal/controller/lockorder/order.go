package lockorder

// Place is a place in the order.
type Place interface{ place() int }

// The places. Their order is that of this list: place returns the position in it.
type (
	// NodeScan is held while the results of a node's host scanner are replaced.
	NodeScan struct{}
	// Description is held while the description of a node is written.
	Description struct{}
	// OrphanGuard guards the share of orphaned VMs.
	OrphanGuard struct{}
	// Permits is held while a change of the placement policy is applied.
	Permits struct{}
	// Placer guards the index of the scheduler.
	Placer struct{}
	// MACPool guards the managed MAC addresses.
	MACPool struct{}
	// Console guards a console session.
	Console struct{}
	// NodeSessions guards the sessions of the nodes, as a map.
	NodeSessions struct{}
	// NodeSession guards the session of one node.
	NodeSession struct{}
	// Rollout guards the nodes that pull for distributions.
	Rollout struct{}
	// Orphans guards the index of orphaned VMs.
	Orphans struct{}
	// Peers guards the digests of other replicas.
	Peers struct{}
	// Watches guards the watches of instances, as a set.
	Watches struct{}
	// Watch guards one watch.
	Watch struct{}
	// Counters guards the counters of instances.
	Counters struct{}
	// Series guards the utilization over time.
	Series struct{}
)

func (NodeScan) place() int     { return 1 }
func (Description) place() int  { return 2 }
func (OrphanGuard) place() int  { return 3 }
func (Permits) place() int      { return 4 }
func (Placer) place() int       { return 5 }
func (MACPool) place() int      { return 6 }
func (Console) place() int      { return 7 }
func (NodeSessions) place() int { return 8 }
func (NodeSession) place() int  { return 9 }
func (Rollout) place() int      { return 10 }
func (Orphans) place() int      { return 11 }
func (Peers) place() int        { return 12 }
func (Watches) place() int      { return 13 }
func (Watch) place() int        { return 14 }
func (Counters) place() int     { return 15 }
func (Series) place() int       { return 16 }
