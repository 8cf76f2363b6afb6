package nodes

import (
	"context"
	"iter"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/store"
)

// Options configure Nodes. All fields are set.
type Options struct {
	RegistryAddress string        // sent to nodes that join
	UpdateKeys      func() string // public keys of the signers of agent packages
	Announcement    func() *api.CloudAnnouncement

	Tokens   Tokens
	Link     Link
	Sessions Sessions
	Orphans  func(node string) (load sched.Load, complete bool) // the orphaned VMs on a node
	// OrphanedVMs returns those of them that the node has reported to this replica.
	OrphanedVMs func(node *farm.Node) []record.OrphanedVM
	Devices     func(nodes ...string) [][]farm.USBDevice // with those that instances use as busy
	// PeerReports returns how many nodes got wrong bytes of versions from a node, and whether none is to read from it.
	PeerReports func(node string) (readers int, excluded bool)

	// ResolveGroups returns the ids of groups that are given by name or id, with the conditions that
	// they still exist.
	ResolveGroups func(ctx context.Context, names []string) (ids []string, checks []store.Change, err error)
	// FailInstance ends an instance whose node was removed; farm.CodeNotFound when it has ended since.
	FailInstance func(ctx context.Context, id string) error
	// WithEvent returns a writer whose commits carry an event as well.
	WithEvent func(w store.Writer, event func() farm.Event) store.Writer
}

// Tokens are the join tokens.
type Tokens interface {
	// Admit returns the changes with which a transaction uses a token; farm.CodeUnauthenticated for a token that is
	// not valid.
	Admit(secret string) ([]store.Change, error)
	// Permanent returns the permanent token; "" when this replica does not have it.
	Permanent() string
}

// Link is what the node API knows of nodes.
type Link interface {
	// Authenticate returns the record of a node that presents its credential; farm.CodeUnauthenticated
	// for any other.
	Authenticate(id, credential string) (*farm.Node, error)
	// Usage returns the load that a node reports, and when it was last in contact.
	Usage(node *farm.Node) (load api.Usage, contact time.Time)
}

// Sessions are the sessions of the nodes that poll this replica.
type Sessions interface {
	// UpdateStage returns the stage of a node's update in words; "" when that is not known.
	UpdateStage(node *farm.Node) string
	// ClockOffset returns by how much a node's clock is ahead of the controller's.
	ClockOffset(node string) (offset time.Duration, known bool)
	// CountWrite counts a write of a node's record; farm.CodeTooMany when it changes too often.
	CountWrite(node *farm.Node) error
	// Drop ends the session of a removed node.
	Drop(id string)
}

// Nodes are the nodes of a cloud.
type Nodes struct {
	db   record.DB
	opts Options
}

// New returns the nodes in a database.
func New(db record.DB, opts Options) *Nodes { return &Nodes{db: db, opts: opts} }

// View is a node with its present state.
type View struct {
	Node   *farm.Node
	Info   farm.NodeInfo // zero until the node has described itself
	Groups []*farm.Group
	Usage  api.Usage
	Seen   time.Time // last contact; zero when there was none since this replica started

	VCPULimit, RAMLimit int // MB; what VMs may have together in the capacity mode resource, 0 in the other one

	// ClockOffset is by how much its clock is ahead of the controller's, in whole seconds; nil when that is not known.
	ClockOffset *time.Duration

	Unknown   int    // orphaned VMs
	Stage     string // of an update of its agent, in words; "" without one, or when it is not known here
	Remaining int    // of a drained node: the instances that still use capacity there

	Slots Slots

	PeerReports  int  // nodes that got wrong bytes of versions from it
	PeerExcluded bool // no node is to read from it
}

// Views yields all nodes in the order of their ids.
func (n *Nodes) Views() iter.Seq[View] {
	return func(yield func(View) bool) {
		for _, node := range n.db.Tables.Nodes.All() {
			if !yield(n.view(node)) {
				return
			}
		}
	}
}

// Records yields the records of all nodes in the order of their ids.
func (n *Nodes) Records() iter.Seq[*farm.Node] {
	return func(yield func(*farm.Node) bool) {
		for _, node := range n.db.Tables.Nodes.All() {
			if !yield(node) {
				return
			}
		}
	}
}

// Get returns one node; farm.CodeNotFound when there is none.
func (n *Nodes) Get(ctx context.Context, id string) (View, error) {
	node, _, err := record.Lookup(ctx, n.db.Tables.Nodes, id)
	if err != nil {
		return View{}, err
	}
	return n.view(node), nil
}

func (n *Nodes) view(node *farm.Node) View {
	v := View{Node: node}
	if info, _, ok := n.db.Tables.Infos.Get(node.ID); ok {
		v.Info = *info
		if len(info.USBDevices) > 0 {
			v.Info.USBDevices = n.opts.Devices(node.ID)[0]
		}
	}
	for _, id := range node.Groups {
		if g, _, ok := n.db.Tables.Groups.Get(id); ok {
			v.Groups = append(v.Groups, g)
		}
	}
	if node.CapacityMode == farm.CapacityByResources {
		v.VCPULimit, v.RAMLimit = sched.ResourceLimits(node, &v.Info)
	}
	orphans, _ := n.opts.Orphans(node.ID)
	v.Unknown = orphans.VMs
	v.PeerReports, v.PeerExcluded = n.opts.PeerReports(node.ID)
	v.Slots = n.slots(node, &v.Info, orphans.VMs)
	v.Usage, v.Seen = n.usage(node, orphans)
	if v.Usage.HasDisk {
		v.Info.FreeDisk, v.Info.CacheUsage = v.Usage.FreeDisk, v.Usage.CacheUsage
	}
	if offset, known := n.opts.Sessions.ClockOffset(node.ID); known {
		v.ClockOffset = &offset
	}
	v.Stage = n.opts.Sessions.UpdateStage(node)
	if node.Drain {
		v.Remaining = remaining(n.db.Tables, node.ID)
	}
	return v
}

// usage returns the resources that the VMs on a node use, and when the node was last in contact. The
// VMs are those with a record that run, and the orphaned ones; the load is what the node reports.
func (n *Nodes) usage(node *farm.Node, orphans sched.Load) (api.Usage, time.Time) {
	load, contact := n.opts.Link.Usage(node)
	used := n.db.Tables.Instances.Snapshot().Sum(record.UsageByNode, node.ID)
	return api.Usage{
		CPU: load.CPU, RAM: load.RAM, HasDisk: load.HasDisk, FreeDisk: load.FreeDisk, CacheUsage: load.CacheUsage,
		PeerServed: load.PeerServed, PeerFetched: load.PeerFetched,
		VMs: orphans.VMs + used[0], VCPUs: orphans.VCPU + used[1], VRAM: orphans.MemoryMB + used[2],
	}, contact
}

// remaining returns how many instances still use capacity on a node.
func remaining(tables *record.Tables, node string) (count int) {
	for _, inst := range tables.Instances.Where(record.ByNode, node) {
		if inst.UsesCapacity() {
			count++
		}
	}
	return count
}

// CachedVersions yields the id of every node with its cached versions.
func (n *Nodes) CachedVersions() iter.Seq2[string, []farm.NodeTemplate] {
	return func(yield func(string, []farm.NodeTemplate) bool) {
		for id := range n.db.Tables.Nodes.All() {
			if !yield(id, n.db.Tables.NodeInfo(id).Templates) {
				return
			}
		}
	}
}
