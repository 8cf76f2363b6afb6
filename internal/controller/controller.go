package controller

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/periodic"
	"github.com/buildyard/buildyard/internal/sched"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/transfer"
)

// Registry is the part of a registry that the controller uses.
type Registry interface {
	List(ctx context.Context) ([]api.Template, error)
	Detail(ctx context.Context, id string) (api.TemplateDetail, error)
	Info(ctx context.Context, ref transfer.Ref) (api.TemplateConfig, error)
	Disk(ctx context.Context) (api.DiskInfo, error)
	Status(ctx context.Context) (api.RegistryStatus, error)
	Delete(ctx context.Context, id string) error
	Revert(ctx context.Context, ref transfer.Ref) error
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

	Events EventOptions
	Limits Limits // of callers
	bounds bounds // of stored data

	// The licensed features; nil: all of them.
	Licence License

	Permits PlacementPolicy // nil: every node is open to all callers
	Rights  RightsQuery     // what callers may do at the registry; nil: everything
	Files   FileStore       // stores what is too large for the store; nil: such content is not stored

	ManageMACs bool          // instances get MAC addresses of a list
	MACRange   farm.MACRange // what the list is populated with

	// PauseRegistry asks the registry to pause garbage collection for a time, 0 to resume; nil when
	// the cloud has no registry.
	PauseRegistry func(ctx context.Context, length time.Duration) error

	CentralLog bool // nodes send their logs to the registry

	Packages       Packages // nil: there are none
	NoNodeUpgrades bool     // agents are updated only when an operator requests it

	// Chores are background jobs that the leader runs for other parts, which keep records in the
	// same store.
	Chores []periodic.Job

	DistributeAtOnce int // nodes that pull for distributions at a time

	Alarms []AlarmSource // of parts outside of the controller
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
	o.Limits = Limits{
		Waiting: cmp.Or(o.Limits.Waiting, DefaultMaxWaiting), WaitingSize: cmp.Or(o.Limits.WaitingSize, DefaultMaxWaitingSize),
		ScriptsSize:     cmp.Or(o.Limits.ScriptsSize, DefaultMaxScriptsSize),
		IdempotencyKeys: cmp.Or(o.Limits.IdempotencyKeys, DefaultMaxIdempotencyKeys),
	}
	o.bounds = bounds{
		saves: cmp.Or(o.bounds.saves, maxSaves), output: cmp.Or(o.bounds.output, maxAllOutput),
		past: cmp.Or(o.bounds.past, maxPast), answers: cmp.Or(o.bounds.answers, maxKeptBytes),
		events: cmp.Or(o.bounds.events, maxEvents),
	}
	o.DistributeAtOnce = cmp.Or(o.DistributeAtOnce, DefaultAtOnce)
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
	if o.Licence == nil {
		o.Licence = unlicensed{}
	}
	if o.Packages == nil {
		o.Packages = noPackages{}
	}
	return o
}

// Controller runs the use cases over one store. New creates it, Run drives it.
type Controller struct {
	opts      Options
	log       *slog.Logger
	store     outboxStore
	events    *eventLog // nil: events are off
	tables    *Tables
	link      *nodeSessions
	beats     *sharedTicker
	ages      *peerContacts
	placer    *placer
	admission *admission
	tally     *instanceStats
	series    *series
	meters    meters
	macs      *macAllocator // nil: MAC addresses are not managed
	scanTurns *scanLocks
	consoles  *consoles
	joinToken string

	maintained chan struct{} // has a value when the maintenance may have changed
	groupTurn  chan struct{} // has capacity 1: one call at a time changes the groups

	watches watches
	backing atomic.Bool // a backup is being read
	configs configCache
	known   *knownTemplates
	keeping atomic.Bool // this replica holds the lease and decides the node states
	judge   orphanGuard // evaluates the share of orphaned VMs

	alarmLog   alarmLog
	diskAlarms alarmCache // of the registry and the nodes

	unvanished, unheard logLimiter // instances whose end failed, statuses that were left out

	started time.Time     // of this process
	stopped chan struct{} // is closed when Run returns: what works in the background ends too
}

