package buildnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/agent"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/connection"
	"github.com/buildyard/buildyard/internal/agent/controllers"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/agent/keepawake"
	"github.com/buildyard/buildyard/internal/agent/nodeapi"
	"github.com/buildyard/buildyard/internal/agent/proxy"
	"github.com/buildyard/buildyard/internal/agent/registrytoken"
	"github.com/buildyard/buildyard/internal/agent/update"
	"github.com/buildyard/buildyard/internal/agent/usb"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/license"
	"github.com/buildyard/buildyard/internal/logs"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/transfer"
)

// Node is a node's agent with all its dependencies, wired together.
type Node struct {
	Driver hv.Driver
	Host   hv.Host // as reported by the driver

	agent          *agent.Agent
	tokenSource    *registrytoken.Source // for the registry
	proxy          *proxy.Proxy          // nil: no proxy
	registryPuller *cache.Registry
	metrics        *obs.MetricsServer // nil: not enabled
	peers          *peerNode          // nil: no other node is used, and none reads from this one
	license        *license.File      // nil: no node license
	templates      *cache.Cache
	log            *slog.Logger
	closers        []io.Closer
}

// NodeOptions are the options of OpenNode.
type NodeOptions struct {
	DataDir       datadir.Dir // with the identity of a joined node
	Driver        string      // one of driverNames
	VNCListenAddr string      // listen address of VNC consoles; "": loopback
	Bridge        string      // bridge of this host for network mode bridge; "": the mode is refused

	GuestUser         string // user of macOS guests; "": the driver's default
	GuestPasswordFile string // file with that user's password; "": the driver's default

	QEMUUser         string         // user of QEMU when this program is root; "": the driver's choice
	RequireIsolation bool           // no VM starts without the firewall rule that keeps guests off this host
	LazyPull         cache.LazyMode // "": off
	RegistryMirror   string         // URL of a mirror of the registry, for pulls; "": none
	Peers            PeerOptions    // whether nodes read versions from each other
	MetricsAddr      string         // listen address of metrics, host:port; "": disabled
	IgnoreFlushes    bool           // VMs ignore flushes of their guests; for measurements only
	vlans            vlanFlags
	Logger           *slog.Logger
	License          LicenseOptions
	AllowDowngrade   bool // the controller may replace this agent by an older one

	UpdateKeys string // file with the trusted keys of agent packages; "": the one in the data directory

	updater *update.Updater // nil: no updates

	controllers *controllers.Controllers // of the cloud; nil: they are opened

	Shipper *logs.Shipper // sends the log when the controller enables that; nil: no log is sent
}

// LicenseOptions select the license of a node.
type LicenseOptions struct {
	LicenseFile   string // "": only that of its hypervisor
	AuthorityFile string // file of the authority; "": those of the machine and the user
}

// OpenNode locks the data directory and wires the agent. Run drives it; Close releases what was
// opened, and never stops a VM.
func OpenNode(ctx context.Context, o NodeOptions) (n *Node, err error) {
	n = &Node{}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	identity, err := o.DataDir.Identity()
	if err != nil {
		return n, err
	}
	identity.Host = joinHost(identity)
	if err := n.openLicense(o); err != nil {
		return n, err
	}
	lock, err := o.DataDir.Lock()
	if err != nil {
		return n, err
	}
	n.closers = append(n.closers, closerFunc(func() error {
		lock.Release()
		return nil
	}))
	if err := o.vlans.applyTo(&identity); err != nil && o.Driver != DriverSim && o.Driver != DriverAnka {
		return n, err
	}
	if n.Driver, err = openDriver(ctx, o, identity); err != nil {
		return n, err
	}
	n.closeLater(n.Driver)
	if n.Host, err = n.Driver.Describe(ctx); err != nil {
		return n, fmt.Errorf("hypervisor: %w", err)
	}
	options, err := n.openParts(ctx, o, identity)
	if err != nil {
		return n, err
	}
	n.agent = agent.New(options)
	if err := n.openProxy(ctx, o.DataDir, identity); err != nil { // VMs work without it
		o.Logger.WarnContext(ctx, "open registry proxy failed", "error", err)
	}
	return n, n.openMetrics(ctx, o)
}

// openLicense reads the license of the node if it has one.
func (n *Node) openLicense(o NodeOptions) (err error) {
	if o.License.LicenseFile == "" {
		return nil
	}
	n.license, err = license.Open(license.Options{
		Product: license.Node, Path: o.License.LicenseFile, AuthorityFile: o.License.AuthorityFile, Logger: o.Logger,
	})
	return err
}

// openMetrics binds the address of the metrics if one is configured.
func (n *Node) openMetrics(ctx context.Context, o NodeOptions) (err error) {
	if o.MetricsAddr == "" {
		return nil
	}
	shippers := map[string]*logs.Shipper{}
	if o.Shipper != nil {
		shippers["central"] = o.Shipper
	}
	families := slices.Concat(obs.ProgramFamilies("node", time.Now()), n.agent.Families(), n.templates.Families(),
		n.registryPuller.Families(), logs.Families(shippers))
	if n.peers != nil {
		families = slices.Concat(families, n.peers.server.Families(), n.peers.excluded.Families())
	}
	n.metrics, err = obs.ListenMetrics(ctx,
		obs.MetricsOptions{Addr: o.MetricsAddr, Logger: o.Logger, Families: families})
	if err == nil {
		n.closeLater(n.metrics)
	}
	return err
}

// MetricsURL returns the URL of the node's metrics; "" when they are not served.
func (n *Node) MetricsURL() string {
	if n.metrics == nil {
		return ""
	}
	return n.metrics.URL()
}

