package hv_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/hv"
)

func good() hv.Spec {
	return hv.Spec{
		ID: "vm-1", Name: "mgmtManaged-x", UUID: "6f1c2f5e-0a67-4d3e-9f6a-0d2f6a6f7c11",
		Disks: []hv.Disk{{Path: "/base.qcow2", Format: "qcow2"}}, CPUs: 1, MemoryMB: 256,
		Ports: []hv.PortRule{{Name: "ssh", GuestPort: 22}},
	}
}

func TestSpecValidate(t *testing.T) {
	if err := good().Validate(); err != nil {
		t.Fatalf("a good spec is refused: %v", err)
	}
	port := func(p hv.PortRule) func(*hv.Spec) {
		return func(s *hv.Spec) { s.Ports = []hv.PortRule{p} }
	}
	bad := map[string]func(*hv.Spec){
		"no id":            func(s *hv.Spec) { s.ID = "" },
		"id is a path":     func(s *hv.Spec) { s.ID = "../x" },
		"id is hidden":     func(s *hv.Spec) { s.ID = ".new" },
		"id is long":       func(s *hv.Spec) { s.ID = strings.Repeat("a", 129) },
		"id ends in line":  func(s *hv.Spec) { s.ID = "a\n" },
		"no uuid":          func(s *hv.Spec) { s.UUID = "x" },
		"name has newline": func(s *hv.Spec) { s.Name = "a\nb" },
		"no cpu":           func(s *hv.Spec) { s.CPUs = 0 },
		"little memory":    func(s *hv.Spec) { s.MemoryMB = 1 },
		"no disk":          func(s *hv.Spec) { s.Disks = nil },
		"negative timeout": func(s *hv.Spec) { s.BootTimeout = -1 },
		"guest port 0":     port(hv.PortRule{}),
		"host port":        port(hv.PortRule{GuestPort: 1, HostPort: 70000}),
		"protocol":         port(hv.PortRule{GuestPort: 1, Protocol: "sctp"}),
		"host address":     port(hv.PortRule{GuestPort: 1, HostIP: "127.0.0.1,guestfwd=x"}),
	}
	for name, change := range bad {
		s := good()
		change(&s)
		if err := s.Validate(); !errors.Is(err, hv.ErrRefused) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
}

func TestCommandValidate(t *testing.T) {
	ok := hv.Command{Path: "/bin/true", Env: []string{"A=", "b_1=x=y\nz"}}
	if err := ok.Validate(); err != nil {
		t.Fatalf("a good command is refused: %v", err)
	}
	secret := hv.Command{Path: "/bin/true", Env: []string{"hunter2"}}
	err := secret.Validate()
	if !errors.Is(err, hv.ErrRefused) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("malformed environment: got %v, want a refusal without the value", err)
	}
	for name, c := range map[string]hv.Command{
		"no program": {}, "stdin": {Path: "a", Stdin: make([]byte, hv.MaxStdinBytes+1)},
		"timeout": {Path: "a", Timeout: -1},
	} {
		if err := c.Validate(); !errors.Is(err, hv.ErrRefused) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
}

func TestTail(t *testing.T) {
	in := append(bytes.Repeat([]byte{'a'}, 10), bytes.Repeat([]byte{'b'}, hv.MaxOutputBytes)...)
	if got := hv.LastOutput(in); len(got) != hv.MaxOutputBytes || got[0] != 'b' {
		t.Errorf("Tail keeps %d bytes from %q", len(got), got[0])
	}
}

func TestCompat(t *testing.T) {
	a := hv.StateRequirements{Driver: "d", Version: "1", CPUs: 2, MemoryMB: 256}
	if err := a.CheckEqual(a); err != nil {
		t.Errorf("equal ones: %v", err)
	}
	b := a
	b.Version = "2"
	if err := a.CheckEqual(b); !errors.Is(err, hv.ErrRefused) ||
		!strings.Contains(err.Error(), `hypervisor version "1"`) {
		t.Errorf("got %v", err)
	}
	v := reflect.ValueOf(&b).Elem()
	for i := range v.NumField() { // a new field must be compared too
		b = a
		if f := v.Field(i); f.Kind() == reflect.String {
			f.SetString("other")
		} else {
			f.SetInt(99)
		}
		if a.CheckEqual(b) == nil {
			t.Errorf("a different %s is accepted", v.Type().Field(i).Name)
		}
	}
}
