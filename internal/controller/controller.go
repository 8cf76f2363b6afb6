package controller

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/admission"
	"github.com/buildyard/buildyard/internal/controller/adoption"
	"github.com/buildyard/buildyard/internal/controller/agentupdate"
	"github.com/buildyard/buildyard/internal/controller/alarms"
	"github.com/buildyard/buildyard/internal/controller/cachejobs"
	"github.com/buildyard/buildyard/internal/controller/console"
	"github.com/buildyard/buildyard/internal/controller/election"
	"github.com/buildyard/buildyard/internal/controller/events"
	"github.com/buildyard/buildyard/internal/controller/groups"
	"github.com/buildyard/buildyard/internal/controller/history"
	"github.com/buildyard/buildyard/internal/controller/idempotency"
	"github.com/buildyard/buildyard/internal/controller/instances"
	"github.com/buildyard/buildyard/internal/controller/instancestatus"
	"github.com/buildyard/buildyard/internal/controller/macpool"
	"github.com/buildyard/buildyard/internal/controller/maintenance"
	"github.com/buildyard/buildyard/internal/controller/nodelink"
	"github.com/buildyard/buildyard/internal/controller/nodes"
	"github.com/buildyard/buildyard/internal/controller/nodescans"
	"github.com/buildyard/buildyard/internal/controller/payloads"
	"github.com/buildyard/buildyard/internal/controller/placement"
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

	KeepTerminated   time.Duration // how long a terminated record stays; negative: it is removed immediately
	NodeTimeout      time.Duration // time without contact after which a node is Offline
	InstanceTimeout  time.Duration // after that, how long its instances may come back
	StartTimeout     time.Duration // of a VM's start, without the pull
	PullTimeout      time.Duration // how long a pull may make no progress
	PushTimeout      time.Duration // how long a push may make no progress
	UnknownReports   int           // full reports after which an orphaned VM is removed
	UnknownAge       time.Duration // and the minimum time since it was first reported
	OrderResend      time.Duration // after which an order that was not acknowledged is sent again
	Now              func() time.Time
	Logger           *slog.Logger
	JoinToken        string // "": the one in the store, created at the first start
	Version          string // of this program, X.Y.Z-<hash>
	HousekeepingTick time.Duration

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

	Packages       agentupdate.Packages // nil: there are none
	NoNodeUpgrades bool                 // agents are updated only when an operator requests it

	// Chores are background jobs that the leader runs for other parts, which keep records in the
	// same store.
	Chores []periodic.Job

	DistributeAtOnce int // nodes that pull for distributions at a time

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
		{&o.HousekeepingTick, time.Second},
		{&o.Scheduler.ReserveAfter, 10 * time.Minute},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	o.Limits = o.Limits.WithDefaults()
	o.DistributeAtOnce = cmp.Or(o.DistributeAtOnce, nodelink.DefaultAtOnce)
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
	Alarms      *alarms.Alarms
	Nodes       *nodes.Nodes
	TokenScopes *tokenscope.Scopes
	Scans       *nodescans.Scans
	CacheJobs   *cachejobs.Jobs
	License     License

	opts      Options
	log       *slog.Logger
	db        record.DB
	store     record.Store
	tables    *record.Tables
	placer    *placement.Placer
	payloads  *payloads.Payloads
	admission *admission.Limiter

	keeping atomic.Bool // this replica holds the lease and decides the node states

	started time.Time     // of this process
	stopped chan struct{} // is closed when Run returns: what works in the background ends too
}