// openParts opens the agent's dependencies.
func (n *Node) openParts(ctx context.Context, o NodeOptions, identity datadir.Identity) (agent.Options, error) {
	var none agent.Options
	followed, err := o.controllersOf(identity)
	if err != nil {
		return none, err
	}
	client, err := nodeapi.New(followed.BaseURL(), followed, identity.Credential)
	if err != nil {
		return none, err
	}
	n.tokenSource = newTokenSource(identity, client, o.Logger)
	connections := connection.Open(o.DataDir, o.RegistryMirror, o.Logger)
	followed.SetConnectionLog(connections)
	n.closers = append(n.closers, closerFunc(func() error {
		followed.SetConnectionLog(nil)
		connections.Close()
		return nil
	}))
	trust := followed.Trust()
	if o.RegistryMirror != "" {
		if _, err := transfer.New(transfer.Options{BaseURL: o.RegistryMirror}); err != nil {
			return none, fmt.Errorf("--registry-mirror: %w", err)
		}
	}
	source := cache.NewRegistry(transfer.Options{
		Mirror: o.RegistryMirror, TLS: trust.Config(), DialTLS: trust.DialTLS, Logger: o.Logger,
	}, n.tokenSource)
	n.closeLater(source)
	n.registryPuller = source
	if n.peers, err = n.openPeers(ctx, o, identity, client); err != nil {
		return none, err
	}
	lazy, err := n.lazyOptions(o, identity, source)
	if err != nil {
		return none, err
	}
	templates, err := cache.Open(cache.Options{
		Dir: o.DataDir.TemplateDir(), Source: source, Reserve: identity.DiskReserve, Logger: o.Logger, Lazy: lazy,
	})
	if err != nil {
		return none, err
	}
	n.closeLater(templates)
	n.templates, n.log = templates, o.Logger
	var peerInfo agent.PeerInfo
	if n.peers != nil {
		if err := n.peers.serve(o, templates, followed); err != nil {
			return none, err
		}
		source.UsePeers(n.readPeers)
		peerInfo = n.peers.info(source)
	}
	records, err := journal.Open(o.DataDir.JournalDir(),
		journal.Options{Logger: o.Logger, ReserveBytes: journal.DefaultReserveBytes})
	if err != nil {
		return none, err
	}
	n.closeLater(records)
	options := agent.Options{
		Identity: identity, Controller: client, Driver: n.Driver, Templates: templates, Journal: records,
		Machine: agent.NewMachine(o.DataDir.TemplateDir(), o.DataDir.TemplatesDir()), Logger: o.Logger,
		Version:    obs.FullVersion(),
		Registries: source, SaveDir: o.DataDir.SaveDir(), CacheJobFile: o.DataDir.CacheJobFile(), LogUploader: source,
		CentralLog:  centralLog(o.Shipper),
		PulledBytes: source.PulledBytes,
		Consoles:    client,
		Peer:        peerInfo,
		Cloud:       followed,
		License:     n.license,
		Devices:     usb.NewAvailableDevices(usb.At(o.DataDir.USBClaimsFile()), usb.SysfsDevicesDir, o.Logger),
		Updater:     updaterOf(o.updater),

		SleepInhibitor: n.openSleepInhibitor(o.Logger),
	}
	if lazy != nil {
		options.LazyTemplates = templates
	}
	return options, nil
}

// openSleepInhibitor returns what keeps a Mac awake while VMs run; nil on other systems.
func (n *Node) openSleepInhibitor(log *slog.Logger) agent.SleepInhibitor {
	if runtime.GOOS != "darwin" {
		return nil
	}
	assertion := keepawake.New(log)
	n.closeLater(assertion)
	return assertion
}

// closerFunc adapts a function to io.Closer.
type closerFunc func() error

func (f closerFunc) Close() error { return f() }

// closeLater registers a resource for Close.
func (n *Node) closeLater(v any) {
	if c, ok := v.(io.Closer); ok {
		n.closers = append(n.closers, c)
	}
}

// Run serves the controller until the context ends or the agent cannot continue. Everything that
// it started has stopped when it returns.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	background.Go(func() { n.removeStalePulls(ctx) })
	background.Go(func() { n.serveProxy(ctx) })
	n.reapVMs(ctx)
	if n.license != nil {
		background.Go(func() { n.license.Run(ctx) })
	}
	if n.peers != nil {
		background.Go(func() { n.servePeers(ctx) })
	}
	if n.metrics != nil {
		background.Go(func() { n.serveMetrics(ctx) })
	}
	return n.agent.Run(ctx)
}

// serveMetrics serves the metrics. The agent continues when that fails: VMs are more important.
func (n *Node) serveMetrics(ctx context.Context) {
	n.log.InfoContext(ctx, "metrics served", "url", n.MetricsURL())
	if err := n.metrics.Run(ctx); err != nil {
		n.log.ErrorContext(ctx, "metrics server stopped", "error", err)
	}
}

// stalePullInterval is the interval at which stale interrupted pulls are removed.
const stalePullInterval = time.Hour

func (n *Node) removeStalePulls(ctx context.Context) {
	ticker := time.NewTicker(stalePullInterval)
	defer ticker.Stop()
	for {
		if err := n.templates.RemoveStalePulls(); err != nil {
			n.log.WarnContext(ctx, "removing interrupted pulls failed", "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// Close releases the resources of OpenNode in reverse order.
func (n *Node) Close() error {
	var errs []error
	for _, c := range slices.Backward(n.closers) {
		errs = append(errs, c.Close())
	}
	n.closers = nil
	return errors.Join(errs...)
}
