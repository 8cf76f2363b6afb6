package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.yaml.in/yaml/v3"

	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

// The knobs in addition to those of the guest. The package comment says what they do.
const (
	knobVersion        = "version"
	knobHang           = "hang"
	knobLicense        = "license"
	knobLicenseType    = "license-type"
	knobLicenseExpires = "license-expires"
	knobLimit          = "limit"
	knobNoChild        = "no-child"
	knobCrash          = "crash"
	knobCloneHold      = "clone-hold"
	knobExportHold     = "export-hold"
	knobDiskFull       = "disk-full"
	knobDisconnect     = "disconnect"
	knobNoNetwork      = "no-network"
)

// The states of a VM.
const (
	running   = "running"
	stopped   = "stopped"
	suspended = "suspended"
	failed    = "failed"
)

// library is what a user of the host has.
type library struct {
	home, dir string
	knobs     fakeguest.Knobs
}

// envHome has the user's HOME in the guest's processes, which have their own.
const envHome = "FAKE_ANKA_HOME"

func openLibrary() (*library, error) {
	home := os.Getenv("HOME")
	if outer := os.Getenv(envHome); outer != "" {
		home = outer
	}
	if !filepath.IsAbs(home) {
		return nil, errors.New("HOME is not set")
	}
	l := &library{
		home: home, dir: filepath.Join(home, "Library", "Veertu", "Anka"),
		knobs: fakeguest.Knobs(filepath.Join(home, "anka-knobs")),
	}
	for _, sub := range []string{"vm_lib", "img_lib"} {
		if err := os.MkdirAll(filepath.Join(l.dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// vm is one VM: config.yaml of its directory, whose real schema is not known.
type vm struct {
	library *library `yaml:"-"`

	UUID       string            `yaml:"uuid"`
	Name       string            `yaml:"name"`
	Version    string            `yaml:"version"` // tag, or version of macOS
	Created    time.Time         `yaml:"creation_date"`
	CPUs       int               `yaml:"cpu"`
	RAM        string            `yaml:"ram"`  // "4G"
	DiskBytes  int64             `yaml:"disk"` // of the image that the guest sees
	Image      string            `yaml:"image"`
	State      string            `yaml:"state"` // when no process runs it
	Network    network           `yaml:"network"`
	Rules      []rule            `yaml:"port_forwarding"`
	VNC        bool              `yaml:"vnc"`
	Labels     map[string]string `yaml:"labels"`
	Started    time.Time         `yaml:"start_date"`
	Stopped    time.Time         `yaml:"stop_date"`
	Orderly    bool              `yaml:"orderly"` // the running VM was asked to stop
	SuspendEnd bool              `yaml:"suspend"` // its stop is a suspend
}

type network struct {
	Mode    string `yaml:"mode"`
	Bridge  string `yaml:"bridge"`
	MAC     string `yaml:"mac"`
	VLAN    string `yaml:"vlan"`
	NoLocal bool   `yaml:"no_local"`
}

// rule forwards a port of the host to one of the guest.
type rule struct {
	Name      string `yaml:"name" json:"name"`
	Protocol  string `yaml:"protocol" json:"protocol"`
	GuestPort int    `yaml:"guest_port" json:"guest_port"`
	HostIP    string `yaml:"host_ip" json:"host_ip"`
	HostPort  int    `yaml:"host_port" json:"host_port"` // in effect; 0 = none yet
	Chosen    bool   `yaml:"chosen,omitempty" json:"-"`  // HostPort was chosen at a start
}

func (v *vm) dir() string { return filepath.Join(v.library.dir, "vm_lib", v.UUID) }

func (v *vm) lockFile() string { return filepath.Join(v.dir(), "lock") }

func (v *vm) image() string { return filepath.Join(v.library.dir, "img_lib", v.Image) }

// newVM returns a VM that is not written yet.
func (l *library) newVM(name, version string) *vm {
	id := uuid.NewString()
	return &vm{
		library: l, UUID: id, Name: name, Version: version, Created: now(), CPUs: 2, RAM: "4G", DiskBytes: 64 << 30,
		Image: id + ".ank", State: stopped, VNC: true, Labels: map[string]string{},
		Network: network{Mode: "shared", MAC: randomMAC()},
	}
}

// write writes config.yaml as a whole.
func (v *vm) write() error {
	text, err := yaml.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(v.dir(), 0o755); err != nil {
		return err
	}
	path := filepath.Join(v.dir(), "config.yaml")
	part := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(part, text, 0o600); err != nil {
		return err
	}
	return os.Rename(part, path)
}

func (l *library) read(id string) (*vm, error) {
	text, err := os.ReadFile(filepath.Join(l.dir, "vm_lib", id, "config.yaml"))
	if err != nil {
		return nil, err
	}
	v := &vm{library: l}
	if err := yaml.Unmarshal(text, v); err != nil {
		return nil, err
	}
	return v, nil
}

// all returns the VMs by name.
func (l *library) all() ([]*vm, error) {
	entries, err := os.ReadDir(filepath.Join(l.dir, "vm_lib"))
	if err != nil {
		return nil, err
	}
	var out []*vm
	for _, e := range entries {
		if v, err := l.read(e.Name()); err == nil { // another command may remove it
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b *vm) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// find returns a VM by name or UUID, or code 3.
func (l *library) find(id string) (*vm, error) {
	all, err := l.all()
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		if v.Name == id || v.UUID == id {
			return v, nil
		}
	}
	return nil, fail(codeNotFound, "%s: not found", id)
}

// checkName returns code 18 when a VM has the name.
func (l *library) checkName(name string) error {
	if v, err := l.find(name); err == nil {
		return fail(codeNameTaken, "%s: already exists", v.Name)
	}
	return nil
}

// pid returns the process that runs the VM; 0 = none. That process must not call it.
func (v *vm) pid() int {
	pid, err := cliproc.LockOwner(v.lockFile())
	if err != nil {
		return 0
	}
	return pid
}

// status is what list and show show. A process that was killed leaves no state behind: the VM failed.
func (v *vm) status() string {
	switch {
	case v.pid() != 0:
		return running
	case v.State == running:
		return failed
	}
	return v.State
}

// idle returns a VM that does not run.
func (l *library) idle(id string) (*vm, error) {
	v, err := l.find(id)
	if err == nil && v.status() == running {
		return nil, fail(codeFailure, "%s: is running", v.Name)
	}
	return v, err
}

func now() time.Time { return time.Now().UTC().Round(time.Second) }

// randomMAC returns a locally administered address.
func randomMAC() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	b[0] = b[0]&0xfc | 2
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4], b[5])
}
