package buildyard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
)

// diskReserve is the room, in bytes, that a registry keeps for what is small when its disk is full.
const diskReserve = 64 << 20

// RegistryService is the registry, alone or inside a controller's process.
// ParseFlags, Open, Run and Close come in this order.
type RegistryService struct {
	Stderr io.Writer // of the log

	metricsPort
	settings   *config.Values // nil inside a controller's process
	base, addr string
	meter      *rest.Meter // nil: requests are not counted
	scrubRate  int64
	log        *slog.Logger
	listener   *listener
	core       *registry.Registry
}

// ParseFlags reads the settings from flags, environment and file.
func (s *RegistryService) ParseFlags(src config.Sources) error {
	settings, err := config.Load(config.RegistryTable, src)
	if err != nil {
		return err
	}
	s.settings, s.scrubRate = settings, settings.Size(config.ScrubRate)
	return s.configure(settings.String(config.BasePath), settings.String(config.ListenAddr), settings.String(config.LogLevel))
}

func (s *RegistryService) configure(base, addr, level string) (err error) {
	s.base, s.addr = base, addr
	s.log, err = obs.Logger(s.Stderr, level, "registry")
	return err
}

// Open binds the address and opens the storage. What it opened is closed by Close,
// also when it fails half-way.
func (s *RegistryService) Open(ctx context.Context) error {
	var err error
	if s.listener, err = listen(ctx, "the registry", s.addr, s.log); err != nil {
		return err
	}
	if err := os.MkdirAll(s.base, 0o755); err != nil {
		return fmt.Errorf("storage directory: %w", err)
	}
	o := registry.Options{
		Base: s.base, Version: obs.FullVersion(), Address: s.URL(), Logger: s.log, ScrubRate: s.scrubRate, Reserve: diskReserve,
	}
	if err := arrange(&o); err != nil {
		return err
	}
	if s.core, err = registry.Open(ctx, o); err != nil || s.settings == nil || !wantsMetrics(s.settings) {
		return err
	}
	s.meter = rest.NewMeter("registry")
	own := s.core.Families() //nolint:contextcheck // they are asked as long as the process runs
	return s.open(ctx, s.settings, s.log, obs.ProgramFamilies("registry", time.Now()), own, rest.Families(s.meter))
}

// URL gives the registry's address for clients on this machine, after Open.
func (s *RegistryService) URL() string { return s.listener.url() }

// publicURL gives an address that other machines may reach: that of the first
// network interface when the registry listens on all of them.
func (s *RegistryService) publicURL() string {
	addr, _ := s.listener.socket.Addr().(*net.TCPAddr)
	if !addr.IP.IsUnspecified() {
		return s.URL()
	}
	if ip := outwardIP(); ip != "" {
		return "http://" + net.JoinHostPort(ip, strconv.Itoa(addr.Port))
	}
	return s.URL()
}

// outwardIP gives the first address of this machine that others may reach.
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
	s.log.InfoContext(ctx, "registry is ready", "address", s.URL(), "storage", s.base, "version", obs.FullVersion())
	var work sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	work.Go(func() { s.core.Run(ctx) })
	defer work.Wait()
	defer cancel()
	failed := make(chan error, 1)
	work.Go(func() {
		failed <- s.run(ctx)
		cancel()
	})
	routes := registryrest.Routes(s.core)
	err := s.listener.serve(ctx, rest.Metered(s.meter, routes, rest.Handler(routes, s.log)), 10*time.Second)
	cancel()
	return errors.Join(err, <-failed)
}

// Close gives back everything that Open took.
func (s *RegistryService) Close() error {
	if s.listener != nil {
		_ = s.listener.close() // closed already when Run served it
	}
	err := s.close()
	if s.core != nil {
		err = errors.Join(err, s.core.Close())
	}
	return err
}
