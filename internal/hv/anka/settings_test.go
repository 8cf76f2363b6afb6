package anka

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/hv"
)

func testDriver() *Driver { return &Driver{opts: Options{Bridge: "en0", VLANs: []int{10}}} }

func testSpec(change func(*hv.Spec)) hv.Spec {
	s := hv.Spec{
		ID: "a", UUID: "00000000-0000-4000-8000-000000000001", CPUs: 4, MemoryMB: 6144, MAC: "52:54:00:AA:00:01",
		Apple: &hv.Apple{}, Disks: []hv.Disk{{Path: "/base.archive", Format: hv.FormatAnka}},
	}
	change(&s)
	return s
}

// TestSettings: the commands are those of the vendor's documentation of anka 3.5 to 3.9.
func TestSettings(t *testing.T) {
	for want, change := range map[string]func(*hv.Spec){
		"cpu 4|ram 6G|network -t shared -m 52:54:00:aa:00:01|label buildyard a": func(*hv.Spec) {},
		"cpu 4|ram 5000M|network -t nat -m 52:54:00:aa:00:01|label buildyard a" +
			"|port buildyard-0 22:0.0.0.0|port buildyard-1 80:127.0.0.1:8080": func(s *hv.Spec) {
			s.MemoryMB, s.Network = 5000, hv.NetworkNAT
			s.Ports = []hv.PortRule{
				{Name: "-d", GuestPort: 22}, {Name: "web", GuestPort: 80, HostPort: 8080, HostIP: "127.0.0.1"},
			}
		},
		"cpu 4|ram 6G|network -t bridge -m 52:54:00:aa:00:01 -b en0 -v 10|label buildyard a": func(s *hv.Spec) {
			s.Network, s.VLAN = hv.NetworkBridge, 10
		},
		"cpu 4|ram 6G|network -t disconnected -m 52:54:00:aa:00:01|label buildyard a": func(s *hv.Spec) {
			s.Network = hv.NetworkDisconnected
		},
		"cpu 4|ram 6G|network -t host -m 52:54:00:aa:00:01|label buildyard a": func(s *hv.Spec) {
			s.Network = hv.NetworkHost
		},
	} {
		d := testDriver()
		s, err := d.acceptSpec(testSpec(change))
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		var got []string
		for _, args := range (&machine{driver: d, id: "a"}).settings(s) {
			line, found := strings.CutPrefix(strings.Join(args, " "), "modify buildyard-a ")
			if !found {
				t.Errorf("command %q", args)
			}
			got = append(got, line)
		}
		if strings.Join(got, "|") != want {
			t.Errorf("got  %s\nwant %s", strings.Join(got, "|"), want)
		}
	}
}

func TestRefusals(t *testing.T) {
	for says, change := range map[string]func(*hv.Spec){
		"anka runs macOS guests only":  func(s *hv.Spec) { s.Apple = nil },
		"anka cannot save a running":   func(s *hv.Spec) { s.State = &hv.State{Path: "/state"} },
		"USB devices cannot be":        func(s *hv.Spec) { s.EditPC().USB = []hv.USBDevice{{Location: "1-1"}} },
		"hardware UUID and serial":     func(s *hv.Spec) { s.EditPC().Serial = "x" },
		"udp cannot be forwarded":      func(s *hv.Spec) { s.Ports = []hv.PortRule{{GuestPort: 1, Protocol: "udp"}} },
		"isolation: anka cannot":       func(s *hv.Spec) { s.Isolated = true },
		"VLAN 11 is not one of those":  func(s *hv.Spec) { s.Network, s.VLAN = hv.NetworkBridge, 11 },
		"add a port rule for port 590": func(s *hv.Spec) { s.VNC = &hv.VNC{Password: "x"} },
		`disk format "raw": anka`: func(s *hv.Spec) {
			s.Apple = &hv.Apple{HardwareModel: []byte("m"), MachineID: []byte("i")}
			s.Disks = []hv.Disk{{Path: "/root", Format: "raw"}, {Path: "/aux", Format: "raw"}}
		},
	} {
		_, err := testDriver().acceptSpec(testSpec(change))
		if !errors.Is(err, hv.ErrRefused) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
	}
	_, err := new(Driver).acceptSpec(testSpec(func(s *hv.Spec) { s.Network = hv.NetworkBridge }))
	if !errors.Is(err, hv.ErrRefused) {
		t.Errorf("a bridge that the node does not have: %v", err)
	}
}

func TestPortsInEffect(t *testing.T) {
	rules := []hv.PortRule{{Name: "ssh", GuestPort: 22}, {Name: "web", GuestPort: 80, HostPort: 8080}}
	var n shownNetwork
	if _, err := portsInEffect(rules, n); err == nil {
		t.Error("a rule without a port of the host was accepted")
	}
	const body = `{"port_forwarding_rules":[` +
		`{"name":"buildyard-0","host_port":10001},{"name":"buildyard-1","host_port":8080}]}`
	if err := decode("show", []byte(body), &n); err != nil {
		t.Fatal(err)
	}
	got, err := portsInEffect(rules, n)
	want := []hv.PortRule{{Name: "ssh", GuestPort: 22, HostPort: 10001}, rules[1]}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}
