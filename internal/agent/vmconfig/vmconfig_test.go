package vmconfig_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/vmconfig"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

var pin = api.StateRequirements{Driver: "qemu", Version: "7.2", CPUs: 2, MemoryMB: 256, Disks: 1}

// full returns a configuration with everything that a start uses.
func full() api.TemplateConfig {
	return api.TemplateConfig{
		RAM: "2G", CPU: &api.ConfigCPU{Cores: 2},
		HardDrives: []api.ConfigDrive{{File: "a.img"}, {File: "b.bin", Format: "qcow2"}, {File: "c.qcow2"}},
		NetworkCards: []api.ConfigNIC{{
			Mode: "host", MACAddress: "52:54:00:00:00:01",
			PortRules: []api.ConfigPort{{RuleName: "ssh", GuestPort: 22}},
		}},
		Firmware: &api.ConfigBoot{Type: "bios"},
		Display:  &api.ConfigScreen{Video: "pg", FrameBuffer: &api.ConfigFrameBuffer{Password: "template"}},
	}
}

func TestSpec(t *testing.T) {
	ssh := []hv.PortRule{{Name: "ssh", GuestPort: 22}}
	plain := hv.Spec{
		Disks: []hv.Disk{
			{Path: "/v/a.img", Format: "raw"},
			{Path: "/v/b.bin", Format: "qcow2"},
			{Path: "/u/c.qcow2", Format: "raw", Deltas: []string{"/u/d", "/v/c.qcow2"}}, // as on this node
		},
		CPUs: 2, MemoryMB: 2048, Network: hv.NetworkHost, MAC: "52:54:00:00:00:01", Ports: ssh,
		PC: &hv.PC{Firmware: "bios", Video: "pg"}, VNC: &hv.VNC{Password: "template"},
	}
	for name, tt := range map[string]struct {
		config func(*api.TemplateConfig)
		order  api.StartOrder
		want   func(*hv.Spec)
	}{
		"template's own": {},
		"nothing said": {
			config: func(c *api.TemplateConfig) { *c = api.TemplateConfig{} },
			want: func(s *hv.Spec) {
				*s = hv.Spec{
					Disks: []hv.Disk{}, CPUs: 1, MemoryMB: 1024, Network: hv.NetworkShared, PC: &hv.PC{},
				}
			},
		},
		"machine": {
			order: api.StartOrder{Machine: &api.Machine{
				CPUs: 5, MemoryMB: 300, DiskBytes: 1 << 30, MAC: "52:54:00:00:00:02", HardwareUUID: "u", Serial: "s",
				Video:   "fbuf",
				Network: "shared", NetworkLocal: "forceOn", VNCPassword: "mine", USB: "1-2",
			}},
			want: func(s *hv.Spec) {
				s.CPUs, s.MemoryMB, s.DiskBytes, s.MAC = 5, 300, 1<<30, "52:54:00:00:00:02"
				s.Network, s.Isolated, s.VNC = hv.NetworkShared, true, &hv.VNC{Password: "mine"}
				s.PC = &hv.PC{
					Firmware: "bios", HardwareUUID: "u", Serial: "s", Video: "fbuf",
					USB: []hv.USBDevice{{Location: "1-2"}},
				}
			},
		},
		"macOS": {
			config: func(c *api.TemplateConfig) {
				*c = api.TemplateConfig{
					OS:         "macos",
					HardDrives: []api.ConfigDrive{{File: "a.img", Format: "raw"}, {File: "x", Format: "raw"}},
					Apple: &api.ConfigApple{
						HardwareModel: []byte("m"), MachineID: []byte("i"), MinCPUs: 2, MinMemoryMB: 4096,
					},
				}
			},
			want: func(s *hv.Spec) {
				*s = hv.Spec{
					Disks: []hv.Disk{{Path: "/v/a.img", Format: "raw"}, {Path: "/v/x", Format: "raw"}},
					CPUs:  1, MemoryMB: 1024, Network: hv.NetworkShared, PC: &hv.PC{},
					Apple: &hv.Apple{
						HardwareModel: []byte("m"), MachineID: []byte("i"), MinCPUs: 2, MinMemoryMiB: 4096,
					},
				}
			},
		},
		"archive of anka": {
			config: func(c *api.TemplateConfig) {
				*c = api.TemplateConfig{
					OS: "macos", Apple: &api.ConfigApple{},
					HardDrives: []api.ConfigDrive{{File: "vm.ank", Format: "anka"}},
				}
			},
			want: func(s *hv.Spec) {
				*s = hv.Spec{
					Disks: []hv.Disk{{Path: "/v/vm.ank", Format: hv.FormatAnka}},
					CPUs:  1, MemoryMB: 1024, Network: hv.NetworkShared, PC: &hv.PC{}, Apple: &hv.Apple{},
				}
			},
		},
		"not isolated": {order: api.StartOrder{Machine: &api.Machine{NetworkLocal: "forceOff"}}},
		"nat": {order: api.StartOrder{Machine: &api.Machine{Network: "nat"}}, want: func(s *hv.Spec) {
			s.Network = hv.NetworkShared
		}},
		"bridge has no rules": {
			order: api.StartOrder{Machine: &api.Machine{Network: "bridge"}},
			want:  func(s *hv.Spec) { s.Network, s.Ports = hv.NetworkBridge, nil },
		},
		"but what is ordered is told": {
			order: api.StartOrder{
				Machine: &api.Machine{Network: "disconnected"}, PortOverride: true,
				Ports: []api.NodePortRule{{Name: "x", GuestPort: 1}},
			},
			want: func(s *hv.Spec) {
				s.Network, s.Ports = hv.NetworkDisconnected, []hv.PortRule{{Name: "x", GuestPort: 1}}
			},
		},
		"no rules": {
			order: api.StartOrder{PortOverride: true},
			want:  func(s *hv.Spec) { s.Ports = []hv.PortRule{} },
		},
		"suspended": {
			config: func(c *api.TemplateConfig) { c.StateFile, c.StatePin = "state.1", &pin },
			want: func(s *hv.Spec) {
				s.MAC, s.State = "", &hv.State{
					Path: "/v/state.1",
					Requirements: hv.StateRequirements{
						Driver: "qemu", Version: "7.2", CPUs: 2, MemoryMB: 256, Disks: 1,
					},
				}
			},
		},
	} {
		config, want := full(), plain
		if tt.config != nil {
			tt.config(&config)
		}
		if tt.want != nil {
			tt.want(&want)
		}
		at := vmconfig.Files{Dir: "/v", Disks: map[string]hv.Disk{
			"b.bin":   {Path: "/v/b.bin"},
			"c.qcow2": {Path: "/u/c.qcow2", Format: "raw", Deltas: []string{"/u/d", "/v/c.qcow2"}},
		}}
		got, err := vmconfig.VMSpec(config, at, &tt.order)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// TestPinKeepsAll: every field of the state requirements reaches the driver and is returned.
func TestPinKeepsAll(t *testing.T) {
	var p api.StateRequirements
	v := reflect.ValueOf(&p).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.String {
			f.SetString(v.Type().Field(i).Name)
		} else {
			f.SetInt(int64(i + 1))
		}
	}
	s, err := vmconfig.VMSpec(api.TemplateConfig{StateFile: "state.1", StatePin: &p}, vmconfig.Files{Dir: "/v"},
		&api.StartOrder{})
	if err != nil || api.StateRequirements(s.State.Requirements) != p {
		t.Errorf("got %+v, %v", s.State, err)
	}
}

func TestHostileConfigurations(t *testing.T) {
	for name, c := range map[string]api.TemplateConfig{
		"disk":      {HardDrives: []api.ConfigDrive{{File: "../../etc/passwd"}}},
		"no disk":   {HardDrives: []api.ConfigDrive{{}}},
		"state":     {StateFile: "..", StatePin: &pin},
		"no pin":    {StateFile: "state.1"},
		"directory": {HardDrives: []api.ConfigDrive{{File: "a/b"}}},
	} {
		if _, err := vmconfig.VMSpec(c, vmconfig.Files{Dir: "/v"},
			&api.StartOrder{}); farm.CodeOf(err) != farm.CodeRefused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNamesFor: a disk keeps its name, and one without a separate name gets one that the base does
// not use.
func TestNamesFor(t *testing.T) {
	for name, tt := range map[string]struct {
		drives []api.ConfigDrive
		state  string
		want   []string
	}{
		"first": {
			[]api.ConfigDrive{{File: "disk.qcow2"}, {File: "data.img"}},
			"",
			[]string{"disk.qcow2", "data.img", "state.1"},
		},
		"next":  {[]api.ConfigDrive{{File: "disk.qcow2"}}, "state.1", []string{"disk.qcow2", "state.2"}},
		"again": {[]api.ConfigDrive{{File: "disk.qcow2"}}, "state.2", []string{"disk.qcow2", "state.1"}},
		"taken": {[]api.ConfigDrive{{File: "state.1"}}, "", []string{"state.1", "state.2"}},
		"one file": {
			[]api.ConfigDrive{{File: "a"}, {File: "a"}, {File: "disk1.img"}, {File: "a"}},
			"",
			[]string{"a", "disk2.img", "disk1.img", "disk3.img", "state.1"},
		},
	} {
		got := vmconfig.FileNamesFor(api.TemplateConfig{HardDrives: tt.drives, StateFile: tt.state})
		if all := append(slices.Clone(got.Disks), got.State); !slices.Equal(all, tt.want) {
			t.Errorf("%s: %v, want %v", name, all, tt.want)
		}
	}
}

const base = `{"own":{"x":[1,2.50,null]},"ram":"2G","cpu":{"cores":2,"own":1},` +
	`"hard_drives":[{"file":"disk.qcow2","own":true}],"state_file":"state.1","state_pin":{"driver":"old"},` +
	`"network_cards":[{"mode":"shared","mac_address":"52:54:00:00:00:01","port_forwarding_rules":[{"rule_name":"ssh","guest_port":22}]}],` +
	`"display":{"frame_buffer":{"password":"template"}}}`

func TestDerive(t *testing.T) {
	for name, tt := range map[string]struct {
		base    string
		changes vmconfig.Changes
		want    string
	}{
		"suspended": {
			base,
			vmconfig.Changes{
				SaveID: "s1", FileNames: vmconfig.FileNames{Disks: []string{"disk.qcow2"}, State: "state.2"},
				StatePin: &pin,
				CPUs:     3, MemoryMB: 300,
				NetworkMode: "host", MAC: "52:54:00:00:00:02", VideoController: "pg",
			},
			`{"own":{"x":[1,2.50,null]},"save":"s1","ram":"300M","cpu":{"cores":3,"own":1},` +
				`"hard_drives":[{"file":"disk.qcow2","own":true,"format":"raw"}],"state_file":"state.2","state_pin":PIN,` +
				`"network_cards":[{"mode":"host","mac_address":"52:54:00:00:00:02","port_forwarding_rules":[{"rule_name":"ssh","guest_port":22}]}],` +
				`"display":{"frame_buffer":{"password":"template"},"video_controller":"pg"}}`,
		},
		"shut down": {
			base,
			vmconfig.Changes{
				SaveID: "s1", FileNames: vmconfig.FileNames{Disks: []string{"disk.qcow2"}}, CPUs: 2,
				MemoryMB: 2048, MAC: "52:54:00:00:00:02",
			},
			`{"own":{"x":[1,2.50,null]},"save":"s1","ram":"2048M","cpu":{"cores":2,"own":1},` +
				`"hard_drives":[{"file":"disk.qcow2","own":true,"format":"raw"}],` +
				`"network_cards":[{"mode":"shared","port_forwarding_rules":[{"rule_name":"ssh","guest_port":22}]}],` +
				`"display":{"frame_buffer":{"password":"template"}}}`,
		},
		"own address stays": {
			`{"network_cards":[{"mac_address":"52:54:00:00:00:01"}]}`,
			vmconfig.Changes{SaveID: "s1", CPUs: 1, MemoryMB: 64, MAC: "52:54:00:00:00:02"},
			`{"save":"s1","ram":"64M","cpu":{"cores":1},"network_cards":[{"mac_address":"52:54:00:00:00:01"}]}`,
		},
		"nothing there": {
			`{}`,
			vmconfig.Changes{
				SaveID: "s1", CPUs: 1, MemoryMB: 64, NetworkMode: "bridge",
				FileNames: vmconfig.FileNames{State: "state.1"}, StatePin: &pin, MAC: "m",
			},
			`{"save":"s1","ram":"64M","cpu":{"cores":1},"state_file":"state.1","state_pin":PIN,"network_cards":[{"mode":"bridge","mac_address":"m"}]}`,
		},
	} {
		raw, err := json.Marshal(pin)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.ReplaceAll(tt.want, "PIN", string(raw))
		got, err := vmconfig.DeriveConfig([]byte(tt.base), tt.changes)
		if diff := cmp.Diff(values(t, []byte(want)), values(t, got)); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// values reads an object with its numbers as written.
func values(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	var out map[string]any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return out
}

func TestDeriveRefuses(t *testing.T) {
	for _, bad := range []string{
		``, `[]`, `{"cpu":1}`, `{"hard_drives":{}}`, `{"hard_drives":[1]}`, `{"hard_drives":[{}],"network_cards":7}`,
		`{"network_cards":1}`, `{"display":[]}`, `{"hard_drives":[{},{}]}`,
	} {
		c := vmconfig.Changes{
			CPUs: 1, MemoryMB: 64, VideoController: "pg", FileNames: vmconfig.FileNames{Disks: []string{"x"}},
		}
		if strings.Contains(bad, "network") || strings.Contains(bad, "display") {
			c.FileNames.Disks = nil
		}
		if got, err := vmconfig.DeriveConfig([]byte(bad), c); farm.CodeOf(err) != farm.CodeRefused {
			t.Errorf("%s: %s, %v", bad, got, err)
		}
	}
}

func TestNamed(t *testing.T) {
	got, err := vmconfig.WithTemplateName([]byte(`{"uuid":"old","x":1}`), "id", "name")
	if err != nil || string(got) != `{"name":"name","uuid":"id","x":1}` {
		t.Errorf("%s, %v", got, err)
	}
}

// FuzzDerive: whatever the base contains, the result is an error or an object in which every
// unknown field is unchanged.
func FuzzDerive(f *testing.F) {
	for _, seed := range []string{
		base, `{}`, `null`, `{"cpu":null,"network_cards":[null],"hard_drives":[null]}`, `{"a":1e400}`,
	} {
		f.Add([]byte(seed))
	}
	known := []string{"save", "ram", "cpu", "hard_drives", "state_file", "state_pin", "network_cards", "display"}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c := vmconfig.Changes{
			SaveID: "s", CPUs: 1, MemoryMB: 64, StatePin: &pin, MAC: "m",
			FileNames: vmconfig.FileNames{Disks: []string{"x"}, State: "state.1"},
		}
		got, err := vmconfig.DeriveConfig(raw, c)
		if err != nil {
			return
		}
		var before, after map[string]json.RawMessage
		if err := json.Unmarshal(got, &after); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		if err := json.Unmarshal(raw, &before); err != nil {
			t.Fatal(err)
		}
		for name := range before {
			if !slices.Contains(known, name) && after[name] == nil {
				t.Errorf("%s is lost", name)
			}
		}
		var config api.TemplateConfig
		if json.Unmarshal(got, &config) == nil &&
			(config.StateFile != "state.1" || config.CPU.Cores != 1 || config.NetworkCards[0].MACAddress != "m") {
			t.Errorf("got %s", got)
		}
	})
}
