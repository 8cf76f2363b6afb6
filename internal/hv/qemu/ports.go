package qemu

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

// maxPortAttempts is how often another host port is chosen when the chosen one is taken.
const maxPortAttempts = 20

// hostfwdArg formats a port rule as QEMU's hostfwd option.
func hostfwdArg(p hv.PortRule) string {
	return fmt.Sprintf("%s:%s:%d-:%d", p.Protocol, p.HostIP, p.HostPort, p.GuestPort)
}

// effectivePort is a rule with the host port in effect, and whether the driver chose it.
type effectivePort struct {
	rule           hv.PortRule
	chosenByDriver bool
}

// findRefusedPort returns the rule that QEMU could not set up, according to its message.
func findRefusedPort(asked, ports []hv.PortRule, said string) (effectivePort, bool) {
	for i, p := range ports {
		if strings.Contains(said, "Could not set up host forwarding rule '"+hostfwdArg(p)+"'") {
			return effectivePort{p, i < len(asked) && asked[i].HostPort == 0}, true
		}
	}
	return effectivePort{}, false
}

// portConflict returns the port rule because of which QEMU ended, if any.
func (m *machine) portConflict() (effectivePort, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return findRefusedPort(m.config.Spec.Ports, m.config.Ports, m.lastEnd.Failure)
}

// avoidPort records a port that was taken, so that another one is chosen. It returns an error when
// that is of no use.
func avoidPort(avoid map[int]bool, o effectivePort) error {
	switch {
	case !o.chosenByDriver:
		return o.rule.TakenPortError()
	case len(avoid) == maxPortAttempts:
		err := fmt.Errorf(
			"port rule %q: no host port could be opened in %d attempts: other processes took them, last port %d",
			o.rule.Name, maxPortAttempts, o.rule.HostPort)
		return farm.MarkFailure(err, farm.FailureNetwork, "")
	}
	avoid[o.rule.HostPort] = true
	return nil
}

// choosePorts fills in the rules' host ports. Ports are reserved for the VM
// until releasePorts; those in avoid have just been found busy.
func (d *Driver) choosePorts(
	ctx context.Context, id string, rules []hv.PortRule, avoid map[int]bool,
) ([]hv.PortRule, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := slices.Clone(rules)
	for i := range out {
		if out[i].Protocol == "" {
			out[i].Protocol = "tcp"
		}
		if out[i].HostIP == "" {
			out[i].HostIP = hv.AnyIPv4
		}
		if out[i].HostPort != 0 {
			d.reservedPorts[out[i].HostPort] = id
		}
	}
	next := hv.FirstHostPort
	for i := range out {
		if out[i].HostPort != 0 {
			continue
		}
		for ; next < 65536; next++ {
			if d.reservedPorts[next] == "" && !avoid[next] && isPortFree(ctx, out[i], next) {
				break
			}
		}
		if next == 65536 {
			return nil, out[i].NoHostPortError()
		}
		out[i].HostPort = next
		d.reservedPorts[next] = id
	}
	return out, nil
}

// isPortFree reports whether nothing listens on a port now. QEMU may still find the port taken a moment
// later; Start then chooses again.
func isPortFree(ctx context.Context, p hv.PortRule, port int) bool {
	addr := net.JoinHostPort(p.HostIP, strconv.Itoa(port))
	var lc net.ListenConfig
	if p.Protocol == "udp" {
		c, err := lc.ListenPacket(ctx, "udp4", addr)
		if err != nil {
			return false
		}
		return c.Close() == nil
	}
	l, err := lc.Listen(ctx, "tcp4", addr)
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// reservePorts records the ports of a VM that was found running.
func (d *Driver) reservePorts(id string, rules []hv.PortRule, screen int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if screen != 0 {
		d.reservedPorts[screen] = id
	}
	for _, p := range rules {
		d.reservedPorts[p.HostPort] = id
	}
}

func (d *Driver) releasePorts(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for port, owner := range d.reservedPorts {
		if owner == id {
			delete(d.reservedPorts, port)
		}
	}
}
