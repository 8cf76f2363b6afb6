package buildyard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/logs"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/registry/s3backend"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
)

// diskReserveBytes is the space, in bytes, that a registry reserves for small writes when its disk is
// full.
const diskReserveBytes = 64 << 20

// registryShutdownTimeout is the shutdown timeout of open requests at the registry.
const registryShutdownTimeout = 10 * time.Second

// RegistryService is the registry, alone or inside a controller's process.
// ParseFlags, Open, Run and Close come in this order.
type RegistryService struct {
	Stderr io.Writer // of the log

	metricsPort
	settings               *config.Values
	storageDir, listenAddr string
	requestMeter           *rest.Meter // nil: requests are not counted
	scrubBytesPerSecond    int64
	logRetention           time.Duration
	maxLogBytes            int64
	logOutput              *logOutput
	sharesLogOutput        bool // output is owned by the controller of this process
	log                    *slog.Logger
	registryTLS            *portTLS
	listener               *listener
	localListener          *listener // for programs of this machine; nil: disabled, or its port is in use
	pipe                   *pipe     // for the controller in this process; nil: none
	registry               *registry.Registry
	backend                *s3backend.Backend // nil: the storage is a directory
	limits                 registryrest.Limits
	ownStores              *registryStores // nil without authentication, or when the controller of this process has it
	access                 *access
	// nil: no authentication, no event log, or the controller of this process has it
	auditTrail *rest.AuditTrail
}

// ParseFlags reads the settings from flags, environment and file.
func (s *RegistryService) ParseFlags(src config.Sources) error {
	settings, err := config.Load(config.RegistryTable, src)
	if err != nil {
		return err
	}
	if s.logOutput, err = openLog(s.Stderr, settings); err != nil {
		return err
	}
	if err := checkAccess(settings, config.Authorization); err != nil {
		return err
	}
	if err := checkTLS(settings, config.UseHTTPS); err != nil {
		return err
	}
	return s.configure(settings, settings.String(config.BasePath), settings.String(config.ListenAddr))
}

// configureEmbedded configures the registry to run in the process of a controller.
func (s *RegistryService) configureEmbedded(settings *config.Values, output *logOutput) error {
	s.logOutput, s.sharesLogOutput, s.pipe = output, true, newPipe()
	return s.configure(settings, settings.String(config.RegistryBasePath),
		settings.String(config.RegistryListenAddress))
}

func (s *RegistryService) configure(settings *config.Values, base, addr string) (err error) {
	s.settings = settings
	s.storageDir, s.listenAddr, s.scrubBytesPerSecond = base, addr, settings.Size(config.ScrubRate)
	s.logRetention, s.maxLogBytes = settings.Days(config.KeepLogs), settings.Megabytes(config.MaxLogSize)
	s.log, err = s.logOutput.logger(settings.String(config.LogLevel), "registry")
	return err
}

// Open binds the address and opens the storage. Close closes what Open opened, also when it failed.
func (s *RegistryService) Open(ctx context.Context) error {
	var err error
	if s.registryTLS == nil {
		if s.registryTLS, err = openPortTLS(apiEdge, s.settings, s.log); err != nil {
			return err
		}
	}
	setting := config.ListenAddr
	if s.sharesLogOutput {
		setting = config.RegistryListenAddress
	}
	if s.listener, err = listen(ctx, "the registry ("+setting+")", s.listenAddr, s.log); err != nil {
		return err
	}
	s.listener.enableTLS(s.registryTLS)
	s.listener.enableProtection(s.settings, s.log)
	s.limits.LogStreams = rest.NewConcurrencyLimit("log streams", config.MaxLogStreams,
		s.settings.Int(config.MaxLogStreams))
	s.limits.ScanUploads = rest.NewConcurrencyLimit("uploads of scan results", "", registry.MaxScanUploads)
	if s.localListener, err = s.listenLocally(ctx); err != nil {
		return err
	}
	if s.localListener != nil {
		s.localListener.enableProtection(s.settings, s.log)
	}
	if err := os.MkdirAll(s.storageDir, 0o750); err != nil {
		return fmt.Errorf("create storage directory: %w", err)
	}
	o := registry.Options{
		Base: s.storageDir, Version: obs.FullVersion(), Address: s.maintenanceURL(), Logger: s.log,
		ScrubRate:    s.scrubBytesPerSecond,
		PeerSums:     s.settings.Bool(config.PeerSums),
		ReserveBytes: diskReserveBytes,
		LogRetention: s.logRetention, MaxLogSize: s.maxLogBytes,
		MaxPushes: s.settings.Int(config.MaxPushes), MaxReservationPercent: s.settings.Int(config.MaxPushReservation),
		MaxLogRows: s.settings.Int(config.MaxLogRows), MaxLogRowsBytes: s.settings.Size(config.MaxLogRowBytes),
	}
	if err := connectFaultPlan(&o); err != nil {
		return err
	}
	if s.backend, err = openBackend(s.settings, s.log); err != nil {
		return err
	}
	if s.backend != nil {
		o.Backend = s.backend
		if s.settings.Origin(config.ScrubRate) == config.FromDefault {
			o.ScrubRate = 0 // the bucket keeps checksums, and each read of it may cost money
		}
	}
	if s.registry, err = registry.Open(ctx, o); err != nil {
		return err
	}
	s.logOutput.writeLocal(s.registry.Logs())
	if s.sharesLogOutput {
		return nil
	}
	if err := s.openOwnAccess(); err != nil { //nolint:contextcheck // files that are read at startup
		return err
	}
	if !wantsMetrics(s.settings) {
		return nil
	}
	s.requestMeter = rest.NewMeter("registry", nil)
	own := s.registry.Families() //nolint:contextcheck // they are collected as long as the process runs
	return s.open(ctx, s.settings, s.log, obs.ProgramFamilies("registry", time.Now()), own,
		logs.Families(s.logOutput.runningShippers), rest.Families(s.requestMeter))
}

