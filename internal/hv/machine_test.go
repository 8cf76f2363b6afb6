package hv_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

func TestValidateMachine(t *testing.T) {
	full := good()
	full.DiskBytes, full.HardwareUUID, full.Serial, full.Video = 64<<40, "6F1C2F5E-0a67-4d3e-9f6a-0d2f6a6f7c11",
		"C02,x=1 ~", hv.VideoVirtIO
	full.MAC, full.Network, full.Isolated = "52:54:00:aB:Cd:eF", hv.NetworkNAT, true
	full.VNC = &hv.VNC{Password: "12345678", Port: 5901}
	full.USB = []hv.USBDevice{{Location: "1-2"}, {Location: "1-2.10.3"}, {Location: "emulated:tablet"}}
	if err := full.Validate(); err != nil {
		t.Fatalf("a good spec is refused: %v", err)
	}
	mac := func(m string) func(*hv.Spec) { return func(s *hv.Spec) { s.MAC = m } }
	usb := func(l string) func(*hv.Spec) { return func(s *hv.Spec) { s.USB = []hv.USBDevice{{Location: l}} } }
	vnc := func(v hv.VNC) func(*hv.Spec) { return func(s *hv.Spec) { s.VNC = &v } }
	for name, change := range map[string]func(*hv.Spec){
		"negative disk":         func(s *hv.Spec) { s.DiskBytes = -1 },
		"huge disk":             func(s *hv.Spec) { s.DiskBytes = 64<<40 + 1 },
		"hardware UUID":         func(s *hv.Spec) { s.HardwareUUID = "x" },
		"long serial":           func(s *hv.Spec) { s.Serial = strings.Repeat("a", 65) },
		"serial with a line":    func(s *hv.Spec) { s.Serial = "a\nb" },
		"serial not ASCII":      func(s *hv.Spec) { s.Serial = "ü" },
		"video":                 func(s *hv.Spec) { s.Video = "vga" },
		"network":               func(s *hv.Spec) { s.Network = "carrier-pigeon" },
		"ports on a bridge":     func(s *hv.Spec) { s.Network, s.Isolated = hv.NetworkBridge, false },
		"ports without a cable": func(s *hv.Spec) { s.Network = hv.NetworkDisconnected },
		"isolated bridge":       func(s *hv.Spec) { s.Network, s.Ports = hv.NetworkBridge, nil },
		"MAC of a group":        mac("01:00:5e:00:00:01"),
		"MAC of nobody":         mac("00:00:00:00:00:00"),
		"MAC with dashes":       mac("52-54-00-12-34-56"),
		"MAC of eight bytes":    mac("52:54:00:12:34:56:78:9a"),
		"MAC with an option":    mac("52:54:00:12:34:56,x=y"),
		"no password":           vnc(hv.VNC{}),
		"long password":         vnc(hv.VNC{Password: "hunter2hunter2"}),
		"odd password":          vnc(hv.VNC{Password: "hunter2\n"}),
		"VNC port":              vnc(hv.VNC{Password: "hunter2", Port: 65536}),
		"USB by name":           usb("keyboard"),
		"USB path":              usb("../1-2"),
		"USB with zeros":        usb("001-2"),
		"USB option":            usb("1-2,x=y"),
		"USB kind":              usb("emulated:a,b"),
		"USB twice":             func(s *hv.Spec) { s.USB = []hv.USBDevice{{"1-2"}, {"1-2"}} },
		"many USB": func(s *hv.Spec) {
			s.USB = []hv.USBDevice{{"1-1"}, {"1-2"}, {"1-3"}, {"1-4"}, {"1-5"}}
		},
	} {
		s := full.Clone()
		change(&s)
		if err := s.Validate(); !errors.Is(err, hv.ErrRefused) || strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("%s: got %v, want a refusal without the password", name, err)
		}
	}
}

func TestPasswordsAreNotPrinted(t *testing.T) {
	s := good()
	s.VNC = &hv.VNC{Password: "hunter2"}
	for _, text := range []string{fmt.Sprint(s.VNC), fmt.Sprintf("%+v %#v", *s.VNC, *s.VNC), fmt.Sprintf("%+v",
		s), fmt.Sprintf("%#v", s)} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("printed: %s", text)
		}
	}
}

