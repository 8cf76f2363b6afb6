// Package fleet runs many simulated nodes in one process: as the load generator of a controller,
// and as a demo cloud without a hypervisor.
//
// Its nodes are real agents over the simulated driver; only the machine and, unless configured
// otherwise, the pull of a template are simulated. It is not for production.
//
// Invariant: with a data directory everything that a real node would store outlives a kill; without
// one nothing is written to the disk.
package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/agent/nodeapi"
	"github.com/buildyard/buildyard/internal/agent/registrytoken"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv/sim"
	"github.com/buildyard/buildyard/internal/transfer"
)

// MaxNodes limits the nodes of a fleet.
const MaxNodes = 10_000

// maxConcurrentJoins is the number of nodes that join concurrently.
const maxConcurrentJoins = 64

// Options configure a fleet.
type Options struct {
	NodeCount     int
	ControllerURL string // URL
	JoinToken     string // join token
	// AuthorizeJoin adds the credential to the request of a join, which then needs no token; nil: none.
	AuthorizeJoin func(*http.Request) error
	TLS           *tls.Config // of the controller and of registries; nil: the system's
	NamePrefix    string      // of the nodes, followed by a number; "" means "sim"
	Groups        []string
	Capacity      int // 0: the controller's default

	Sim               sim.Options       // of every node's hypervisor; its Dir and Seed are set here
	PullTime          sim.DurationRange // a simulated pull takes this long
	PullFailureRate   float64           // share of simulated pulls that fail, 0 to 1
	ReportDelay       sim.DurationRange // each report is delayed for this long
	UpdateTime        sim.DurationRange // a simulated update of an agent takes this long
	UpdateFailureRate float64           // share of simulated updates that fail, 0 to 1
	RealPulls         bool              // really pull templates; needs DataDir
	DataDir           string            // "": nothing is stored

	USBDevices []api.USBDevice // that every node offers

	Logger  *slog.Logger
	Version string
}

func (o *Options) check() error {
	switch {
	case o.NodeCount < 1 || o.NodeCount > MaxNodes:
		return farm.Invalid("nodes", "%d: want 1 to %d", o.NodeCount, MaxNodes)
	case o.RealPulls && o.DataDir == "":
		return farm.Invalid("real-pull", "requires a data directory (--data-dir)")
	case !slices.Contains([]string{"", "amd64", "arm64"}, o.Sim.Arch):
		return farm.Invalid("arch", "%s: want amd64 or arm64", o.Sim.Arch)
	}
	for name, share := range map[string]float64{
		"pull-failure": o.PullFailureRate, "update-failure": o.UpdateFailureRate, "boot-failure": o.Sim.BootFailureRate,
		"script-failure": o.Sim.ExecFailureRate, "death": o.Sim.CrashRate,
	} {
		if share < 0 || share > 1 {
			return farm.Invalid(name, "%g: want a failure rate from 0 to 1", share)
		}
	}
	if o.NamePrefix == "" {
		o.NamePrefix = "sim"
	}
	return nil
}

// Run joins the nodes and runs them until ctx ends or all of them have ended; then the error
// contains the reason.
func Run(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	transport := nodeapi.NewTransport(o.TLS, o.NodeCount)
	defer transport.CloseIdleConnections()
	nodes := make([]*node, o.NodeCount)
	defer func() {
		for _, n := range nodes {
			n.close(o.Logger)
		}
	}()
	if err := o.joinAll(ctx, nodes, transport); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	o.Logger.InfoContext(ctx, "simulated nodes started", "nodes", o.NodeCount, "controller", o.ControllerURL)
	return run(ctx, nodes, o.Logger)
}

func run(ctx context.Context, nodes []*node, log *slog.Logger) error {
	var wait sync.WaitGroup
	errs := make([]error, len(nodes))
	for i, n := range nodes {
		wait.Go(func() {
			if errs[i] = n.run(ctx); errs[i] != nil {
				log.Error("simulated node stopped", "name", n.name, "error", errs[i])
			}
		})
	}
	wait.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(errs...)
}

// node is one simulated node.
type node struct {
	name         string
	agent        *agent.Agent
	agentOptions agent.Options         // configuration of the agent
	tokenSource  *registrytoken.Source // for registries
	closers      []interface{ Close() error }
	lock         *datadir.Lock
}

// run runs the node's agent, and those that replace it.
func (n *node) run(ctx context.Context) error {
	for {
		err := n.agent.Run(ctx)
		u, simulated := n.agentOptions.Updater.(*updater)
		if !errors.Is(err, agent.ErrUpdate) || !simulated {
			return err
		}
		n.agentOptions.Version = u.takeVersion()
		n.agent = agent.New(n.agentOptions)
	}
}

