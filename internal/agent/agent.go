package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/cachejob"
	"github.com/buildyard/buildyard/internal/agent/controllers"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/agent/keepawake"
	"github.com/buildyard/buildyard/internal/agent/nodeapi"
	"github.com/buildyard/buildyard/internal/agent/usb"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/internal/logs"
	"github.com/buildyard/buildyard/internal/transfer"
)

// ControllerAPI is the agent's connection to the controller.
type ControllerAPI interface {
	Poll(ctx context.Context, wait time.Duration, in api.PollRequest) (api.PollAnswer, error)
	Report(ctx context.Context, in api.Report) (api.ReportAnswer, error)
}

// Cloud follows the addresses that the cloud announces.
type Cloud interface {
	HandleAnnouncement(a *api.CloudAnnouncement)
}

// Journal stores orders and phases.
type Journal interface {
	Load() ([]journal.Entry, error)
	Accept(journal.Entry) error
	Save(id string, s journal.State) error
	Remove(id string) error
}

// Templates is the cache of versions.
type Templates interface {
	Has(contentID string) bool
	Fetch(ctx context.Context, ref cache.Ref, progress func(float64)) error
	Pin(contentID, holder string)
	Unpin(contentID, holder string)
	Config(contentID string) (config api.TemplateConfig, v cache.Version, err error)
	Version(contentID string) (cache.Version, error)
	AddLocal(ctx context.Context, a cache.LocalVersion) error
	EnsureFreeSpace(ctx context.Context, bytes int64) error
	Remove(contentID string) error
	List() []api.NodeTemplate
	UsedBytes() int64
}

// LazyTemplates are versions that VMs use before all of them is here. They are also Templates.
type LazyTemplates interface {
	LazyDisks
	FetchStartable(ctx context.Context, ref cache.Ref, progress func(float64)) error
	IsStartable(contentID string) bool
	PullsLazily() bool
	LazyPulls() []cache.LazyState
	ResumeLazyPulls() error
}

// LazyDisks are the disks of such versions, while VMs read them.
type LazyDisks interface {
	ServeDisks(ctx context.Context, contentID, vm, processFile string) (map[string]cache.LazyDisk, error)
	MarkBooted(ctx context.Context, contentID string) error
	ReleaseDisks(ctx context.Context, contentID, vm string) error
}

// Registries publish saves; each registry is selected by its address.
type Registries interface {
	Push(ctx context.Context, address string, o transfer.PushOptions) (api.PushResult, error)
	Inspect(ctx context.Context, address, save string, ref transfer.VersionRef) (api.PullManifest, error)
}

// LogUploader stores the logs of failed VMs as files of a registry, selected by its address.
type LogUploader interface {
	Upload(ctx context.Context, address, name string, content []byte) error
}

// CentralLog sends this process's log; see logs.Shipper.
type CentralLog interface {
	ShipTo(address string)
	Discard()
}

// Devices are the USB devices that this node offers.
type Devices interface{ Available() []api.USBDevice }

// SleepInhibitor keeps the host from going to sleep.
type SleepInhibitor interface{ SetNeeded(needed bool) }

// Machine is the host that the agent runs on.
type Machine interface {
	Facts() host.Facts
	FreeMemoryMB() int
	// Disk returns the free and all bytes of the disk with the VMs, and the bytes that VMs use of it.
	Disk() (free, total, vms int64)
	// VMBytes returns the bytes that one VM uses of it: an upper bound for a save of its disks.
	VMBytes(id string) int64
	// Load returns the shares of processors and memory that processes use, both 0..1.
	Load(now time.Time, pids []int) (cpu, ram float64)
}

