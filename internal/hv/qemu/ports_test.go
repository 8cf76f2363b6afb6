//go:build linux

package qemu

import (
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/hv"
)

// The rule that QEMU could not set up, according to its two kinds of messages.
func TestRefusedPort(t *testing.T) {
	asked := []hv.PortRule{{Name: "ssh"}, {Name: "web", HostPort: 1000}}
	ports := []hv.PortRule{
		{Name: "ssh", Protocol: "tcp", HostIP: hv.AnyIPv4, HostPort: 10000, GuestPort: 22},
		{Name: "web", Protocol: "udp", HostIP: "127.0.0.1", HostPort: 1000, GuestPort: 2},
	}
	for _, c := range []struct {
		said, rule string
		chosen     bool
	}{
		{"Could not set up host forwarding rule 'tcp:0.0.0.0:10000-:22'\r\n", "ssh", true},
		{
			"QEMU ended (exit status 1): qemu: -netdev user,hostfwd=udp:127.0.0.1:1000-:2: Could not set up host " +
				"forwarding rule 'udp:127.0.0.1:1000-:2'", "web", false,
		},
		{"Could not set up host forwarding rule 'tcp:127.0.0.1:1000-:2'", "", false},
		{"invalid host forwarding rule 'tcp:0.0.0.0:10000-:22'", "", false},
		{"", "", false},
	} {
		got, ok := findRefusedPort(asked, ports, c.said)
		if got.rule.Name != c.rule || got.chosenByDriver != c.chosen || ok != (c.rule != "") {
			t.Errorf("%q: %+v, %v", c.said, got, ok)
		}
	}
}

// A running network gets its rules: a port that the driver chose and that is taken is chosen again,
// a limited number of times, and one that was requested is reported as taken.
func TestOpenPorts(t *testing.T) {
	const ours, theirs = `"Could not set up host forwarding rule 'tcp:127.0.0.1:1-:22'\r\n"`,
		`"Could not set up host forwarding rule 'tcp:127.0.0.1:7-:22'\r\n"`
	rule := hv.PortRule{Name: "ssh", GuestPort: 22, HostIP: "127.0.0.1", Protocol: "tcp"}
	with := func(port int) []hv.PortRule {
		p := rule
		p.HostPort = port
		return []hv.PortRule{p}
	}
	for _, c := range []struct {
		name         string
		asked, ports []hv.PortRule
		answers      []string
		says         string // "" = another port is chosen
	}{
		{"taken", with(0), with(1), []string{ours, `""`}, ""},
		{
			"asked for", with(7), with(7),
			[]string{theirs},
			`port rule "ssh": host port 7 of 127.0.0.1 cannot be opened on this node`,
		},
		{
			"another reason", with(0), with(1),
			[]string{`"device 'net0' not found\r\n"`},
			`port rule "ssh": device 'net0' not found`,
		},
		{"refused", with(0), with(1), []string{"!"}, "refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := fakeRun(t, &fakeQEMU{answers: map[string][]string{"human-monitor-command": c.answers}})
			r.machine.driver.reservedPorts = map[int]string{}
			got, err := r.openPorts(t.Context(), c.asked, c.ports)
			switch {
			case c.says != "":
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%+v, %v", got, err)
				}
			case err != nil || got[0].HostPort < hv.FirstHostPort ||
				r.machine.driver.reservedPorts[got[0].HostPort] != "vm" ||
				c.ports[0].HostPort != 1:
				t.Errorf("%+v, %v, reserved %v", got, err, r.machine.driver.reservedPorts)
			}
		})
	}
}

func TestAvoidPort(t *testing.T) {
	avoid := map[int]bool{}
	for i := range maxPortAttempts {
		if err := avoidPort(avoid, effectivePort{hv.PortRule{HostPort: hv.FirstHostPort + i}, true}); err != nil {
			t.Fatal(err)
		}
	}
	if err := avoidPort(avoid, effectivePort{hv.PortRule{HostPort: 1}, true}); err == nil ||
		len(avoid) != maxPortAttempts {
		t.Errorf("tried for ever: %v", err)
	}
}