func TestSettled(t *testing.T) {
	s := good()
	s.HardwareUUID = "ABCDEF00-0000-4000-8000-000000000001"
	got, err := s.WithDefaults()
	if err != nil || !strings.HasPrefix(got.MAC, "52:54:00:") || got.Video != hv.VideoVGA ||
		got.Network != hv.NetworkShared {
		t.Fatalf("%+v, %v", got, err)
	}
	if upper := hv.DefaultMAC(strings.ToUpper(s.UUID)); upper != got.MAC {
		t.Errorf("the same machine has %s and %s", upper, got.MAC)
	}
	pin := got.Requirements()
	if pin.HardwareUUID != strings.ToLower(s.HardwareUUID) || pin.MAC != got.MAC || pin.Network != "user" ||
		pin.Disks != 1 {
		t.Errorf("pins %+v", pin)
	}
	clone := good()
	clone.UUID, clone.State = "00000000-0000-4000-8000-000000000002", &hv.State{Path: "/state", Requirements: pin}
	saved, err := clone.WithDefaults()
	if err != nil || saved.MAC != got.MAC || saved.HardwareUUID != pin.HardwareUUID || saved.Video != hv.VideoVGA ||
		saved.Requirements() != pin {
		t.Errorf("a clone is %+v, %v", saved, err)
	}
	clone.MAC, clone.Network = strings.ToUpper(got.MAC), hv.NetworkHost // the same machine in other words
	if _, err := clone.WithDefaults(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*hv.Spec){
		"MAC address":      func(s *hv.Spec) { s.MAC = "52:54:00:00:00:01" },
		"hardware UUID":    func(s *hv.Spec) { s.HardwareUUID = s.UUID },
		"serial number":    func(s *hv.Spec) { s.Serial = "x" },
		"video controller": func(s *hv.Spec) { s.Video = hv.VideoVirtIO },
		"network mode":     func(s *hv.Spec) { s.Network = hv.NetworkDisconnected },
	} {
		c := clone.Clone()
		change(&c)
		_, err := c.WithDefaults()
		if !errors.Is(err, hv.ErrRefused) || !strings.Contains(err.Error(), name) ||
			!strings.Contains(err.Error(), "leave it out, or start a version that was saved stopped") {
			t.Errorf("%s: %v", name, err)
		}
	}
	clone.State.Requirements.Network = "tap" // its port rules do not go with that
	clone.Network = ""
	if _, err := clone.WithDefaults(); !errors.Is(err, hv.ErrRefused) {
		t.Errorf("port rules on a saved bridge: %v", err)
	}
}

func TestCheckRestart(t *testing.T) {
	before := good()
	after := before.Clone()
	after.VNC, after.USB = &hv.VNC{Password: "x"}, []hv.USBDevice{{Location: "1-1"}}
	after.NeedNetwork, after.BootTimeout = true, time.Minute
	if err := hv.CheckRestart(before, after); err != nil {
		t.Error(err)
	}
	after.VNC.Password = ""
	if err := hv.CheckRestart(before, after); !errors.Is(err, hv.ErrRefused) {
		t.Errorf("a bad password: %v", err)
	}
	after.VNC, after.CPUs = nil, 2
	if err := hv.CheckRestart(before, after); !errors.Is(err, hv.ErrRefused) {
		t.Errorf("more CPUs: %v", err)
	}
}

// A clone shares no memory with its spec, whatever fields there will be.
func TestClone(t *testing.T) {
	s := good()
	s.VNC, s.USB, s.State = &hv.VNC{Password: "x"}, []hv.USBDevice{{Location: "1-1"}}, &hv.State{Path: "/s"}
	s.Labels, s.Disks[0].Deltas = map[string]string{"a": "b"}, []string{"/d"}
	c := s.Clone()
	if !reflect.DeepEqual(s, c) {
		t.Fatalf("%+v is not %+v", c, s)
	}
	a, b := reflect.ValueOf(s), reflect.ValueOf(c)
	for i := range a.NumField() {
		switch f := a.Field(i); f.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			if f.IsNil() || f.Pointer() == b.Field(i).Pointer() {
				t.Errorf("%s is shared or not set here", a.Type().Field(i).Name)
			}
		}
	}
}

func TestGrowFileSystem(t *testing.T) {
	c := hv.GrowFileSystemCommand(time.Minute)
	if err := c.Validate(); err != nil || c.Timeout != time.Minute || !bytes.Contains(c.Stdin, []byte("resize2fs")) {
		t.Errorf("%v, %s", err, c.Stdin)
	}
}