// Tables are the record tables of a controller, to be opened with its store.
type Tables struct {
	Instances *store.Table[farm.Instance]
	Nodes     *store.Table[farm.Node]
	Infos     *store.Table[farm.NodeInfo]
	Groups    *store.Table[farm.Group]
	Settings  *store.Table[Setting]
	Removed   *store.Table[RemovedNode]
	Scripts   *store.Table[Script] // of starts
	Saves     *store.Table[farm.SaveRequest]
	Pieces    *store.Table[SaveChunk]
	Past      *store.Table[farm.InstanceHistory]
	Digests   *store.Table[Digest]
	Released  *store.Table[ReleasedOrphan]
	Events    *store.Table[EventBatch]
	MACs      *store.Table[farm.MACAddress] // those in use, by address
	Kept      *store.Table[IdempotencyRecord]
	CacheJobs *store.Table[farm.CacheJob]
	Outcomes  *store.Table[farm.CacheJobResult] // of cache jobs on nodes, by outcomeID
	Scans     *store.Table[NodeScan]            // by node
	Figures   *store.Table[SeriesRecord]        // utilization of the cloud, by figuresKey
	Known     *store.Table[KnownTemplate]       // last known states of templates, by id
}

// RemovedNode is the record of a node that was removed, so that its agent learns that and is not
// merely unknown.
type RemovedNode struct {
	Credential string    `json:"credential"` // digest
	At         time.Time `json:"at"`
}

// keepRemoved is how long the record of a removed node is kept.
const keepRemoved = 7 * 24 * time.Hour

// Setting is a value that the controller stores for itself.
type Setting struct {
	Value       string       `json:"value,omitempty"`
	Maintenance *Maintenance `json:"maintenance,omitempty"`
	Deletion    *Deletion    `json:"deletion,omitempty"`
}

// The kinds of the tables; they are segments of the store's keys.
const (
	kindInstance = store.Kind("i")
	kindNode     = store.Kind("n")
	kindInfo     = store.Kind("d")
	kindGroup    = store.Kind("g")
	kindSetting  = store.Kind("s")
	kindRemoved  = store.Kind("r")
	kindSave     = store.Kind("v")
	kindPiece    = store.Kind("o")
	kindPast     = store.Kind("h")
	kindDigest   = store.Kind("a")
	kindReleased = store.Kind("u")
	kindMAC      = store.Kind("m")
	kindCacheJob = store.Kind("t")
	kindOutcome  = store.Kind("f")
)

// Indexes of the tables.
const (
	byNode       = "node"     // of instances: where they are placed
	byExternalID = "external" // of instances, present and past
	byAge        = "age"      // of instances: the youngest first
	takenOn      = "taken"    // sums of instances: what those on a node use
	perState     = "state"    // sums of instances: how many are in a state
	byInstance   = "instance" // of past ones
	byStatus     = "status"   // of save requests
)

// NewTables creates the empty tables. render returns the content of InstanceView.Encoded for an
// instance; nil for nothing.
func NewTables(render func(*farm.Instance) []byte) *Tables {
	return &Tables{
		Instances: store.NewTable(kindInstance, store.WithEncoded(render),
			store.WithIndex(byNode, func(i *farm.Instance) []string { return given(i.NodeID) }),
			store.WithIndex(byExternalID, func(i *farm.Instance) []string { return given(i.ExternalID) }),
			store.WithIndex(byScript, func(i *farm.Instance) []string { return given(i.Options.ScriptID) }),
			store.WithIndex(byAge, func(i *farm.Instance) []string { return []string{ageKey(i.Created)} }),
			store.WithSums(perState, func(i *farm.Instance) (string, store.Amounts) { return string(i.State), store.Amounts{1} }),
			store.WithSums(waitingOf, func(i *farm.Instance) (string, store.Amounts) { return i.Caller, waitingAmounts(i) }),
			store.WithSums(waitingAll, func(i *farm.Instance) (string, store.Amounts) { return allCallers, waitingAmounts(i) }),
			store.WithSums(takenOn, takenOf)),
		Nodes:    store.NewTable[farm.Node](kindNode),
		Infos:    store.NewTable[farm.NodeInfo](kindInfo),
		Groups:   store.NewTable[farm.Group](kindGroup),
		Settings: store.NewTable[Setting](kindSetting),
		Removed:  store.NewTable[RemovedNode](kindRemoved),
		Scripts:  newScriptTable(),
		Saves: store.NewTable(kindSave,
			store.WithIndex(byStatus, func(s *farm.SaveRequest) []string { return []string{string(s.Status)} }),
			store.WithSums(savesOf, func(s *farm.SaveRequest) (string, store.Amounts) { return s.Caller, saveAmounts(s) }),
			store.WithSums(savesAll, func(s *farm.SaveRequest) (string, store.Amounts) { return allCallers, saveAmounts(s) })),
		Pieces:    store.NewTable[SaveChunk](kindPiece),
		Past:      newPastTable(),
		Digests:   store.NewTable[Digest](kindDigest),
		Released:  store.NewTable[ReleasedOrphan](kindReleased),
		Events:    newEventTable(),
		MACs:      store.NewTable[farm.MACAddress](kindMAC),
		Kept:      newKeptTable(),
		CacheJobs: store.NewTable[farm.CacheJob](kindCacheJob),
		Outcomes:  store.NewTable[farm.CacheJobResult](kindOutcome),
		Scans:     store.NewTable[NodeScan](kindScan),
		Figures:   store.NewTable[SeriesRecord](kindFigures),
		Known:     store.NewTable[KnownTemplate](kindKnown),
	}
}

