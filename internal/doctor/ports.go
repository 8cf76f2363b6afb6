package doctor

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Ports returns the check whether this machine can open connections to services.
func Ports(services ...Service) Check {
	return Check{"ports", func(ctx context.Context) Finding {
		var open, closed []string
		for _, s := range services {
			address := hostPort(s.URL)
			conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
			if err != nil {
				closed = append(closed, fmt.Sprintf("%s of %s (%s)", address, s.Name, reason(err)))
				continue
			}
			_ = conn.Close()
			if !slices.Contains(open, address) {
				open = append(open, address)
			}
		}
		if len(closed) > 0 {
			return Finding{
				Failed, "no connection to " + strings.Join(closed, ", "),
				"start the service, or open its port between this machine and it (docs/firewall.md)",
			}
		}
		return Finding{Outcome: OK, Detail: "connected to " + strings.Join(open, ", ")}
	}}
}

// hostPort returns the address of a URL with its port.
func hostPort(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