// URL returns the registry's address for clients on this machine, after Open.
func (s *RegistryService) URL() string { return s.listener.url() }

// publicURL returns an address that other machines may reach: that of the first
// network interface when the registry listens on all of them.
func (s *RegistryService) publicURL() string {
	addr, _ := s.listener.netListener.Addr().(*net.TCPAddr)
	if !addr.IP.IsUnspecified() {
		return s.URL()
	}
	if ip := externalIP(); ip != "" {
		return s.listener.scheme() + net.JoinHostPort(ip, strconv.Itoa(addr.Port))
	}
	return s.URL()
}

// externalIP returns the first address of this machine that others may reach.
func externalIP() string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return ""
}

// Run serves until the context ends.
func (s *RegistryService) Run(ctx context.Context) error {
	s.log.InfoContext(ctx, "registry started", "address", s.URL(), "local", s.localURL(), "storage", s.storageDir,
		"metrics", s.MetricsURL(), "version", obs.FullVersion())
	if !s.sharesLogOutput {
		warnExposed(ctx, s.log, exposedAddresses(s.settings, s.listener))
	}
	var work sync.WaitGroup
	if !s.sharesLogOutput {
		defer s.logOutput.start(ctx)()
	}
	ctx, cancel := context.WithCancel(ctx)
	work.Go(func() { s.registry.Run(ctx) })
	if !s.sharesLogOutput {
		work.Go(func() { s.registryTLS.run(ctx) })
	}
	work.Go(func() { s.access.runJobs(ctx) })
	work.Go(func() { s.ownStores.run(ctx, s.log) })
	if s.auditTrail != nil {
		work.Go(func() { s.auditTrail.Run(ctx) })
	}
	defer work.Wait()
	defer cancel()
	failed := make(chan error, 4)
	background := func(do func(context.Context) error) {
		work.Go(func() {
			failed <- do(ctx)
			cancel()
		})
	}
	routes := slices.Concat(registryrest.RoutesWithLimits(s.registry, s.limits), s.access.Routes())
	local, err := s.localGuard()
	if err != nil {
		return err
	}
	background(s.run)
	background(s.watchBackend)
	trusted := rest.Metered(s.requestMeter, routes, local.Handler(routes, s.log))
	background(func(ctx context.Context) error { return s.serveLocally(ctx, trusted) })
	background(func(ctx context.Context) error { return s.servePipe(ctx, trusted) })
	err = s.listener.serve(ctx, rest.Metered(s.requestMeter, routes, s.access.Guard().Handler(routes, s.log)),
		registryShutdownTimeout)
	cancel()
	err = errors.Join(err, <-failed, <-failed, <-failed, <-failed)
	flushAuditTrail(ctx, s.auditTrail, s.log)
	return err
}

// Close releases everything that Open acquired.
func (s *RegistryService) Close() error {
	if s.listener != nil {
		_ = s.listener.close() // closed already when Run served it
	}
	if s.localListener != nil {
		_ = s.localListener.close()
	}
	err := errors.Join(s.close(), s.ownStores.close())
	if s.registry != nil {
		err = errors.Join(err, s.registry.Close())
	}
	if s.sharesLogOutput {
		return err
	}
	return errors.Join(err, s.logOutput.close())
}