// given returns the values that an index files a record under; none for an empty one.
func given(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

// All returns every table, for opening the store.
func (t *Tables) All() []store.AnyTable {
	return []store.AnyTable{
		t.Instances, t.Nodes, t.Infos, t.Groups, t.Settings, t.Removed, t.Scripts, t.Saves, t.Pieces, t.Past, t.Digests, t.Released,
		t.Events, t.MACs, t.Kept, t.CacheJobs, t.Outcomes, t.Scans, t.Figures, t.Known,
	}
}

// New creates a controller over an open store. Nothing runs before Run.
func New(ctx context.Context, st *store.Store, tables *Tables, opts Options) (*Controller, error) {
	opts = opts.withDefaults()
	c := &Controller{opts: opts, log: opts.Logger, tables: tables, started: opts.Now(), stopped: make(chan struct{})}
	c.maintained, c.groupTurn = make(chan struct{}, 1), make(chan struct{}, 1)
	c.events = newEventLog(c, opts.Events)
	c.store = outboxStore{st, c.events}
	c.link = newLink(c)
	c.beats = newBeats()
	c.ages = newAges(c)
	c.placer = newPlacer(c)
	c.admission = &admission{limits: opts.Limits, stored: c.storedBy, writing: map[string]amounts{}}
	c.tally = newTally(c)
	c.series = newSeries(c)
	c.meters = newMeters()
	c.macs = newMACs(c)
	c.scanTurns = newScanTurns()
	c.consoles = newConsoles()
	c.known = newKnownTemplates(c)
	var err error
	if c.joinToken, err = c.ensureJoinToken(ctx); err != nil {
		return nil, err
	}
	if err = c.ensureMACs(ctx); err != nil {
		return nil, err
	}
	st.Subscribe(func(events []store.Event) {
		c.link.observe(events)
		c.placer.observe(events)
		c.macs.observe(events)
		c.watches.observe(events)
		c.observeMaintenance(events)
		c.ages.observe(events)
		c.events.observe(events)
		c.tally.observe(events)
		c.series.observe(events)
		c.consoles.observe(events)
	})
	c.events.load()
	c.link.load()
	c.placer.followPermits(opts.Permits)
	c.placer.load()
	c.tally.load()
	c.series.load()
	c.macs.load()
	return c, nil
}

// Run places requests and reconciles, whenever this replica holds the lease, until the context
// ends; then it frees the lease immediately. It is called once.
func (c *Controller) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { c.campaign(ctx) })
	wg.Go(func() { c.followMaintenance(ctx) })
	wg.Go(func() { c.ages.publish(ctx) })
	wg.Go(func() { c.events.follow(ctx) })
	wg.Go(func() { c.series.run(ctx) })
	wg.Go(func() { c.watchAlarms(ctx) })
	wg.Go(func() { c.known.run(ctx) })
	wg.Wait()
	close(c.stopped)
	return ctx.Err()
}

// Healthy returns why the controller cannot serve; nil when it can.
func (c *Controller) Healthy() error {
	if err := c.store.Healthy(); err != nil {
		return farm.Unavailable(err, "%s", cmp.Or(c.store.BlockedReason(), "The store cannot be reached"))
	}
	return nil
}

func (c *Controller) now() time.Time { return c.opts.Now().UTC() }
