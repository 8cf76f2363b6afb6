package controller

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/admission"
	"github.com/buildyard/buildyard/internal/controller/adoption"
	"github.com/buildyard/buildyard/internal/controller/agentupdate"
	"github.com/buildyard/buildyard/internal/controller/alarms"
	"github.com/buildyard/buildyard/internal/controller/cachejobs"
	"github.com/buildyard/buildyard/internal/controller/cloudidentity"
	"github.com/buildyard/buildyard/internal/controller/console"
	"github.com/buildyard/buildyard/internal/controller/election"
	"github.com/buildyard/buildyard/internal/controller/events"
	"github.com/buildyard/buildyard/internal/controller/findings"
	"github.com/buildyard/buildyard/internal/controller/groups"
	"github.com/buildyard/buildyard/internal/controller/history"
	"github.com/buildyard/buildyard/internal/controller/idempotency"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/controller/jointokens"
	"github.com/buildyard/buildyard/internal/controller/macpool"
	"github.com/buildyard/buildyard/internal/controller/maintenance"
	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/controller/nodes"
	"github.com/buildyard/buildyard/internal/controller/nodescans"
	"github.com/buildyard/buildyard/internal/controller/outages"
	"github.com/buildyard/buildyard/internal/controller/payloads"
	"github.com/buildyard/buildyard/internal/controller/peers"
	"github.com/buildyard/buildyard/internal/controller/placement"
	"github.com/buildyard/buildyard/internal/controller/pools"
	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/controller/saves"
	"github.com/buildyard/buildyard/internal/controller/templates"
	"github.com/buildyard/buildyard/internal/controller/tokenscope"
	"github.com/buildyard/buildyard/internal/controller/usage"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/periodic"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/store"
)

// Registry is the part of a registry that the controller uses.
type Registry interface {
	templates.Registry
	Status(ctx context.Context) (api.RegistryStatus, error)
}

// Options configure a Controller. The durations must not be negative except where that is
// documented.
type Options struct {
	Registry        Registry
	RegistryAddress string // sent to nodes and clients
	PushRegistry    string // where nodes push saved images to; "": RegistryAddress
	VMNamePrefix    string // of every VM that the controller starts
	Scheduler       sched.Options

	KeepTerminated  time.Duration // how long a terminated record stays; negative: it is removed immediately
	NodeTimeout     time.Duration // time without contact after which a node is Offline
	InstanceTimeout time.Duration // after that, how long its instances may come back
	StartTimeout    time.Duration // of a VM's start, without the pull
	PullTimeout     time.Duration // how long a pull may make no progress
	PushTimeout     time.Duration // how long a push may make no progress
	DiskAlarm       int64         // bytes free below which a disk may be low: see alarms.DiskLow
	UnknownReports  int           // full reports after which an orphaned VM is removed
	UnknownAge      time.Duration // and the minimum time since it was first reported
	OrderResend     time.Duration // after which an order that was not acknowledged is sent again
	Now             func() time.Time
	Logger          *slog.Logger
	JoinTokens      jointokens.Options
	Cloud           cloudidentity.Options
	Version         string // of this program, X.Y.Z-<hash>

	Events events.Options
	Limits admission.Limits // of callers

	// The licensed features; nil: all of them.
	License License

	Permits placement.Policy      // nil: every node is open to all callers
	Rights  templates.RightsQuery // what callers may do at the registry; nil: everything
	Files   nodescans.FileStore   // stores what is too large for the store; nil: such content is not stored

	ManageMACs bool            // instances get MAC addresses of a list
	MACRange   farm.MACRange   // what the list is populated with
	firstMAC   func() farm.MAC // where the search for a free one begins; tests set it

	// PauseRegistry asks the registry to pause garbage collection for a time, 0 to resume; nil when
	// the cloud has no registry.
	PauseRegistry func(ctx context.Context, length time.Duration) error

	CentralLog bool // nodes send their logs to the registry

	SaveStopFallback bool // see saves.Options.StopFallback

	Packages       agentupdate.PackageDirectory // nil: there are none
	NoNodeUpgrades bool                         // agents are updated only when an operator requests it

	// LeaderJobs are background jobs that the leader runs for other parts, which keep records in the
	// same store.
	LeaderJobs []periodic.Job

	DistributePulls int // nodes that pull for distributions at a time

	Alarms []alarms.Source // of parts outside of the controller

	maxAnswerBytes int // of the stored responses of idempotency records; tests set it
}