var (
	_ ControllerAPI = (*nodeapi.Client)(nil)
	_ Cloud         = (*controllers.Controllers)(nil)
	_ Journal       = (*journal.Dir)(nil)
	_ Journal       = (*journal.Memory)(nil)
	_ Templates     = (*cache.Cache)(nil)
	_ LazyTemplates = (*cache.Cache)(nil)
	_ Registries    = (*cache.Registry)(nil)
	_ LogUploader   = (*cache.Registry)(nil)
	_ CentralLog    = (*logs.Shipper)(nil)
	_ Machine       = (*machine)(nil)
	_ Devices       = (*usb.AvailableDevices)(nil)

	_ SleepInhibitor = (*keepawake.Assertion)(nil)
)

// Options configure an Agent. All fields are required except the durations and what a node without
// saves does not need.
type Options struct {
	Identity   datadir.Identity
	Controller ControllerAPI
	Driver     hv.Driver
	Templates  Templates
	Journal    Journal
	Machine    Machine
	Logger     *slog.Logger
	Version    string // of this program

	// LazyTemplates are the Templates of a node whose VMs may start before all of their version is here, and whose
	// Driver is an hv.DiskMover; nil: they do not.
	LazyTemplates LazyTemplates

	Devices Devices // nil: this node offers none

	Registries   Registries   // where saves go; nil: this node cannot save
	SaveDir      string       // directory of unfinished saves, on the file system of the templates
	CacheJobFile string       // file of the cache jobs; "": they do not outlive the agent
	LogUploader  LogUploader  // destination of the logs of failed VMs; nil: they stay on the node
	CentralLog   CentralLog   // sends this process's log; nil: it stays on the node
	PulledBytes  func() int64 // bytes pulled from registries since the process started; nil: unknown
	Updater      Updater      // updates the agent to another version; nil: no updates

	Peer PeerInfo // where other nodes read versions; the zero value: nowhere

	Consoles Consoles // where screens are shown; nil: none are shown

	Cloud Cloud // follows the addresses of the controllers; nil: they do not change

	SleepInhibitor SleepInhibitor // keeps the host awake while VMs run; nil: it never sleeps

	License *license.File // of this node; nil: only the hypervisor's license applies

	PollWait       time.Duration // how long a poll may wait; 0 means 5 s
	VMListInterval time.Duration // how often VMs are listed; 0 means 1 s
	ConflictWait   time.Duration // how long the agent waits for a second agent with its ID to end; 0 means 15 s
}

// PeerInfo is where other nodes read versions from this one.
type PeerInfo struct {
	Address string // host:port; without a host, that of the node is meant
	Key     string // hex SHA-256 of the certificate that this node shows there
	// Bytes returns the bytes that were sent to other nodes, and read from them; nil: unknown.
	Bytes func() (served, fetched int64)
}

// Agent is one node's agent. Create it with New, then call Run once.
type Agent struct {
	opts        Options
	log         *slog.Logger
	bootID      string  // new at every start
	host        hv.Host // as the driver describes it
	outbox      outbox
	cacheJobs   *cachejob.Runner
	failureLogs chan failureLog // waiting to be sent to the registry
	workers     sync.WaitGroup
	metrics     metrics

	mu          sync.Mutex // guards the fields below
	instances   map[string]*instance
	endedClaims map[string]string // instance ID -> claim of those that ended recently
	// as last listed, without those that were removed since then; not changed in place
	listedVMs         []hv.VM
	endedWhileListing map[string]bool   // VMs whose instance ended while VMs are being listed; nil: not listing
	orphanPins        map[string]string // VM ID -> content ID pinned for a VM without an instance
	defaultRegistry   string            // address to pull from when an order has none
	localLogsOnly     bool              // logs must not leave this node
	updateBlockers    map[string]string // instance ID -> work that the end of this agent would break
	quiescing         bool              // no such work may begin any longer
	consoleSessions   map[string]bool   // sessions of the consoles that are shown
	hypervisorLicense hv.License        // as last read
}

