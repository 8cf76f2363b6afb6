package hv_test

import (
	"bytes"
	"encoding/json"
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
	full.DiskBytes = 64 << 40
	full.PC = &hv.PC{
		HardwareUUID: "6F1C2F5E-0a67-4d3e-9f6a-0d2f6a6f7c11", Serial: "C02,x=1 ~", Video: hv.VideoVirtIO,
		USB: []hv.USBDevice{{Location: "1-2"}, {Location: "1-2.10.3"}, {Location: "emulated:tablet"}},
	}
	full.MAC, full.Network, full.Isolated = "52:54:00:aB:Cd:eF", hv.NetworkNAT, true
	full.VNC = &hv.VNC{Password: "12345678", Port: 5901}
	if err := full.Validate(); err != nil {
		t.Fatalf("a good spec is refused: %v", err)
	}
	mac := func(m string) func(*hv.Spec) { return func(s *hv.Spec) { s.MAC = m } }
	usb := func(l string) func(*hv.Spec) {
		return func(s *hv.Spec) { s.EditPC().USB = []hv.USBDevice{{Location: l}} }
	}
	vnc := func(v hv.VNC) func(*hv.Spec) { return func(s *hv.Spec) { s.VNC = &v } }
	for name, change := range map[string]func(*hv.Spec){
		"negative disk":         func(s *hv.Spec) { s.DiskBytes = -1 },
		"huge disk":             func(s *hv.Spec) { s.DiskBytes = 64<<40 + 1 },
		"hardware UUID":         func(s *hv.Spec) { s.EditPC().HardwareUUID = "x" },
		"long serial":           func(s *hv.Spec) { s.EditPC().Serial = strings.Repeat("a", 65) },
		"serial with a line":    func(s *hv.Spec) { s.EditPC().Serial = "a\nb" },
		"serial not ASCII":      func(s *hv.Spec) { s.EditPC().Serial = "ü" },
		"video":                 func(s *hv.Spec) { s.EditPC().Video = "vga" },
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
		"USB twice":             func(s *hv.Spec) { s.EditPC().USB = []hv.USBDevice{{"1-2"}, {"1-2"}} },
		"many USB": func(s *hv.Spec) {
			s.EditPC().USB = []hv.USBDevice{{"1-1"}, {"1-2"}, {"1-3"}, {"1-4"}, {"1-5"}}
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
	s.EditPC().HardwareUUID = "ABCDEF00-0000-4000-8000-000000000001"
	got, err := s.WithDefaults()
	if err != nil || !strings.HasPrefix(got.MAC, "52:54:00:") || got.PC.Video != hv.VideoVGA ||
		got.Network != hv.NetworkShared {
		t.Fatalf("%+v, %v", got, err)
	}
	if upper := hv.DefaultMAC(strings.ToUpper(s.UUID)); upper != got.MAC {
		t.Errorf("the same machine has %s and %s", upper, got.MAC)
	}
	pin := got.Requirements()
	if pin.HardwareUUID != strings.ToLower(s.PC.HardwareUUID) || pin.MAC != got.MAC || pin.Network != "user" ||
		pin.Disks != 1 {
		t.Errorf("pins %+v", pin)
	}
	clone := good()
	clone.UUID, clone.State = "00000000-0000-4000-8000-000000000002", &hv.State{Path: "/state", Requirements: pin}
	saved, err := clone.WithDefaults()
	if err != nil || saved.MAC != got.MAC || saved.PC.HardwareUUID != pin.HardwareUUID ||
		saved.PC.Video != hv.VideoVGA ||
		saved.Requirements() != pin {
		t.Errorf("a clone is %+v, %v", saved, err)
	}
	clone.MAC, clone.Network = strings.ToUpper(got.MAC), hv.NetworkHost // the same machine in other words
	if _, err := clone.WithDefaults(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*hv.Spec){
		"MAC address":      func(s *hv.Spec) { s.MAC = "52:54:00:00:00:01" },
		"hardware UUID":    func(s *hv.Spec) { s.EditPC().HardwareUUID = s.UUID },
		"serial number":    func(s *hv.Spec) { s.EditPC().Serial = "x" },
		"video controller": func(s *hv.Spec) { s.EditPC().Video = hv.VideoVirtIO },
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
	after.VNC, after.EditPC().USB = &hv.VNC{Password: "x"}, []hv.USBDevice{{Location: "1-1"}}
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
	s.VNC, s.State = &hv.VNC{Password: "x"}, &hv.State{Path: "/s"}
	s.PC = &hv.PC{USB: []hv.USBDevice{{Location: "1-1"}}}
	s.Apple = &hv.Apple{HardwareModel: []byte("m"), MachineID: []byte("i")}
	s.Labels, s.Disks[0].Deltas = map[string]string{"a": "b"}, []string{"/d"}
	c := s.Clone()
	if !reflect.DeepEqual(s, c) {
		t.Fatalf("%+v is not %+v", c, s)
	}
	sharesNothing(t, reflect.ValueOf(s), reflect.ValueOf(c))
	sharesNothing(t, reflect.ValueOf(*s.PC), reflect.ValueOf(*c.PC))
	sharesNothing(t, reflect.ValueOf(*s.Apple), reflect.ValueOf(*c.Apple))
}

func sharesNothing(t *testing.T, a, b reflect.Value) {
	t.Helper()
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
	if err := c.Validate(); err != nil || c.Timeout != time.Minute {
		t.Errorf("%v, time-out %s", err, c.Timeout)
	}
	for _, part := range []string{"resize2fs", "resizeContainer", string(hv.RefusalGrow)} {
		if !bytes.Contains(c.Stdin, []byte(part)) {
			t.Errorf("the script has no %s", part)
		}
	}
}

// The keys of a stored VM are those of earlier programs, whose records have none of PC and Apple.
func TestSpecKeys(t *testing.T) {
	const old = `{"ID":"a","CPUs":1,"HardwareUUID":"u","Serial":"s","Video":"pg","USB":[{"Location":"1-2"}],` +
		`"Firmware":"bios"}`
	var s hv.Spec
	if err := json.Unmarshal([]byte(old), &s); err != nil {
		t.Fatal(err)
	}
	want := hv.PC{
		HardwareUUID: "u", Serial: "s", Video: "pg", USB: []hv.USBDevice{{Location: "1-2"}}, Firmware: "bios",
	}
	if !reflect.DeepEqual(s.PCSettings(), want) || s.Apple != nil {
		t.Errorf("read %+v", s.PCSettings())
	}
	raw, err := json.Marshal(s)
	var keys, again map[string]any
	if err := errors.Join(err, json.Unmarshal(raw, &keys), json.Unmarshal([]byte(old), &again)); err != nil {
		t.Fatal(err)
	}
	for key, value := range again {
		if !reflect.DeepEqual(keys[key], value) {
			t.Errorf("wrote %s: %v, want %v", key, keys[key], value)
		}
	}
	if keys["PC"] != nil || keys["Apple"] != nil {
		t.Errorf("wrote %s", raw)
	}
}

func mac() hv.Spec {
	s := good()
	s.Arch, s.CPUs, s.MemoryMB = "arm64", 2, 4096
	s.Disks = []hv.Disk{{Path: "/root.img", Format: "raw"}, {Path: "/aux.img", Format: "raw"}}
	s.Apple = &hv.Apple{HardwareModel: []byte("model"), MachineID: []byte("ecid"), MinCPUs: 2, MinMemoryMiB: 4096}
	return s
}

// TestValidateAnkaArchive: an archive has the whole Mac, so it is the only disk and needs no description of it.
func TestValidateAnkaArchive(t *testing.T) {
	good := mac()
	good.Apple = &hv.Apple{MinCPUs: 2}
	good.Disks = []hv.Disk{{Path: "/archive", Format: hv.FormatAnka}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for says, change := range map[string]func(*hv.Spec){
		"cannot have deltas":             func(s *hv.Spec) { s.Disks[0].Deltas = []string{"/delta"} },
		"a hardware model of 0 bytes":    func(s *hv.Spec) { s.Disks = append(s.Disks, s.Disks[0]) },
		"a hardware model of 4097 bytes": func(s *hv.Spec) { s.Apple.HardwareModel = make([]byte, 4097) },
		"this guest needs 9":             func(s *hv.Spec) { s.Apple.MinCPUs = 9 },
	} {
		s := good.Clone()
		change(&s)
		if err := s.Validate(); !errors.Is(err, hv.ErrRefused) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

func TestValidateApple(t *testing.T) {
	good := mac()
	good.PC = &hv.PC{Video: hv.VideoVirtIO}
	got, err := good.WithDefaults()
	if err := errors.Join(err, good.Validate()); err != nil || got.PC != nil || got.Apple == nil {
		t.Fatalf("a good spec is refused: %v, %+v", err, got)
	}
	for want, change := range map[string]func(*hv.Spec){
		"a hardware model of 0 bytes":       func(s *hv.Spec) { s.Apple.HardwareModel = nil },
		"a hardware model of 4097 bytes":    func(s *hv.Spec) { s.Apple.HardwareModel = make([]byte, 4097) },
		"a machine identifier of 0 bytes":   func(s *hv.Spec) { s.Apple.MachineID = nil },
		"needs -1 virtual CPUs":             func(s *hv.Spec) { s.Apple.MinCPUs = -1 },
		"1 virtual CPUs: this guest needs ": func(s *hv.Spec) { s.CPUs = 1 },
		"MiB of memory: this guest needs ":  func(s *hv.Spec) { s.MemoryMB = 2048 },
		`architecture "amd64"`:              func(s *hv.Spec) { s.Arch = "amd64" },
		"1 disks: a macOS guest has 2":      func(s *hv.Spec) { s.Disks = s.Disks[:1] },
		"are raw":                           func(s *hv.Spec) { s.Disks[1].Format = "qcow2" },
		"follow from its machine":           func(s *hv.Spec) { s.EditPC().Serial = "x" },
		"follow from its machine identifier": func(s *hv.Spec) {
			s.EditPC().HardwareUUID = s.UUID
		},
		"USB devices cannot be attached": func(s *hv.Spec) { s.EditPC().USB = []hv.USBDevice{{Location: "1-2"}} },
		`video controller "fbuf"`:        func(s *hv.Spec) { s.EditPC().Video = hv.VideoVGA },
		`firmware "uefi"`:                func(s *hv.Spec) { s.EditPC().Firmware = hv.FirmwareUEFI },
	} {
		s := mac()
		change(&s)
		if err := s.Validate(); !errors.Is(err, hv.ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want a refusal with %q", err, want)
		}
	}
	resumed := mac()
	resumed.State = &hv.State{Path: "/state"}
	if _, err := resumed.WithDefaults(); !errors.Is(err, hv.ErrRefused) {
		t.Errorf("a macOS guest resumes: %v", err)
	}
}

// EditPC changes one copy of a spec.
func TestEditPC(t *testing.T) {
	s := good()
	s.PC = &hv.PC{USB: []hv.USBDevice{{Location: "1-1"}}, Video: hv.VideoVGA}
	c := s
	pc := c.EditPC()
	pc.Video, pc.USB[0].Location = hv.VideoVirtIO, "1-2"
	if s.PC.Video != hv.VideoVGA || s.PC.USB[0].Location != "1-1" || c.PC.Video != hv.VideoVirtIO {
		t.Errorf("the copy is %+v, the original %+v", c.PC, s.PC)
	}
	after := mac()
	after.EditPC().USB = nil
	if err := hv.CheckRestart(mac(), after); err != nil {
		t.Errorf("a restart of a macOS guest: %v", err)
	}
}