// withDefaults sets zero fields to their defaults.
func (o Options) withDefaults() Options {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&o.KeepTerminated, time.Minute},
		{&o.NodeTimeout, 2 * time.Minute},
		{&o.InstanceTimeout, 2 * time.Minute},
		{&o.StartTimeout, 90 * time.Second},
		{&o.PullTimeout, 30 * time.Minute},
		{&o.PushTimeout, time.Hour},
		{&o.UnknownAge, 150 * time.Second},
		{&o.OrderResend, 5 * time.Second},
		{&o.Scheduler.ReserveAfter, 10 * time.Minute},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	o.Limits = o.Limits.WithDefaults()
	o.DistributePulls = cmp.Or(o.DistributePulls, nodelink.DefaultDistributePulls)
	if o.PushRegistry == "" {
		o.PushRegistry = o.RegistryAddress
	}
	if o.UnknownReports == 0 {
		o.UnknownReports = 30
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.License == nil {
		o.License = unlicensed{}
	}
	if o.firstMAC == nil {
		o.firstMAC = func() farm.MAC { return farm.MAC(rand.Uint64N(farm.MaxMACs)) } //nolint:gosec // not a secret: it spreads the replicas
	}
	if o.Packages == nil {
		o.Packages = agentupdate.NoPackages{}
	}
	return o
}

// Controller runs the use cases over one store. New creates it, Run drives it.
type Controller struct {
	Events      *events.Log   // nil: events are off
	MACs        *macpool.Pool // nil: MAC addresses are not managed
	Consoles    *console.Relay
	Usage       *usage.Usage
	Maintenance *maintenance.Mode
	Idempotency *idempotency.Keys
	Link        *nodelink.Link
	Updates     *agentupdate.Updates
	Groups      *groups.Groups
	Instances   *instances.Instances
	History     *history.History
	Adoption    *adoption.Adoption
	Saves       *saves.Saves
	Templates   *templates.Templates
	Outages     *outages.Outages
	Alarms      *alarms.Alarms
	JoinTokens  *jointokens.Tokens
	Cloud       *cloudidentity.Identity
	Nodes       *nodes.Nodes
	TokenScopes *tokenscope.Scopes
	Peers       *peers.Peers
	Scans       *nodescans.Scans
	Findings    *findings.Findings
	CacheJobs   *cachejobs.Jobs
	Pools       *pools.Pools
	License     License

	opts      Options
	log       *slog.Logger
	db        record.DB
	store     record.Store
	tables    *record.Tables
	placer    *placement.Placer
	payloads  *payloads.Payloads
	admission *admission.Limiter

	isLeader atomic.Bool // this replica holds the lease and decides the node states

	started time.Time     // of this process
	stopped chan struct{} // is closed when Run returns: what works in the background ends too
}

// New creates a controller over an open store. Nothing runs before Run.
func New(ctx context.Context, st *store.Store, tables *record.Tables, opts Options) (*Controller, error) {
	opts = opts.withDefaults()
	c := &Controller{opts: opts, log: opts.Logger, tables: tables, started: opts.Now(), stopped: make(chan struct{})}

	c.db = record.DB{Store: record.NewStore(st, nil), Tables: tables, Now: c.now, Log: c.log}
	c.Events = events.New(c.db, opts.Events)
	c.db.Store = record.NewStore(st, c.Events.Hook())
	c.store = c.db.Store

	c.License = opts.License
	c.Maintenance = maintenance.New(c.db, opts.PauseRegistry)
	c.admission = admission.New(c.db, opts.Limits)
	c.Instances = instances.New(c.db, instanceOptions(c))
	c.Idempotency = idempotency.New(c.db, idempotencyOptions(c))
	c.Groups = groups.New(c.db, c.Idempotency.Changes)
	c.payloads = payloads.New(c.db, payloads.DefaultMaxOutput)
	c.History = history.New(c.db, history.DefaultMax, c.release)
	c.Usage = usage.New(c.db, usageOptions(c))
	c.placer = placement.New(c.db, placementOptions(c))
	c.Updates = agentupdate.New(c.db, opts.Packages, updateOptions(c))
	c.Link = nodelink.New(c.db, linkOptions(c))
	if opts.ManageMACs {
		c.MACs = macpool.New(c.db,
			macpool.Options{Range: opts.MACRange, First: opts.firstMAC(), Orphans: c.Link.Orphans})
	}
	c.Consoles = console.New(c.db, c.Link.Sessions)
	c.Adoption = adoption.New(c.db, adoptionOptions(c))
	c.Findings = findings.New(c.db, findingsOptions(c))
	c.Templates = templates.New(c.db, templateOptions(c))
	c.CacheJobs = cachejobs.New(c.db, cacheJobOptions(c))
	c.Pools = pools.New(c.db, poolOptions(c))
	c.Saves = saves.New(c.db, saveOptions(c))
	c.TokenScopes = tokenscope.New(c.db)
	c.Scans = nodescans.New(c.db, nodescans.Options{Files: opts.Files, WithEvent: c.Events.With})
	c.Outages = outages.New(c.db, outageOptions(c))
	c.Alarms = newAlarms(c)
	var err error
	if c.Cloud, err = cloudidentity.New(ctx, c.db, opts.Cloud); err != nil {
		return nil, err
	}
	c.Peers = peers.New(c.db, peers.Options{
		MayPull: c.TokenScopes.MayPull, Sign: c.Cloud.SignPeerToken, AppendEvents: c.Events.Append,
	})
	if c.JoinTokens, err = jointokens.New(ctx, c.db, opts.JoinTokens); err != nil {
		return nil, err
	}
	c.Nodes = nodes.New(c.db, nodeOptions(c))
	if err = c.MACs.Fill(ctx); err != nil {
		return nil, err
	}

	parts := c.parts()
	st.Subscribe(func(events []store.Event) {
		for _, p := range parts {
			if p.observe != nil {
				p.observe(events)
			}
		}
	})
	for _, p := range parts {
		if p.load != nil {
			p.load()
		}
	}
	return c, nil
}