// New returns an agent. It does not touch the host yet.
func New(o Options) *Agent {
	if o.PollWait == 0 {
		o.PollWait = 5 * time.Second
	}
	if o.VMListInterval == 0 {
		o.VMListInterval = time.Second
	}
	if o.ConflictWait == 0 {
		o.ConflictWait = 15 * time.Second
	}
	a := &Agent{
		opts: o, log: o.Logger, bootID: rand.Text(), outbox: newOutbox(),
		failureLogs: make(chan failureLog, maxFailureLogs),
		instances:   map[string]*instance{}, endedClaims: map[string]string{}, orphanPins: map[string]string{},
		updateBlockers: map[string]string{}, consoleSessions: map[string]bool{},
		defaultRegistry: o.Identity.RegistryAddress,
	}
	a.cacheJobs = cachejob.New(cachejob.Options{
		NodeID: o.Identity.NodeID, Templates: o.Templates, StoreFile: o.CacheJobFile,
		RegistryAddress: a.registryAddress, StatusChanged: a.outbox.signal, Logger: o.Logger,
	})
	return a
}

// Run recovers the instances of the journal, then serves the controller until ctx ends (nil) or the
// agent cannot continue: farm.CodeUnauthenticated when the controller does not know the node,
// CodeConflict when another agent has its ID, ErrUpdate when the agent is to be replaced by another
// version. VMs and their scripts outlive the agent, unless the controller reported that the node
// was removed: then they are removed, and the error has CodeRefused.
func (a *Agent) Run(ctx context.Context) error {
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := a.recoverInstances(ctx); err != nil {
		cancel(err)
		a.workers.Wait()
		a.cacheJobs.Wait()
		return err
	}
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context) error{
		a.pollLoop, a.reportLoop, a.watchLoop, a.failureLogLoop, a.updateLoop, a.licenseLoop,
		a.lazyLoop,
	} {
		loops.Go(func() {
			if err := loop(ctx); err != nil {
				cancel(err)
			}
		})
	}
	loops.Wait()
	a.workers.Wait()
	a.cacheJobs.Wait()
	if err := context.Cause(ctx); outer.Err() == nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// recoverInstances describes the host and recovers every instance of the journal; instances of an earlier
// identity of this node are only removed. Versions are pinned before the first worker runs, so that
// no worker evicts what the VM of another one is based on.
func (a *Agent) recoverInstances(ctx context.Context) error {
	var err error
	if a.host, err = a.opts.Driver.Describe(ctx); err != nil {
		return fmt.Errorf("hypervisor: %w", err)
	}
	a.mu.Lock()
	a.hypervisorLicense = hv.License{Kind: a.host.LicenseKind, Expires: a.host.LicenseExpires}
	a.mu.Unlock()
	entries, err := a.opts.Journal.Load()
	if err != nil {
		return err
	}
	held := make([]*instance, len(entries))
	for i, e := range entries {
		held[i] = newInstance(e)
		held[i].journaled = true
		a.removeForeign(held[i], e.NodeID)
		a.instances[held[i].id] = held[i]
		a.pinVersion(held[i])
	}
	if err := a.compareVMs(ctx); err != nil {
		return fmt.Errorf("hypervisor: %w", err)
	}
	if lazy := a.opts.LazyTemplates; lazy != nil {
		if err := lazy.ResumeLazyPulls(); err != nil {
			return err
		}
	}
	a.recoverSaves(held)
	a.removeOrphans(ctx, func(vm hv.VM) bool { return a.isForeign(vm.Labels[labelNode]) || isTestVM(vm) })
	a.cacheJobs.Resume(ctx)
	for _, in := range held {
		a.log.Info("instance recovered after a restart of the agent", "instance_id", in.id, "phase",
			string(in.state.Phase))
		a.outbox.add(in.id)
		a.startWorker(ctx, in)
	}
	return nil
}

// startWorker starts the worker of an instance.
func (a *Agent) startWorker(ctx context.Context, in *instance) {
	a.workers.Go(func() { a.runWorker(ctx, in) })
}

func (a *Agent) instance(id string) *instance {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.instances[id]
}

func (a *Agent) pinVersion(in *instance) {
	if start := in.order.Start; start != nil {
		a.opts.Templates.Pin(start.ContentID, in.id)
	}
}