// New creates a controller over an open store. Nothing runs before Run.
func New(ctx context.Context, st *store.Store, tables *record.Tables, opts Options) (*Controller, error) {
	opts = opts.withDefaults()
	c := &Controller{opts: opts, log: opts.Logger, tables: tables, started: opts.Now(), stopped: make(chan struct{})}

	c.db = record.DB{Store: record.NewStore(st, nil), Tables: tables, Now: c.now, Log: c.log}
	c.License = opts.License
	c.Events = events.New(c.db, opts.Events)
	c.db.Store = record.NewStore(st, c.Events.Hook())
	c.store = c.db.Store

	c.Maintenance = maintenance.New(c.db, opts.PauseRegistry)
	c.admission = admission.New(c.db, opts.Limits)
	c.Instances = instances.New(c.db, instances.Options{
		Events: c.Events, CheckSize: c.admission.CheckInstanceSize, EndSave: c.endSave,
		WaitReasons: func(list []*farm.Instance) []string { return c.placer.WaitReasons(list) },
		ClaimDevice: func(inst *farm.Instance, o *farm.RestartOptions) (store.Change, error) {
			return c.placer.ClaimDevice(inst, o)
		},
	})
	c.Idempotency = idempotency.New(c.db, idempotency.Options{
		MaxKeys: opts.Limits.IdempotencyKeys, MaxBytes: opts.maxAnswerBytes, Terminate: c.Instances.Discard,
	})
	c.Groups = groups.New(c.db, c.Idempotency.Changes)
	c.payloads = payloads.New(c.db, payloads.DefaultMaxOutput)
	c.TokenScopes = tokenscope.New(c.db)
	c.Scans = nodescans.New(c.db, nodescans.Options{Files: opts.Files, WithEvent: c.Events.With})
	c.History = history.New(c.db, history.DefaultMax, func(inst *farm.Instance) []store.Change {
		return append(macpool.Free(tables, inst), c.payloads.DeleteScript(inst)...)
	})
	c.Usage = usage.New(c.db, c.started)
	c.placer = placement.New(c.db, placement.Options{
		Scheduler: opts.Scheduler, Permits: opts.Permits, Blocker: blocker{c}, Others: blocker{c}.Usage,
		Settled:   c.started.Add(opts.NodeTimeout),
		AssignMAC: func(inst *farm.Instance) []store.Change { return macpool.Take(c.tables, inst) },
		Terminate: c.Instances.Discard, Stopped: c.stopped,
	})
	c.Updates = agentupdate.New(c.db, opts.Packages, !opts.NoNodeUpgrades)
	c.Link = nodelink.New(c.db, c.linkOptions())
	c.CacheJobs = cachejobs.New(c.db, cacheJobOptions(c))
	if opts.ManageMACs {
		c.MACs = macpool.New(c.db,
			macpool.Options{Range: opts.MACRange, First: opts.firstMAC(), Orphans: c.Link.Orphans})
	}
	c.Adoption = adoption.New(c.db, adoption.Options{
		Registry: opts.RegistryAddress, Orphans: c.Link.Orphans, Signal: c.Link.Sessions.Signal,
		Apply: instancestatus.Apply, FindMAC: c.MACs.Adoptable,
		AssignMAC: func(inst *farm.Instance) []store.Change { return macpool.Take(tables, inst) },
	})
	c.Consoles = console.New(c.db, c.Link.Sessions)
	c.Templates = templates.New(c.db, templates.Options{
		Registry: opts.Registry, Rights: opts.Rights, Events: c.Events, IsLeader: c.keeping.Load,
	})
	c.Saves = saves.New(c.db, saves.Options{
		Registry: opts.PushRegistry, Max: saves.DefaultMax,
		Instances: c.Instances, Templates: c.Templates, Contents: c.payloads,
		Admit: c.admission.AdmitSave, Response: c.Idempotency.Changes, From: c.Maintenance.After,
		Surplus: func() func(*farm.SaveRequest) bool { return c.admission.SaveSurplus().Removes },
	})
	disks := alarms.NewDisks(c.db, opts.Registry)
	c.Alarms = alarms.New(c.db, disks, slices.Concat([]alarms.Source{
		c.Link.Orphans.Alarms,
		alarms.FromMessage(api.AlarmPackages, opts.Packages.Problem, "Look at the directory of the agent packages."),
		alarms.FromMessage(api.AlarmLicense, c.License.Alarm, "Install a license that is valid (SVC_LICENSE_FILE)."),
		c.Events.Alarms, disks.Alarms,
	}, opts.Alarms)...)

	var err error
	if c.Nodes, err = nodes.New(ctx, c.db, nodeOptions(c)); err != nil {
		return nil, err
	}
	if err = c.MACs.Fill(ctx); err != nil {
		return nil, err
	}
	parts := c.wiring()
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

var (
	_ console.Nodes    = (*nodelink.Sessions)(nil)
	_ nodes.Link       = (*nodelink.Link)(nil)
	_ nodes.Sessions   = (*nodelink.Sessions)(nil)
	_ macpool.Orphans  = (*nodelink.Orphans)(nil)
	_ adoption.Orphans = (*nodelink.Orphans)(nil)
	_ templates.Events = (*events.Log)(nil)
)

// linkOptions returns the options of the node link: the settings, and what it needs of other parts.
func (c *Controller) linkOptions() nodelink.Options {
	o := c.opts
	return nodelink.Options{
		RegistryAddress: o.RegistryAddress, VMNamePrefix: o.VMNamePrefix, CentralLog: o.CentralLog,
		NodeTimeout: o.NodeTimeout, StartTimeout: o.StartTimeout, OrderResend: o.OrderResend,
		OrphanReports: o.UnknownReports, OrphanAge: o.UnknownAge, DistributeAtOnce: o.DistributeAtOnce,
		Settled: c.started.Add(o.NodeTimeout),
		Instances: instancestatus.NewWriter(c.db,
			instancestatus.Options{Archive: c.History.Archive, StoreOutput: c.payloads.StoreOutput}),
		Script: c.payloads.Script, Placer: c.placer, Maintenance: c.Maintenance, Pulls: c.Usage,
		IsLeader: c.keeping.Load, RetryMACs: func() { c.MACs.Retry() },
		PackageFor: c.Updates.PackageFor, CountResults: func(written []store.Change) { c.CacheJobs.CountResults(written) },
	}
}

// nodeOptions returns what nodes need of other parts.
func nodeOptions(c *Controller) nodes.Options {
	return nodes.Options{
		RegistryAddress: c.opts.RegistryAddress, JoinToken: c.opts.JoinToken, UpdateKeys: c.opts.Packages.Keys,
		Link: c.Link, Sessions: c.Link.Sessions, Orphans: c.Link.Orphans.Load, Devices: c.placer.Devices,
		ResolveGroups: c.Groups.Named, WithEvent: c.Events.With,
		FailInstance: func(ctx context.Context, id string) error {
			return c.Instances.Modify(ctx, c.store, id, func(inst *farm.Instance) (*farm.Instance, error) {
				return inst.AfterNodeRemoved(c.now()), nil
			})
		},
	}
}

// cacheJobOptions returns what cache jobs need of other parts.
func cacheJobOptions(c *Controller) cachejobs.Options {
	return cachejobs.Options{
		RegistryAddress: c.opts.RegistryAddress,
		Version:         c.Templates.PullVersion, Template: c.Templates.Get, Group: c.Groups.Get, Changes: c.Idempotency.Changes,
		Progress: c.Link.CacheJobProgress, Pulling: c.Link.Sessions.Pulling, After: c.Maintenance.After,
	}
}

// endSave ends a save request on which its instance, nil when it is removed, no longer works.
func (c *Controller) endSave(ctx context.Context, w store.Writer, id string, inst *farm.Instance) error {
	return c.Saves.End(ctx, w, id, inst)
}

// part is a part of a controller, as it is wired; each of its functions may be nil.
type part struct {
	load    func()                              // reads the existing records, once observe sees their changes
	observe func(events []store.Event)          // sees every change of the records
	run     func(ctx context.Context)           // works until the context ends
	lead    func(context.Context, *record.Term) // works as long as this replica is the leader
}

// wiring returns what follows the records or works in the background. Changes reach the parts in this
// order.
func (c *Controller) wiring() []part {
	return []part{
		{c.Link.Sessions.Load, c.Link.Sessions.Observe, nil, nil},
		{c.placer.Load, c.placer.Observe, nil, c.placer.Run},
		{c.MACs.Load, c.MACs.Observe, nil, c.MACs.Run},
		{nil, c.Instances.Observe, nil, nil},
		{nil, c.Maintenance.Observe, c.Maintenance.Run, nil},
		{nil, c.Link.Peers.Observe, c.Link.Peers.Publish, nil},
		{c.Events.Load, c.Events.Observe, c.Events.Run, c.Events.Deliver},
		{c.Usage.Load, c.Usage.Observe, c.Usage.Run, nil},
		{nil, c.Consoles.Observe, nil, nil},
		{nil, nil, c.Alarms.Run, nil},
		{nil, nil, c.Templates.Run, nil},
		{nil, nil, c.runElection, c.reconcile},
		{nil, nil, nil, func(ctx context.Context, _ *record.Term) { periodic.Run(ctx, c.opts.Chores, c.log) }},
	}
}

// Run places requests and reconciles, whenever this replica holds the lease, until the context
// ends; then it frees the lease immediately. It is called once.
func (c *Controller) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, p := range c.wiring() {
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
		for _, p := range c.wiring() {
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
