package qemu

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/buildyard/buildyard/internal/hv"
)

// firstHostPort is where automatic host ports begin.
const firstHostPort = 10000

// anyIPv4 is the host address of a rule that names none: CI executors connect
// from other machines.
const anyIPv4 = "0.0.0.0"

// choosePorts fills in the rules' host ports. Ports are reserved for the VM
// until releasePorts; those in avoid have just been found busy.
func (d *Driver) choosePorts(ctx context.Context, id string, rules []hv.PortRule, avoid map[int]bool) ([]hv.PortRule, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := slices.Clone(rules)
	for i := range out {
		if out[i].Protocol == "" {
			out[i].Protocol = "tcp"
		}
		if out[i].HostIP == "" {
			out[i].HostIP = anyIPv4
		}
		if out[i].HostPort != 0 {
			d.reserved[out[i].HostPort] = id
		}
	}
	next := firstHostPort
	for i := range out {
		if out[i].HostPort != 0 {
			continue
		}
		for ; next < 65536; next++ {
			if d.reserved[next] == "" && !avoid[next] && free(ctx, out[i], next) {
				break
			}
		}
		if next == 65536 {
			return nil, fmt.Errorf("no free host port from %d up for port rule %q", firstHostPort, out[i].Name)
		}
		out[i].HostPort = next
		d.reserved[next] = id
	}
	return out, nil
}

// free tries whether something listens there now. QEMU may still find the port
// taken a moment later; Start then chooses again.
func free(ctx context.Context, p hv.PortRule, port int) bool {
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

// reservePorts notes the ports of a VM that was found running.
func (d *Driver) reservePorts(id string, rules []hv.PortRule, screen int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if screen != 0 {
		d.reserved[screen] = id
	}
	for _, p := range rules {
		d.reserved[p.HostPort] = id
	}
}

func (d *Driver) releasePorts(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for port, owner := range d.reserved {
		if owner == id {
			delete(d.reserved, port)
		}
	}
}
