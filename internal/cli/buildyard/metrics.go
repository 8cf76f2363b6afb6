package buildyard

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/logs"
	"github.com/buildyard/buildyard/internal/metric"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/rest"
)

// metricsPort is the metrics endpoint of a service; the zero value serves none.
type metricsPort struct {
	server *obs.MetricsServer // nil: disabled
}

// wantsMetrics reports whether metrics are enabled.
func wantsMetrics(settings *config.Values) bool { return settings.Bool(config.EnableMetrics) }

// open binds the port of the metrics, on the host of the API address: a loopback-only service
// keeps its metrics on loopback.
func (m *metricsPort) open(
	ctx context.Context, settings *config.Values, log *slog.Logger, families ...[]metric.Family,
) error {
	host, _, err := net.SplitHostPort(settings.String(config.ListenAddr))
	if err != nil {
		return fmt.Errorf("%s: %w", config.ListenAddr, err)
	}
	var all []metric.Family
	for _, f := range families {
		all = append(all, f...)
	}
	m.server, err = obs.ListenMetrics(ctx, obs.MetricsOptions{
		Addr:     net.JoinHostPort(host, strconv.Itoa(settings.Int(config.MetricsPort))),
		Path:     settings.String(config.MetricsPath),
		Families: all, Logger: log,
		WrapHandler: func(l net.Listener, next http.Handler) http.Handler {
			o := frontOptions(settings, l, log)
			o.Guarded = false // it has no credentials
			return rest.HostCheck(*o, next)
		},
	})
	return err
}

// MetricsURL returns the URL of the metrics; "" when they are not served.
func (m *metricsPort) MetricsURL() string {
	if m.server == nil {
		return ""
	}
	return m.server.URL()
}

// run serves the metrics until ctx ends.
func (m *metricsPort) run(ctx context.Context) error {
	if m.server == nil {
		<-ctx.Done()
		return nil
	}
	return m.server.Run(ctx)
}

func (m *metricsPort) close() error {
	if m.server == nil {
		return nil
	}
	return m.server.Close()
}

// openMetrics serves the metrics of this process, if enabled.
func (s *ControllerService) openMetrics(ctx context.Context) error {
	if !wantsMetrics(s.settings) {
		return nil
	}
	s.authRefusals = make(chan struct{}, often)
	s.requestMeter = rest.NewMeter("controller", s.authRefusals)
	meters := []*rest.Meter{s.requestMeter}
	families := [][]metric.Family{
		obs.ProgramFamilies("controller", time.Now()), s.controller.Families(), s.store.Families(),
		logs.Families(s.logOutput.runningShippers), s.diskFamilies(),
	}
	if s.registry != nil {
		s.registry.requestMeter = rest.NewMeter("registry", s.authRefusals)
		meters = append(meters, s.registry.requestMeter)
		families = append(families, s.registry.registry.Families()) //nolint:contextcheck // they are collected as long as the process runs
	}
	return s.open(ctx, s.settings, s.log, append(families, rest.Families(meters...))...)
}
