package nodelink

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Options configures a Link. All fields are set.
type Options struct {
	RegistryAddress string // sent to nodes
	VMNamePrefix    string // of every VM
	CentralLog      bool   // nodes send their logs to the registry
	NodeTimeout     time.Duration
	StartTimeout    time.Duration // of a VM's start, without the pull
	OrderResend     time.Duration // after which an order that was not acknowledged is sent again
	OrphanReports   int           // full reports after which an orphaned VM is removed
	OrphanAge       time.Duration // and the minimum time since it was first reported
	DistributePulls int           // nodes that pull for distributions at a time
	Settled         time.Time     // then every node that should be in contact has been, or is Offline

	Instances   Instances
	Placer      Placer
	Maintenance Maintenance
	Pulls       PullCounter

	// Script returns the startup script of an instance; nil when it has none.
	Script func(ctx context.Context, inst *farm.Instance) ([]byte, error)

	IsLeader     func() bool
	RetryMACs    func()                                             // tries to assign MAC addresses again
	PackageFor   func(*farm.NodeInfo) (p api.AgentPackage, ok bool) // the agent package of a node
	CountResults func(written []store.Change)                       // counts the results of cache jobs

	UpdateKeys   func() string                 // public keys of the signers of agent packages
	Announcement func() *api.CloudAnnouncement // what the cloud announces to its nodes
}

// Instances applies what nodes report to the records of instances.
type Instances interface {
	// ChangeOf classifies what a status changes.
	ChangeOf(status api.InstanceStatus) record.StatusChange
	// Apply writes the changes of the statuses of one node, each of another instance.
	Apply(ctx context.Context, node string, statuses []api.InstanceStatus) error
	// Resume lets the instances of a node that is back continue.
	Resume(ctx context.Context, node string)
}

// Placer looks again at what may be able to start.
type Placer interface {
	Touch(node string)
	TouchAll()
	Reconsider(instances ...[]string)
}

// Maintenance is the maintenance mode, in which nothing is removed.
type Maintenance interface {
	On() bool
	After(t time.Time) time.Time
}

// PullCounter counts the bytes that nodes pull.
type PullCounter interface {
	Pulled(node string, bytes int64) // by a node of this replica
	PulledElsewhere(bytes int64)     // by those of others
	TotalPulled() int64
	NodePulledElsewhere(node string, bytes int64) // by one of those
}

// Link serves the node API. Sessions, Peers and Orphans are its state; their methods may be called
// by any goroutine.
type Link struct {
	Sessions *Sessions
	Peers    *Peers
	Orphans  *Orphans

	db   record.DB
	opts Options

	ticker         *sharedTicker
	waiting        atomic.Int64      // polls
	vanishFailures record.LogLimiter // instances whose end could not be written
}

// New returns a link without sessions.
func New(db record.DB, opts Options) *Link {
	l := &Link{db: db, opts: opts, ticker: newSharedTicker()}
	l.Sessions = newSessions(db, opts)
	l.Peers = newPeers(db, opts, l.Sessions)
	l.Orphans = &Orphans{db: db, opts: opts, sessions: l.Sessions, peers: l.Peers}
	return l
}

// WaitingPolls returns the number of polls that wait for work.
func (l *Link) WaitingPolls() int64 { return l.waiting.Load() }