func (n *node) close(log *slog.Logger) {
	if n == nil {
		return
	}
	for _, c := range n.closers {
		if err := c.Close(); err != nil {
			log.Warn("closing a simulated node failed", "name", n.name, "error", err)
		}
	}
	if n.lock != nil {
		n.lock.Release()
	}
}

// newNode joins the i-th node and creates its agent.
func (o *Options) newNode(ctx context.Context, i int, transport http.RoundTripper) (*node, error) {
	n := &node{name: fmt.Sprintf("%s-%04d", o.NamePrefix, i+1)}
	var at datadir.Dir
	var err error
	if o.DataDir != "" {
		if at, err = datadir.At(filepath.Join(o.DataDir, n.name)); err == nil {
			n.lock, err = at.Lock()
		}
	}
	if err != nil {
		return n, err
	}
	identity, err := o.join(ctx, n.name, at, transport)
	if err != nil {
		return n, fmt.Errorf("join %s: %w", n.name, err)
	}
	controller, err := nodeapi.New(o.ControllerURL, transport, identity.Credential)
	if err != nil {
		return n, err
	}
	n.tokenSource = registrytoken.New(registrytoken.Options{
		Logger: o.Logger,
		RequestToken: func(ctx context.Context, purpose api.TokenPurpose) (api.RegistryTokenResponse, error) {
			return controller.RegistryToken(ctx, identity.NodeID, purpose)
		},
	})
	options := o.Sim
	options.Seed += uint64(i)
	parts := agent.Options{
		Identity: identity, Controller: controller, Journal: &journal.Memory{}, Machine: machine{},
		Templates: newTemplates(o.PullTime, seededRand{failureRate: o.PullFailureRate, seed: options.Seed}),
		Logger:    o.Logger.With("node_name", n.name), Version: o.Version, VMListInterval: o.vmListInterval(),
		Consoles: controller, Updater: newUpdater(o.UpdateTime,
			seededRand{failureRate: o.UpdateFailureRate, seed: options.Seed}),
	}
	if len(o.USBDevices) > 0 {
		parts.Devices = devices(o.USBDevices)
	}
	if o.ReportDelay != (sim.DurationRange{}) {
		parts.Controller = &delayedAPI{ControllerAPI: controller, reportDelay: o.ReportDelay}
	}
	if o.DataDir != "" {
		options.Dir = at.TemplatesDir()
		if err := n.openStorage(o, at, &parts); err != nil {
			return n, err
		}
	}
	if parts.Driver, err = sim.New(options); err != nil {
		return n, err
	}
	n.agentOptions, n.agent = parts, agent.New(parts)
	return n, nil
}

// devices are the devices that a node always offers.
type devices []api.USBDevice

var _ agent.Devices = devices(nil)

// Available returns all devices.
func (d devices) Available() []api.USBDevice { return d }

// diskReserve is the free space that the nodes leave together: no build depends on their disk.
var diskReserve = bytesize.DiskReserve{Bytes: 1 << 30}

// openStorage stores the journal and, for real pulls, the cache on disk.
func (n *node) openStorage(o *Options, at datadir.Dir, parts *agent.Options) error {
	records, err := journal.Open(at.JournalDir(), journal.Options{Logger: parts.Logger})
	if err != nil {
		return err
	}
	parts.Journal, parts.CacheJobFile = records, at.CacheJobFile()
	n.closers = append(n.closers, records)
	if !o.RealPulls {
		return nil
	}
	source := cache.NewRegistry(transfer.Options{TLS: o.TLS}, n.tokenSource)
	templates, err := cache.Open(cache.Options{
		Dir: at.TemplateDir(), Source: source, Reserve: diskReserve, Logger: parts.Logger,
	})
	if err != nil {
		return err
	}
	parts.Templates, parts.Registries, parts.SaveDir, parts.PulledBytes = templates, source, at.SaveDir(),
		source.PulledBytes
	n.closers = append(n.closers, templates, source)
	return nil
}

// simulatedFacts are those of every simulated machine. The driver may have another architecture, which then counts.
var simulatedFacts = host.Facts{Arch: sim.DefaultArch, OS: runtime.GOOS, CPUs: 16, MemoryMB: 64 << 10}

// machine is a host without any load.
type machine struct{}

var _ agent.Machine = machine{}

// Facts returns the same facts for every node.
func (machine) Facts() host.Facts { return simulatedFacts }

// FreeMemoryMB returns half of the memory.
func (machine) FreeMemoryMB() int { return simulatedFacts.MemoryMB / 2 }

// Disk reports a half full disk.
func (machine) Disk() (free, total, vms int64) { return 512 << 30, 1 << 40, 0 }

// VMBytes returns 0: simulated disks are empty.
func (machine) VMBytes(string) int64 { return 0 }

// Load returns no load.
func (machine) Load(time.Time, []int) (cpu, memory float64) { return 0, 0 }