// part is a part of a controller, as it is wired; each of its functions may be nil.
type part struct {
	load    func()                              // reads the existing records, once observe sees their changes
	observe func(events []store.Event)          // sees every change of the records
	run     func(ctx context.Context)           // works until the context ends
	lead    func(context.Context, *record.Term) // works as long as this replica is the leader
}

// parts returns what follows the records or works in the background. Changes reach the parts in this
// order.
func (c *Controller) parts() []part {
	return []part{
		{c.Link.Sessions.Load, c.Link.Sessions.Observe, nil, nil},
		{c.placer.Load, c.placer.Observe, nil, c.placer.Run},
		{c.MACs.Load, c.MACs.Observe, nil, c.MACs.Run},
		{nil, c.Instances.Observe, nil, nil},
		{nil, c.Pools.Observe, nil, c.Pools.Lead},
		{nil, c.Maintenance.Observe, c.Maintenance.Run, nil},
		{nil, c.JoinTokens.Observe, nil, nil},
		{nil, c.Link.Peers.Observe, c.Link.Peers.Publish, nil},
		{c.Events.Load, c.Events.Observe, c.Events.Run, c.Events.Deliver},
		{c.Usage.Load, c.Usage.Observe, c.Usage.Run, nil},
		{nil, c.Consoles.Observe, nil, nil},
		{nil, nil, c.Alarms.Run, c.Alarms.Record},
		{nil, nil, c.Templates.Run, nil},
		{nil, nil, c.runElection, c.reconcile},
		{nil, nil, nil, func(ctx context.Context, _ *record.Term) { periodic.Run(ctx, c.opts.LeaderJobs, c.log) }},
	}
}

// Run places requests and reconciles, whenever this replica holds the lease, until the context
// ends; then it frees the lease immediately. It is called once.
func (c *Controller) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, p := range c.parts() {
		if p.run != nil {
			wg.Go(func() { p.run(ctx) })
		}
	}
	wg.Wait()
	close(c.stopped)
	return ctx.Err()
}

// runElection does the leader's work whenever this replica holds the lease, until the context ends.
func (c *Controller) runElection(ctx context.Context) {
	election.Run(ctx, c.db, func(ctx context.Context, term *record.Term) {
		c.placer.Begin(term)
		defer c.placer.Finish(term)
		var wg sync.WaitGroup
		for _, p := range c.parts() {
			if p.lead != nil {
				wg.Go(func() { p.lead(ctx, term) })
			}
		}
		wg.Wait()
	})
}

// Healthy returns why the controller cannot serve; nil when it can.
func (c *Controller) Healthy() error {
	if err := c.store.Healthy(); err != nil {
		return farm.Unavailable(err, "%s", cmp.Or(c.store.BlockedReason(), "The store cannot be reached"))
	}
	return nil
}

func (c *Controller) now() time.Time { return c.opts.Now().UTC() }
