package buildyard

import (
	"context"
	"log/slog"
	"net"
	"strings"

	"github.com/buildyard/buildyard/internal/config"
)

// ExposedAddresses returns the addresses at which other machines can use this process without
// authentication, those of a registry in it included; nil when there are none. It is valid after
// Open.
func (s *ControllerService) ExposedAddresses() []string {
	listeners := []*listener{s.listener}
	if s.registry != nil {
		listeners = append(listeners, s.registry.listener)
	}
	return exposedAddresses(s.settings, listeners...)
}

// exposedAddresses returns the addresses of listeners that are not on loopback, when
// authentication is off.
func exposedAddresses(v *config.Values, listeners ...*listener) []string {
	if v.Bool(config.EnableAuth) {
		return nil
	}
	var exposed []string
	for _, l := range listeners {
		if addr, ok := l.netListener.Addr().(*net.TCPAddr); ok && !addr.IP.IsLoopback() {
			exposed = append(exposed, addr.String())
		}
	}
	return exposed
}

// warnExposed logs one warning when other machines can use a service without authentication.
func warnExposed(ctx context.Context, log *slog.Logger, addresses []string) {
	if len(addresses) > 0 {
		log.WarnContext(ctx, "authentication is off and other machines can connect: every client can run "+
			"scripts in VMs and delete templates; enable it with `buildyard init` and a restart",
			"address", strings.Join(addresses, ", "))
	}
}
