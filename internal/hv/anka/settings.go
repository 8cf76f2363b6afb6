package anka

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/internal/hv"
)

const gibibyte = 1 << 30

// acceptSpec fills in the defaults of a spec and refuses what anka cannot do.
func (d *Driver) acceptSpec(s hv.Spec) (hv.Spec, error) {
	if err := s.Validate(); err != nil {
		return s, err
	}
	if s.Apple == nil {
		return s, hv.RefusalMacOSOnly.Error("anka")
	}
	if s.State != nil {
		return s, hv.RefusalSuspend.Error("anka")
	}
	s, err := s.Clone().WithDefaults()
	if err != nil {
		return s, err
	}
	switch {
	case s.Disks[0].Format != hv.FormatAnka:
		return s, hv.RefusalFormat.Error(s.Disks[0].Format, "anka")
	case s.Isolated:
		return s, hv.RefusalIsolated.Error("anka")
	case s.Network == hv.NetworkBridge && d.opts.Bridge == "":
		return s, hv.RefusalNetwork.Error(s.Network)
	case s.VLAN != 0 && !slices.Contains(d.opts.VLANs, s.VLAN):
		return s, hv.RefusedError("VLAN %d is not one of those of this node", s.VLAN)
	case s.VNC != nil:
		return s, hv.RefusalAnkaScreen.Error()
	}
	for i, p := range s.Ports {
		if p.Protocol == "udp" {
			return s, hv.RefusalUDP.Error(p.Name)
		}
		s.Ports[i].Protocol = "tcp"
		if p.HostIP == "" {
			s.Ports[i].HostIP = hv.AnyIPv4
		}
	}
	return s, nil
}

// ruleName names the rule with an index in a spec: names of specs may be anything.
func ruleName(index int) string { return "buildyard-" + strconv.Itoa(index) }

// settings returns the commands that configure a clone as its spec says.
func (m *machine) settings(s hv.Spec) [][]string {
	memory := strconv.Itoa(s.MemoryMB) + "M"
	if s.MemoryMB%1024 == 0 {
		memory = strconv.Itoa(s.MemoryMB/1024) + "G"
	}
	network := []string{"network", "-t", string(s.Network), "-m", s.MAC}
	if s.Network == hv.NetworkBridge {
		network = append(network, "-b", m.driver.opts.Bridge)
	}
	if s.VLAN != 0 {
		network = append(network, "-v", strconv.Itoa(s.VLAN))
	}
	commands := [][]string{
		{"cpu", strconv.Itoa(s.CPUs)}, {"ram", memory}, network, {"label", "buildyard", m.id},
	}
	for i, p := range s.Ports {
		rule := strconv.Itoa(p.GuestPort) + ":" + p.HostIP
		if p.HostPort != 0 {
			rule += ":" + strconv.Itoa(p.HostPort)
		}
		commands = append(commands, []string{"port", ruleName(i), rule})
	}
	for i, c := range commands {
		commands[i] = append([]string{"modify", m.name()}, c...)
	}
	return commands
}

// configure applies the settings of a spec to the clone. Rules that it has of its image, or of an earlier spec, are
// removed: they would open ports of the host.
func (m *machine) configure(ctx context.Context, s hv.Spec, disk int64) error {
	if err := m.growDisk(ctx, s.DiskBytes, disk); err != nil {
		return err
	}
	network, err := m.showNetwork(ctx)
	if err != nil {
		return err
	}
	for _, r := range network.Rules {
		if strings.HasPrefix(r.Name, "-") {
			return fmt.Errorf("the image has a port rule %.80q, whose name is an option of anka; remove the rule from "+
				"the VM of the template, and import that again", r.Name)
		}
		if err := m.cli.do(ctx, []string{"modify", m.name(), "port", r.Name, "-d"}); err != nil {
			return err
		}
	}
	return m.cli.do(ctx, m.settings(s)...)
}

// growDisk enlarges the disk to a size, in whole GiB; 0 leaves it.
func (m *machine) growDisk(ctx context.Context, size, now int64) error {
	switch {
	case size == 0 || size == now:
		return nil
	case size < now:
		return hv.RefusedError("disk size %d: the image has %d bytes, and a disk can only grow", size, now)
	}
	whole := (size + gibibyte - 1) / gibibyte
	if whole*gibibyte == now {
		return nil
	}
	return m.cli.do(ctx, []string{"modify", m.name(), "disk", "-s", strconv.FormatInt(whole, 10) + "G"})
}

func (m *machine) showNetwork(ctx context.Context) (n shownNetwork, err error) {
	err = m.cli.ask(ctx, call{timeout: shortTimeout, args: []string{"show", m.name(), "network"}}, &n)
	return n, err
}

// portsInEffect returns the rules of a spec with the host ports that anka has opened.
func portsInEffect(rules []hv.PortRule, n shownNetwork) ([]hv.PortRule, error) {
	out := slices.Clone(rules)
	for i := range out {
		for _, r := range n.Rules {
			if r.Name == ruleName(i) {
				out[i].HostPort = r.HostPort
			}
		}
		if out[i].HostPort < 1 || out[i].HostPort > 65535 {
			return nil, fmt.Errorf("anka has opened no host port for rule %q; see: anka show VM network", out[i].Name)
		}
	}
	return out, nil
}

// isConfigured reports whether a VM that was made for one spec has the settings of another.
func (m *machine) isConfigured(has, wants hv.Spec) bool {
	return reflect.DeepEqual(m.settings(has), m.settings(wants)) && has.DiskBytes == wants.DiskBytes
}

// checkMAC refuses the address of another VM that runs.
func (m *machine) checkMAC(ctx context.Context, mac string) error {
	vms, err := m.driver.List(ctx)
	if err != nil {
		return err
	}
	address, _ := net.ParseMAC(mac) // it is valid
	for _, vm := range vms {
		other, _ := net.ParseMAC(vm.MAC)
		if vm.ID != m.id && vm.Status == hv.Running && slices.Equal(address, other) {
			return hv.RefusalMACInUse.Error(mac, vm.ID)
		}
	}
	return nil
}
