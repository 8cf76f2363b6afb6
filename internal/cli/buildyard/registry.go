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
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
)

// diskReserve is the space, in bytes, that a registry reserves for small writes when its disk is
// full.
const diskReserve = 64 << 20

// registryGrace is the shutdown timeout of open requests at the registry.
const registryGrace = 10 * time.Second

// RegistryService is the registry, alone or inside a controller's process.
// ParseFlags, Open, Run and Close come in this order.
type RegistryService struct {
	Stderr io.Writer // of the log

	metricsPort
	settings   *config.Values
	base, addr string
	meter      *rest.Meter // nil: requests are not counted
	scrubRate  int64
	keepLogs   time.Duration
	maxLogSize int64
	output     *logOutput
	shares     bool // output is owned by the controller of this process
	log        *slog.Logger
	edge       *portTLS
	listener   *listener
	local      *listener // for programs of this machine; nil: disabled, or its port is in use
	inner      *pipe     // for the controller in this process; nil: none
	core       *registry.Registry
	limits     registryrest.Limits
	keeps      *registryStores // nil without authentication, or when the controller of this process has it
	access     *access
	trail      *rest.AuditTrail // nil: no authentication, no event log, or the controller of this process has it
}

// ParseFlags reads the settings from flags, environment and file.
func (s *RegistryService) ParseFlags(src config.Sources) error {
	settings, err := config.Load(config.RegistryTable, src)
	if err != nil {
		return err
	}
	if s.output, err = openLog(s.Stderr, settings); err != nil {
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
	s.output, s.shares, s.inner = output, true, newPipe()
	return s.configure(settings, settings.String(config.RegistryBasePath),
		settings.String(config.RegistryListenAddress))
}

func (s *RegistryService) configure(settings *config.Values, base, addr string) (err error) {
	s.settings = settings
	s.base, s.addr, s.scrubRate = base, addr, settings.Size(config.ScrubRate)
	s.keepLogs, s.maxLogSize = settings.Days(config.KeepLogs), settings.Megabytes(config.MaxLogSize)
	s.log, err = s.output.logger(settings.String(config.LogLevel), "registry")
	return err
}

// Open binds the address and opens the storage. Close closes what Open opened, also when it failed.
func (s *RegistryService) Open(ctx context.Context) error {
	var err error
	if s.edge == nil {
		if s.edge, err = openPortTLS(apiEdge, s.settings, s.log); err != nil {
			return err
		}
	}
	if s.listener, err = listen(ctx, "the registry", s.addr, s.log); err != nil {
		return err
	}
	s.listener.enableTLS(s.edge)
	s.listener.protect(s.settings, s.log)
	s.limits.LogStreams = rest.NewConcurrencyLimit("log streams", config.MaxLogStreams,
		s.settings.Int(config.MaxLogStreams))
	s.limits.ScanUploads = rest.NewConcurrencyLimit("uploads of scan results", "", registry.MaxDrafts)
	if s.local, err = s.listenLocally(ctx); err != nil {
		return err
	}
	if s.local != nil {
		s.local.protect(s.settings, s.log)
	}
	if err := os.MkdirAll(s.base, 0o750); err != nil {
		return fmt.Errorf("create storage directory: %w", err)
	}
	o := registry.Options{
		Base: s.base, Version: obs.FullVersion(), Address: s.maintenanceURL(), Logger: s.log, ScrubRate: s.scrubRate,
		Reserve:  diskReserve,
		KeepLogs: s.keepLogs, MaxLogSize: s.maxLogSize,
		MaxPushes: s.settings.Int(config.MaxPushes), MaxReservation: s.settings.Int(config.MaxPushReservation),
		MaxLogRows: s.settings.Int(config.MaxLogRows), MaxLogRowsBytes: s.settings.Size(config.MaxLogRowBytes),
	}
	if err := injectFaults(&o); err != nil {
		return err
	}
	if s.core, err = registry.Open(ctx, o); err != nil {
		return err
	}
	s.output.writeLocal(s.core.Logs())
	if s.shares {
		return nil
	}
	if err := s.openOwnAccess(); err != nil { //nolint:contextcheck // files that are read at startup
		return err
	}
	if !wantsMetrics(s.settings) {
		return nil
	}
	s.meter = rest.NewMeter("registry", nil)
	own := s.core.Families() //nolint:contextcheck // they are collected as long as the process runs
	return s.open(ctx, s.settings, s.log, obs.ProgramFamilies("registry", time.Now()), own,
		logs.Families(s.output.shippers), rest.Families(s.meter))
}

// URL returns the registry's address for clients on this machine, after Open.
func (s *RegistryService) URL() string { return s.listener.url() }

// publicURL returns an address that other machines may reach: that of the first
// network interface when the registry listens on all of them.
func (s *RegistryService) publicURL() string {
	addr, _ := s.listener.socket.Addr().(*net.TCPAddr)
	if !addr.IP.IsUnspecified() {
		return s.URL()
	}
	if ip := outwardIP(); ip != "" {
		return s.listener.scheme() + net.JoinHostPort(ip, strconv.Itoa(addr.Port))
	}
	return s.URL()
}

// outwardIP returns the first address of this machine that others may reach.
func outwardIP() string {
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
	s.log.InfoContext(ctx, "registry started", "address", s.URL(), "local", s.localURL(), "storage", s.base,
		"metrics", s.MetricsURL(), "version", obs.FullVersion())
	if !s.shares {
		warnExposed(ctx, s.log, exposedAddresses(s.settings, s.listener))
	}
	var work sync.WaitGroup
	if !s.shares {
		defer s.output.start(ctx)()
	}
	ctx, cancel := context.WithCancel(ctx)
	work.Go(func() { s.core.Run(ctx) })
	if !s.shares {
		work.Go(func() { s.edge.run(ctx) })
	}
	work.Go(func() { s.access.run(ctx) })
	work.Go(func() { s.keeps.run(ctx, s.log) })
	if s.trail != nil {
		work.Go(func() { s.trail.Run(ctx) })
	}
	defer work.Wait()
	defer cancel()
	failed := make(chan error, 3)
	background := func(do func(context.Context) error) {
		work.Go(func() {
			failed <- do(ctx)
			cancel()
		})
	}
	routes := slices.Concat(registryrest.RoutesWithin(s.core, s.limits), s.access.Routes())
	local, err := s.localGuard()
	if err != nil {
		return err
	}
	background(s.run)
	trusted := rest.Metered(s.meter, routes, local.Handler(routes, s.log))
	background(func(ctx context.Context) error { return s.serveLocally(ctx, trusted) })
	background(func(ctx context.Context) error { return s.serveInner(ctx, trusted) })
	err = s.listener.serve(ctx, rest.Metered(s.meter, routes, s.access.Guard().Handler(routes, s.log)), registryGrace)
	cancel()
	err = errors.Join(err, <-failed, <-failed, <-failed)
	flush(ctx, s.trail, s.log)
	return err
}

// Close releases everything that Open acquired.
func (s *RegistryService) Close() error {
	if s.listener != nil {
		_ = s.listener.close() // closed already when Run served it
	}
	if s.local != nil {
		_ = s.local.close()
	}
	err := errors.Join(s.close(), s.keeps.close())
	if s.core != nil {
		err = errors.Join(err, s.core.Close())
	}
	if s.shares {
		return err
	}
	return errors.Join(err, s.output.close())
}
